"""DRAM: the tables' numbers, what it reads, where from, and what trains what."""

import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.models.dram import Dram, DramOptions, build, log_normal
from fovea.models.glimpsing import Glimpsing, Pixels
from fovea.networks import cost

TINY = 0.03125


def net_of(locations: int = 3, glimpse: int = 33, side: int = 96) -> Dram:
    torch.manual_seed(0)
    net = Dram(3, DramOptions(TINY, locations, glimpse, side))
    with torch.no_grad():
        net.emit.weight.mul_(20)  # so that glimpses are not all of the middle
    return net.eval()


def pictures(n: int = 2, height: int = 96, width: int = 96) -> Tensor:
    return torch.randn(n, 3, height, width, generator=torch.Generator().manual_seed(1))


@dataclass
class Watched:
    """Overviews are read from one batch and glimpses from another; every request is kept."""

    overview: Pixels
    glimpses: Pixels
    views: int = 3
    asked: list[tuple[Tensor, tuple[int, int], int]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.overview.count

    @property
    def size(self) -> tuple[int, int]:
        return self.overview.size

    def read(self, corners: Tensor, extent: tuple[int, int], side: int) -> Tensor:
        self.asked.append((corners, extent, side))
        source = self.overview if len(self.asked) <= self.views else self.glimpses
        return source.read(corners, extent, side)


def test_the_papers_parameters() -> None:
    """45,610,219 with 1,001 classes in TensorFlow: with running statistics, with biases in the residual network's
    convolutions that add to what is added anyway, and with one bias in an LSTM where torch has two."""
    with torch.device("meta"):
        net = Dram(1001, DramOptions())
    statistics = 2 * net.statistics.mean.shape[2]
    depths = zip((256, 512, 1024, 2048), (3, 4, 6, 3), strict=True)
    biases = 64 + sum(channels * (blocks + 1) for channels, blocks in depths)
    assert cost.parameters(net) - 2 * 4 * 1024 + statistics + biases == 45_610_219


def test_an_overview_costs_as_much_as_a_glimpse() -> None:
    """The table's 1.86, 3.1, 5.58 and 13.03 G are 3, 5, 9 and 21 times 0.62."""
    macs = [cost.macs(build(10, DramOptions(TINY, k)), torch.zeros(1, 3, 224, 224)) for k in (1, 2, 4)]
    steering = 4 * 32 * 64  # of the LSTM that has nothing to say after the last glimpse
    one = macs[1] - macs[0]
    assert macs[2] - macs[1] == 2 * one
    assert macs[0] - one == pytest.approx(one - steering, rel=0.01)


def test_reads_an_overview_and_glimpses_and_nothing_else() -> None:
    net, scene = net_of(), Watched(Pixels(pictures()), Pixels(pictures()))
    with torch.no_grad():
        out = net.walk(scene)
    assert [extent for _, extent, _ in scene.asked] == [(33, 33), (64, 64), (96, 96), *[(33, 33)] * 3]
    assert {side for *_, side in scene.asked} == {33}
    assert [corners[0, 0].tolist() for corners, *_ in scene.asked[:3]] == [[31, 31], [16, 16], [0, 0]]
    assert out.boxes[:, 0].tolist() == [[0, 0, 96, 96]] * 2
    for turn, (corners, extent, _) in enumerate(scene.asked[3:], 1):
        assert torch.equal(out.boxes[:, turn], torch.cat([corners[:, 0], corners[:, 0] + extent[0]], 1))
    assert bool((out.boxes >= 0).all() and (out.boxes <= 96).all())
    assert len(set(map(tuple, out.boxes[0].tolist()))) > 2  # it does look around
    assert (out.levels, out.parents, out.glimpses) == ((1, 2, 2, 2), (-1, 0, 0, 0), 3)


def test_pixels_outside_the_glimpses_do_not_reach_the_answer() -> None:
    """The overview decides where to look, and only that."""
    net, whole = net_of(), pictures(1)
    with torch.no_grad():
        out = net.walk(Pixels(whole))
        edited = torch.randn_like(whole) * 3
        for x0, y0, x1, y1 in out.boxes[0, 1:].tolist():
            edited[:, :, y0:y1, x0:x1] = whole[:, :, y0:y1, x0:x1]
        again = net.walk(Watched(Pixels(whole), Pixels(edited)))
        other = net.walk(Watched(Pixels(whole), Pixels(whole * 2)))
    assert torch.equal(out.after, again.after)
    assert not torch.allclose(out.logits, other.logits)


def test_the_overview_is_forgotten_by_the_answer() -> None:
    """Two overviews that lead to the same places give the same answers."""
    net = net_of()
    nn.init.zeros_(net.emit.weight)
    nn.init.zeros_(net.emit.bias)
    with torch.no_grad():
        first = net.walk(Pixels(pictures(1)))
        second = net.walk(Watched(Pixels(pictures(1) * 2), Pixels(pictures(1))))
    assert first.boxes[0, 1:].tolist() == [[32, 32, 65, 65]] * 3  # 31.5 rounded to even
    assert torch.equal(first.after[:, 1:], second.after[:, 1:])
    assert not torch.equal(first.after[:, 0], second.after[:, 0])
    assert torch.allclose(first.share, torch.tensor([[0, 1 / 3, 1 / 3, 1 / 3]]))
    assert first.each is first.after
    assert torch.equal(first.logits, first.after[:, -1])


def test_fewer_glimpses_are_the_first_ones() -> None:
    net = net_of()
    assert isinstance(net, Glimpsing)
    assert net.most == 3
    with torch.no_grad():
        few, all_of_them = net.walk(Pixels(pictures()), 1), net.walk(Pixels(pictures()))
    assert torch.equal(few.after, all_of_them.after[:, :2])
    assert torch.equal(few.boxes, all_of_them.boxes[:, :2])
    for glimpses in (0, 4):
        refused(rf"1 to 3 glimpses; got {glimpses}", net.walk, Pixels(pictures()), glimpses)


def test_a_normal_distribution_by_hand() -> None:
    """At its mean the density is 1/(d sqrt(2 pi)); one deviation off, sqrt(e) times less."""
    found = log_normal(torch.tensor([0.2, 0.3]), torch.tensor([0.2, 0.2]), 0.1)
    top = -math.log(0.1 * math.sqrt(2 * math.pi))
    assert found.tolist() == pytest.approx([top, top - 0.5], abs=1e-5)


def test_drawn_in_training_and_the_same_every_time_else() -> None:
    net = net_of()
    before = torch.get_rng_state()
    with torch.no_grad():
        first, second = (net(pictures()) for _ in range(2))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(first.logits, second.logits)
        assert torch.allclose(first.log_probability, torch.tensor(-2 * math.log(0.1 * math.sqrt(2 * math.pi))))
        torch.manual_seed(3)
        drawn = net.train()(pictures())
        torch.manual_seed(3)
        again = net(pictures())
    assert torch.equal(drawn.boxes, again.boxes)
    assert not torch.equal(drawn.boxes, first.boxes)
    assert bool((drawn.boxes >= 0).all() and (drawn.boxes <= 96).all())


def touched(net: Dram) -> set[str]:
    """Parts that a gradient went into."""
    return {
        name.partition(".")[0]
        for name, one in net.named_parameters()
        if one.grad is not None and float(one.grad.abs().sum()) > 0
    }


@pytest.mark.parametrize(
    ("row", "parts"), [("policy", {"steer", "emit"}), ("answer", {"eye", "recognise", "classifier"})]
)
def test_the_policy_and_the_answer_train_their_own(row: str, parts: set[str]) -> None:
    net = net_of().train()
    out = net(pictures(4))
    (out.log_probability.sum() if row == "policy" else out.each.square().sum()).backward()
    assert touched(net) == parts


def test_overviews_and_glimpses_have_statistics_of_their_own() -> None:
    net = net_of().train()
    net(pictures(4))
    overviews, glimpses = net.statistics.mean[0]
    assert not torch.allclose(overviews, glimpses, atol=1e-3)


def test_scenes_of_other_sizes() -> None:
    """Twice as wide, three times as high: glimpses are too, and are read at the same size."""
    net, small = net_of(), pictures(1)
    nn.init.zeros_(net.emit.weight)
    with torch.no_grad():
        net.emit.bias.copy_(torch.tensor([40.0, -40.0]))  # to the right, and up, as far as it goes
    scene = Watched(Pixels(pictures(1, 288, 192)), Pixels(pictures(1, 288, 192)))
    with torch.no_grad():
        out, plain = net.walk(scene), net.walk(Pixels(small))
    assert out.boxes[0].tolist() == [[0, 0, 192, 288], *[[126, 0, 192, 99]] * 3]
    assert plain.boxes[0].tolist() == [[0, 0, 96, 96], *[[63, 0, 96, 33]] * 3]
    assert {side for *_, side in scene.asked} == {33}


def test_pixels_are_told_where_they_are() -> None:
    net = net_of()
    view = net._view(Pixels(pictures(1)), torch.tensor([[[63, 0]]]), (33, 33))
    across, down = view[0, 3], view[0, 4]
    assert across[0, 0] == pytest.approx((63.5 / 96) * 2 - 1)
    assert across[5, -1] == pytest.approx((95.5 / 96) * 2 - 1)
    assert down[0, 7] == pytest.approx((0.5 / 96) * 2 - 1)
    assert torch.equal(view[:, :3], pictures(1)[:, :, :33, 63:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"locations": 0}, "locations is 1 to 4,096"),
        ({"width": -1}, "width .* above 0"),
        ({"glimpse": 97, "side": 96}, "1 to 96 pixels a side"),
        ({"spread": 0}, "above 0; got 0"),
    ],
)
def test_options_are_checked(options: dict[str, object], words: str) -> None:
    refused(words, DramOptions, **{"width": TINY, **options})


def test_built_as_a_network() -> None:
    network = build(4, DramOptions(TINY, 2, 33, 96))
    assert network(pictures(1)).shape == (1, 4)
    network.module.reset_classifier(6)
    assert network.module(pictures(1)).logits.shape == (1, 6)
    network.labels = None
    refused("color pictures", network.module, torch.zeros(1, 1, 96, 96))
    with pytest.raises(fovea.BadNetwork, match=r"fovea\.zoom tells"):  # its layers run for every glimpse
        fovea.explain(network, pictures(1))


def test_without_batch_norm_no_picture_depends_on_its_batch() -> None:
    torch.manual_seed(0)
    net = Dram(2, DramOptions(width=0.125, locations=2, norm=False)).eval()
    assert not any(isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) for layer in net.modules())
    x = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.allclose(net.train(False)(x).logits[:1], net(x[:1]).logits, atol=1e-5)
        assert torch.allclose(
            net._seen(net._overview(Pixels(x)), 0)[:1], net._seen(net._overview(Pixels(x[:1])), 0), atol=1e-5
        )
