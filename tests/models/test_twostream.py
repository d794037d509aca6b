"""The two-stream network: the thesis' size, its attention's invariants, what each stream sees, one answer a picture."""

import math
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.basics import BadNetwork
from fovea.models.localstream import LocalOptions, LocalStream, Recurrent, SelfAttention, basis
from fovea.models.trunks import Trunk, trunk_of
from fovea.models.twostream import (
    GlobalStream,
    Localizer,
    TwoStream,
    TwoStreamOptions,
    TwoStreamOutput,
    Views,
    add_local_stream,
)
from fovea.networks import Network
from fovea.pictures import Prepare, cut, inside, middle
from made_twostream import give_boxes

GRAY = (0.5,) * 3


def local_stream(
    kind: str = "attention", steps: int = 4, readout: str | None = None, ask: str | None = None
) -> LocalStream:
    torch.manual_seed(0)
    asking = {} if ask is None else {"self_attention": True, "asked_by": ask, "keys": 2, "places": 8}
    options = LocalOptions(kind, steps, 5, readout=readout, **asking)
    return LocalStream(6, 3, options).eval()


def a_map(count: int = 2) -> Tensor:
    return torch.randn(count, 6, 3, 3, generator=torch.Generator().manual_seed(1))


def two_streams(boxes: tuple[tuple[float, ...], ...] = ((0, 0, 4, 4),), patches: int = 1, crop: float = 1.0) -> Network:
    """Pictures of 8 x 8; both streams answer by the mean color that they see."""
    trunk = Trunk(nn.AdaptiveAvgPool2d(2), (8, 8))  # the mean color of each quarter
    options = TwoStreamOptions("cnn", side=8, patch=4, crop=crop, patches=patches)
    whole, local = GlobalStream(trunk, 3), LocalStream(3, 3, options)
    for stream in (whole, local):
        with torch.no_grad():
            stream.classifier.weight.copy_(torch.eye(3))
            stream.classifier.bias.zero_()
    net = TwoStream(whole, local, Trunk(nn.AdaptiveAvgPool2d(2), (8, 8)), options).eval()
    return give_boxes(Network(net, Prepare((8, 8), GRAY, GRAY), ("r", "g", "b")), boxes)


def test_the_thesis_network_has_44_461_584_parameters() -> None:
    """Two VGG19s without their heads, two LSTMs of 512, ten attention vectors of 512, two layers for 200 classes."""
    net = fovea.load("twostream/timm/vgg19", pretrained=False, classes=200)
    vgg, lstm = 20_024_384, 2 * (4 * 512 * (512 + 512) + 2 * 4 * 512)
    by_hand = 2 * vgg + lstm + 10 * 512 + 2 * (512 * 200 + 200)
    assert by_hand == 44_461_584
    assert sum(one.numel() for one in net.module.parameters()) == by_hand
    assert net.module.size == 448
    assert net.module.features(torch.zeros(1, 3, 224, 224)).shape == (1, 512, 14, 14)  # without the last max-pool


def test_what_it_costs_can_be_told_before_it_has_patches() -> None:
    net = fovea.load(
        "twostream/timm/resnet10t", pretrained=False, classes=3, options={"side": 64, "patch": 32, "hidden": 8}
    )
    found = fovea.measure("cost", net, size=64, rounds=1).rows[0]
    assert found["params"] == sum(one.numel() for one in net.module.parameters())
    alone = fovea.load("twostream/timm/resnet10t", pretrained=False, classes=3, options={"side": 64, "local": "none"})
    assert found["macs"] > fovea.measure("cost", alone, size=64, rounds=1).rows[0]["macs"]


def test_attention_weights_sum_to_one() -> None:
    local = local_stream()
    nn.init.normal_(local.attention, std=3.0)
    steps = local(a_map())
    assert torch.allclose(steps.weights.sum(1), torch.ones(2))
    assert steps.weights.std() > 0.01
    pooled = torch.einsum("mt,mtd->md", steps.weights, steps.features)
    assert torch.allclose(steps.logits, local.classifier(pooled), atol=1e-6)


def test_one_step_has_weight_one() -> None:
    assert local_stream(steps=1)(a_map()).weights.tolist() == [[1.0], [1.0]]


def test_zero_attention_weights_are_mean_pooling() -> None:
    local = local_stream()
    mean = local_stream(readout="mean")
    assert torch.allclose(local(a_map()).logits, mean(a_map()).logits, atol=1e-6)
    assert torch.allclose(mean(a_map()).logits, local.classifier(mean(a_map()).features.mean(1)), atol=1e-6)


@pytest.mark.parametrize("ask", [None, "state", "first"])
def test_the_first_steps_do_not_change_with_their_number(ask: str | None) -> None:
    few, many = local_stream(steps=3, ask=ask), local_stream(steps=9, ask=ask)
    few.recurrent.load_state_dict(many.recurrent.state_dict())
    assert torch.allclose(few(a_map()).features, many(a_map()).features[:, :3], atol=1e-6)


def test_attention_is_a_weight_vector_a_step_or_one_for_all() -> None:
    assert local_stream().attention.shape == (4, 5)
    assert LocalStream(6, 3, LocalOptions(steps=4, hidden=5, shared_attention=True)).attention.shape == (1, 5)


@pytest.mark.parametrize(("readout", "weights"), [
    ("last", [0, 0, 0, 1]), ("step:2", [0, 1, 0, 0]), ("sum:3", [1, 1, 1, 0]), ("mean", [0.25] * 4),
])  # fmt: skip
def test_readouts(readout: str, weights: list[float]) -> None:
    local = local_stream(readout=readout)
    steps = local(a_map())
    assert steps.weights[0].tolist() == weights
    pooled = (torch.tensor(weights)[:, None] * steps.features[0]).sum(0)
    assert torch.allclose(steps.logits[0], local.classifier(pooled), atol=1e-6)


def test_each_step_alone_is_what_it_says() -> None:
    steps = local_stream()(a_map())
    for t in range(4):
        assert torch.allclose(local_stream(readout=f"step:{t + 1}")(a_map()).logits, steps.each[:, t], atol=1e-6)


def test_the_last_lstm_step_and_the_cnn_alone() -> None:
    lstm = local_stream("lstm")(a_map())
    assert torch.equal(lstm.logits, lstm.each[:, -1])
    cnn = local_stream("cnn")
    assert torch.allclose(cnn(a_map()).logits, cnn.classifier(a_map().mean((2, 3))), atol=1e-6)


def test_self_attention_by_hand() -> None:
    """One key channel, one value channel, no places: a query of 2 on keys 0 and ln 3 gives shares 0.1 and 0.9."""
    ask = SelfAttention(2, 1, 1, 0, 4)
    ask.query, ask.answer = nn.Linear(1, 1, bias=False), nn.Identity()
    nn.init.constant_(ask.query.weight, 2.0)
    features = torch.tensor([[[[0.0, torch.log(torch.tensor(3.0)).item()]], [[10.0, 20.0]]]])  # 1,2,1,2
    answer, maps = ask(features, torch.ones(1, 1, 1))
    assert maps[0, 0, 0].tolist() == pytest.approx([0.1, 0.9])
    assert answer.item() == pytest.approx(19.0)


def test_self_attention_splits_channels_and_knows_places() -> None:
    ask = SelfAttention(512, 512, 32, 64)
    assert ask.query[-1].out_features == 32 + 64  # c_k + c_s
    assert ask.answer[0].in_features == 480 + 64  # c_v + c_s
    answers, maps = ask(torch.randn(2, 512, 7, 7), torch.randn(2, 10, 512))
    assert answers.shape == (2, 10, 512)
    assert torch.allclose(maps.sum((2, 3)), torch.ones(2, 10))
    cells = basis(7, 7, 64).flatten(1)
    assert torch.cdist(cells.T, cells.T).add(10 * torch.eye(49)).min() > 0.1  # no two cells are at one place


@pytest.mark.parametrize("ask", ["state", "first"])
def test_self_attention_maps_come_with_the_steps(ask: str) -> None:
    maps = local_stream(ask=ask)(a_map()).maps
    assert maps.shape == (2, 4, 3, 3)
    assert torch.allclose(maps.sum((2, 3)), torch.ones(2, 4))


def queries(ask: str, features: Tensor) -> Tensor:
    """What every step asks: M,T,K."""
    stream, asked = local_stream(ask=ask), list[Tensor]()
    stream.recurrent.ask.query.register_forward_hook(lambda _, __, query: asked.append(query))
    stream(features)
    return torch.cat(asked, 1)


def test_what_was_found_decides_what_is_asked_next() -> None:
    """Shuffled, a map's cells keep their mean, but not their places: the first query is anyone's, all others change."""
    features = a_map()
    shuffled = features.flatten(2)[:, :, torch.tensor([4, 7, 1, 0, 8, 3, 6, 2, 5])].view_as(features)
    apart = (queries("state", features) - queries("state", shuffled)).norm(dim=2)
    assert apart[:, 0].max() == 0
    assert apart[:, 1:].min() > 1e-6
    assert torch.allclose(queries("first", features), queries("first", shuffled), atol=1e-6)


def test_asking_step_by_step_by_hand() -> None:
    """Gates open, the state asks as it is: keys 0 and ln 3, values 0 and 1. At first the state is 0, so both count
    alike and the answer is 1/2; then c = tanh(1/2), the state tanh(c), and the shares follow from it."""
    ask = SelfAttention(2, 1, 1, 0, 1)
    ask.query, ask.answer = nn.Identity(), nn.Identity()
    options = LocalOptions("lstm", 2, 1, 1, self_attention=True, keys=1, places=0)
    recurrent = Recurrent(2, options, ask)
    with torch.no_grad():
        for weights in recurrent.lstm.parameters():
            weights.zero_()
        recurrent.lstm.weight_ih_l0[2] = 1.0  # the cell's candidate is tanh of the input
        recurrent.lstm.bias_ih_l0[:2] = recurrent.lstm.bias_ih_l0[3] = 100.0
    features = torch.tensor([[[[0.0, math.log(3)]], [[0.0, 1.0]]]])
    found, maps = recurrent(features)
    cell = math.tanh(0.5)
    share = 3 ** math.tanh(cell) / (1 + 3 ** math.tanh(cell))
    assert maps.flatten().tolist() == pytest.approx([0.5, 0.5, 1 - share, share], abs=1e-5)
    after = math.tanh(cell + math.tanh(share))
    assert found.flatten().tolist() == pytest.approx([math.tanh(cell), after], abs=1e-5)


def test_streams_see_what_they_should() -> None:
    """The left upper quarter is red, the rest black: the patch is all red, the whole a quarter red."""
    pictures = torch.zeros(1, 3, 8, 8)
    pictures[:, 0, :4, :4] = 1
    out = two_streams().answer(pictures)
    assert out.whole[0].tolist() == pytest.approx([0.25, 0, 0])
    assert out.local[0].tolist() == pytest.approx([1, 0, 0])
    assert out.logits[0].tolist() == pytest.approx([1.25, 0, 0])
    assert out.boxes[0, 0].tolist() == [0, 0, 0.5, 0.5]


def test_answers_of_several_patches_are_averaged() -> None:
    pictures = torch.zeros(1, 3, 8, 8)
    pictures[:, 0, :4, :4] = 1
    boxes = ((0, 0, 4, 4), (4, 4, 8, 8))
    assert two_streams(boxes, 2).answer(pictures).local[0, 0].item() == pytest.approx(0.5)
    assert two_streams(boxes, 1).answer(pictures).local[0, 0].item() == pytest.approx(1)
    assert two_streams(boxes, 3).answer(pictures).local[0, 0].item() == pytest.approx(2 / 3)  # the best one again


def test_windows_and_flips_are_those_given() -> None:
    pictures = torch.zeros(1, 3, 8, 8)
    pictures[:, 1, :, :4] = 1  # the left half is green
    left = torch.tensor([[0.0, 0.0, 0.5, 1.0]])
    net: TwoStream = two_streams().module
    out = net(Views(pictures, left.unsqueeze(1), left))
    assert out.whole[0, 1].item() > 0.95  # the edge mixes with what is beside it
    patches = net.cut(Views(pictures, flips=torch.tensor([True])), torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]))
    assert patches[0, 1, 0].tolist() == pytest.approx([0, 0, 1, 1])


def test_the_middle_is_what_the_global_stream_sees() -> None:
    pictures = torch.zeros(1, 3, 8, 8)
    pictures[:, 2, 2:6, 2:6] = 1
    assert two_streams(crop=0.5).answer(pictures).whole[0, 2].item() > 0.85  # the edge mixes
    assert middle(1, 0.5, pictures)[0].tolist() == [0.25, 0.25, 0.75, 0.75]


def test_the_answer_is_the_same_every_time() -> None:
    torch.manual_seed(0)
    net = fovea.load("twostream/efficientnet_lite0", pretrained=False, classes=5, options={"side": 64, "patch": 32})
    give_boxes(net, ((3.0, 5.0, 40.0, 50.0),))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(net(x), net(x))


def test_shared_trunk_has_statistics_for_each_stream() -> None:
    options = {"side": 64, "patch": 64, "share": True, "hidden": 8}
    net = fovea.load("twostream/efficientnet_lite0", pretrained=False, classes=5, options=options).module
    names = {name for name, _ in net.named_parameters()}
    assert not any(name.startswith("trunk.") for name in names)
    net.train()
    box = torch.tensor([[[0.0, 0.0, 0.5, 0.5]]]).expand(4, 1, 4)
    dark = torch.randn(4, 3, 64, 64)
    dark[:, :, :32, :32] *= 5
    net(Views(dark, box))
    assert (net.statistics.mean[0, 0] - net.statistics.mean[0, 1]).abs().max() > 1e-3


def test_embedded_localizer_starts_with_nearly_everything_and_learns_from_the_patch() -> None:
    localizer = Localizer(2)
    features = torch.zeros(1, 2, 4, 4)
    assert localizer(features)[0].tolist() == pytest.approx([0.05, 0.05, 0.95, 0.95], abs=1e-6)
    nn.init.ones_(localizer.score.weight)
    features[0, :, 0, 3] = 20  # all the mass in the right upper cell
    x0, y0, x1, y1 = localizer(features)[0].tolist()
    assert (x0 + x1) / 2 == pytest.approx(0.875, abs=0.01)
    assert (y0 + y1) / 2 == pytest.approx(0.125, abs=0.01)
    options = {"side": 64, "patch": 64, "hidden": 8, "source": "embedded", "share": True}
    net = fovea.load("twostream/efficientnet_lite0", pretrained=False, classes=5, options=options).module
    out: TwoStreamOutput = net(torch.randn(2, 3, 64, 64))
    out.local.square().sum().backward()
    gradient = net.localizer.score.weight.grad
    assert gradient.abs().max() > 0  # through the patch that was cut


def test_embedded_windows_follow_the_mirror() -> None:
    options = {"side": 64, "patch": 64, "hidden": 8, "source": "embedded", "share": True}
    torch.manual_seed(0)
    net = fovea.load("twostream/efficientnet_lite0", pretrained=False, classes=5, options=options).module.eval()
    nn.init.normal_(net.localizer.score.weight)
    x = torch.randn(1, 3, 64, 64)
    plain, turned = net(x), net(Views(x.flip(3), flips=torch.tensor([True])))
    assert torch.allclose(plain.logits, turned.logits, atol=1e-4)
    x0, _, x1, _ = plain.boxes[0, 0].tolist()
    assert turned.boxes[0, 0, [0, 2]].tolist() == pytest.approx([1 - x1, 1 - x0], abs=1e-4)


def test_local_stream_for_any_classifier() -> None:
    classifier = fovea.load("timm/resnet10t", pretrained=False, classes=7)
    before = {key: value.clone() for key, value in classifier.module.state_dict().items()}
    net = add_local_stream(classifier, "whole", hidden=16, patch=64, steps=3)
    x = torch.randn(1, 3, 176, 176)
    net.module.eval()
    with torch.no_grad():
        out = net.answer(x)
        assert torch.equal(out.whole, classifier(x))
        assert torch.allclose(out.logits, out.whole + out.local)
    assert net.labels == classifier.labels
    assert all(torch.equal(value, before[key]) for key, value in classifier.module.state_dict().items())


def test_local_stream_takes_features_of_another_network() -> None:
    classifier, other = (fovea.load(f"timm/{one}", pretrained=False, classes=7) for one in ("resnet10t", "resnet14t"))
    net = add_local_stream(classifier, "whole", backbone=other, hidden=16, patch=64, steps=3)
    of_other = sum(one.numel() for one in trunk_of(other).parameters())
    assert sum(one.numel() for one in net.module.trunk.parameters()) == of_other


def test_a_plug_in_is_ready_to_use_and_can_be_kept(tmp_path: Path) -> None:
    classifier = fovea.load("timm/resnet10t", pretrained=False, classes=7)
    net = add_local_stream(classifier, "whole", hidden=16, patch=64, steps=3, self_attention=True)
    assert not any(one.training for one in net.module.modules())
    net.save(tmp_path / "plus.safetensors")
    again = fovea.load(tmp_path / "plus.safetensors")
    x = torch.randn(2, 3, 176, 176)
    with torch.no_grad():
        assert torch.equal(again(x), net(x))
        assert again(x).shape == (2, 7)
    assert fovea.load(tmp_path / "plus.safetensors", classes=3)(x).shape == (2, 3)
    classifier.module.double()
    assert add_local_stream(classifier, "whole", hidden=4, steps=2, patch=64).dtype == torch.float64


class Bent(nn.Module):
    """More happens before the pooling than its layers tell."""

    def __init__(self, by_value: bool) -> None:
        super().__init__()
        self.conv, self.avgpool, self.fc = nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(4, 2)
        self.by_value = by_value

    def forward(self, x: Tensor) -> Tensor:
        found = self.conv(x).relu()
        if self.by_value and found.sum() > 0:  # no graph can be drawn of this
            found = found * 2
        return self.fc(self.avgpool(found).flatten(1))


def test_trunks_are_what_is_pooled_or_refused() -> None:
    plain = fovea.load("torchvision/resnet18", pretrained=False)
    assert trunk_of(plain).channels == 512
    bent, x = fovea.wrap(Bent(False), Prepare((16, 16)), labels=2), torch.randn(2, 3, 16, 16)
    assert torch.equal(trunk_of(bent)(x), bent.module.conv(x).relu())
    with pytest.raises(BadNetwork, match="cannot be followed up to its pooling"):
        trunk_of(fovea.wrap(Bent(True), Prepare((16, 16)), labels=2))
    assert trunk_of(fovea.load("torchvision/googlenet", pretrained=False)).channels == 1024


def test_trunks_have_no_layers_of_the_head() -> None:
    trunk = trunk_of(fovea.load("timm/mobilenetv3_small_050", pretrained=False))
    x = torch.randn(1, 3, 64, 64)
    trunk(x).sum().backward()
    assert all(one.grad is not None for one in trunk.parameters())


def test_networks_of_two_streams_are_not_explained_as_of_one() -> None:
    net = fovea.load("twostream/timm/resnet10t", pretrained=False, classes=3, options={"side": 64, "source": "whole"})
    gray = Image.new("RGB", (80, 70), "grey")
    refused("look_longer", fovea.explain, net, gray)
    refused("look_longer", fovea.localize, net, gray)


@pytest.mark.parametrize(("options", "said"), [
    ({"local": "rnn"}, "local is none, cnn, lstm, attention"),
    ({"readout": "sum:11"}, "N from 1 to 10"),
    ({"self_attention": True, "asked_by": "first", "layers": 1}, "between LSTM layers"),
    ({"self_attention": True, "local": "cnn"}, "asked by an LSTM"),
    ({"asked_by": "last"}, "asked_by is state or first"),
    ({"steps": 0}, "steps is 1 to 1,000; got 0"),
    ({"local": "lstm", "readout": "attention"}, "has no attention"),
    ({"dropout": 2.0}, "dropout is a share"),
    ({"crop": 0.0}, "crop is the share"),
    ({"self_attention": True, "keys": 9999}, "keys are some of the map's"),
])  # fmt: skip
def test_refusals(options: dict[str, object], said: str) -> None:
    refused(said, fovea.load, "twostream/timm/resnet10t", pretrained=False, classes=3, options=options)


def test_without_a_source_the_error_says_how_to_give_one() -> None:
    net = fovea.load("twostream/timm/resnet10t", pretrained=False, classes=3, options={"side": 64})
    refused("source=KIND:NET", net, torch.zeros(1, 3, 64, 64))


def test_windows() -> None:
    picture = torch.arange(16.0).view(1, 1, 4, 4)
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    assert torch.allclose(cut(picture, whole, (4, 4)), picture, atol=1e-5)
    assert cut(picture, torch.tensor([[0.5, 0.5, 1.0, 1.0]]), (2, 2)).flatten().tolist() == pytest.approx(
        [10, 11, 14, 15]
    )
    half = torch.tensor([[0.0, 0.5, 0.5, 1.0]])
    assert inside(half, torch.tensor([[0.5, 0.0, 1.0, 0.5]]))[0].tolist() == [0.5, 0.25, 0.75, 0.5]


def test_pictures_go_back_to_what_they_were() -> None:
    from fovea.streams import as_images

    gray = Image.new("RGB", (8, 8), (10, 200, 30))
    prepare = Prepare((8, 8), GRAY, GRAY, None)
    assert as_images(prepare(gray).unsqueeze(0), prepare)[0].getpixel((3, 3)) == (10, 200, 30)


@pytest.mark.parametrize(("options", "whole"), [({"output_stride": 16}, 14), ({"patch": 448}, 7)])
def test_local_maps_of_14_cells_a_side(options: dict[str, int], whole: int) -> None:
    """A stride of 16 is of both streams where they share a trunk; a larger patch is the local stream's alone."""
    given = {"share": True, "side": 288, "size": 224, "source": "whole", "hidden": 8, **options}
    net = fovea.load("twostream/efficientnet_lite0", pretrained=False, classes=3, options=given)
    with torch.no_grad():
        out = net.answer(torch.zeros(1, 3, 288, 288))
    assert out.cells.shape[2:] == (14, 14)
    assert out.map.shape[2:] == (whole, whole)
