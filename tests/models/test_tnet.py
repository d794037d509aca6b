import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fovea
from checks import refused
from fovea.models.glimpsing import Pixels, Walk, cut, shared_out, weighted_mean
from fovea.models.locations import ByExcitation, Grid
from fovea.models.tnet import encoding, evenness, plan

TINY = {"in_chans": 1, "channels": [8, 8, 16, 16], "stem_width": 8, "base": 32}


def bag(**options: object) -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("tnet-bagnet77", classes=4, options={"width": 0.0625, **options})


def timm_one(**options: object) -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("tnet/resnet10t", pretrained=False, classes=4, options=TINY | options)


def walked(network: fovea.Network, x: Tensor, glimpses: int | None = None) -> Walk:
    module = network.module
    with torch.no_grad():
        return module.walk(Pixels(x), glimpses)


def test_grids_of_the_paper() -> None:
    assert Grid(5, 0.34375).along(224) == ([-1, 36, 73, 110, 147], 77)
    assert Grid(3, 0.5).along(448) == ([0, 112, 224], 224)
    assert Grid(3, 0.5).along(2) == ([0, 0, 1], 1)


def test_every_cell_of_a_map_is_in_a_region_and_every_region_has_one() -> None:
    for size in ((14, 14), (7, 9), (2, 3), (1, 1)):
        inside = Grid(3, 0.5).cells_inside(*size)
        assert inside.any(0).all()
        assert inside.any(1).all()
    assert Grid(3, 0.5)._inside(14)[:, [0, 6, 7, 13]].tolist() == [
        [True, True, False, False],
        [False, True, True, False],
        [False, False, True, True],
    ]


def test_how_even_a_choice_is() -> None:
    """Of four cells: all alike, two alike, one alone; log 2 is half of log 4."""
    found = evenness(torch.tensor([[[0.25] * 4, [0.5, 0.5, 0, 0], [1.0, 0, 0, 0]]]))
    assert found[0].tolist() == pytest.approx([1, 0.5, 0])


def test_a_walk_tells_how_even_its_choices_were() -> None:
    network = timm_one(levels=3, glimpses=4)
    found = walked(network, torch.rand(2, 1, 96, 96)).entropy
    assert found is not None
    assert found.shape == (2, 2)  # of levels 2 and 3
    assert bool(((found > 0.9) & (found <= 1.0001)).all())  # logits of length 1 are never far from even
    assert walked(network, torch.rand(2, 1, 96, 96), 0).entropy is None


def test_glimpses_are_dealt_to_levels() -> None:
    assert plan(4, 3, 9) == [2, 2]
    assert plan(6, 3, 9) == [3, 3]
    assert plan(1, 3, 9) == [1, 0]
    assert plan(3, 2, 25) == [3]
    assert plan(20, 3, 9) == [9, 11]
    assert plan(90, 3, 9) == [9, 81]
    assert plan(0, 1, 9) == []
    assert shared_out(11, [9] * 9) == [2, 2, *[1] * 7]
    refused("0 to 90", plan, 91, 3, 9)


@pytest.mark.parametrize(("size", "squared"), [(512, 255), (320, 159)])
def test_positions_have_one_length(size: int, squared: int) -> None:
    for position, level in (((0, 0), 0), ((3, 17), 2)):
        found = encoding(torch.tensor([position]), level, size)
        assert found.shape == (1, size)
        assert float(found.square().sum()) == pytest.approx(squared, rel=1e-5)
    assert not torch.allclose(encoding(torch.tensor([[1, 2]]), 1, size), encoding(torch.tensor([[2, 1]]), 1, size))


@pytest.mark.parametrize(("cells", "low", "high"), [(25, 0.01479, 0.10364), (9, 0.04148, 0.26526)])
def test_no_probability_is_out_of_the_bounds_of_normalized_logits(cells: int, low: float, high: float) -> None:
    peak = torch.full((cells,), -1.0)  # the farthest that one cell can be from the others at a given length
    peak[0] = cells - 1
    for sign, expected in ((1, high), (-1, low)):
        probability = torch.nn.functional.normalize(sign * peak, dim=0).softmax(0)
        assert float(probability[0]) == pytest.approx(expected, abs=2e-5)
    network = bag() if cells == 25 else timm_one()
    location, extractor = network.module.location, network.module.extractor
    with torch.no_grad():
        found = location(1e4 * torch.randn(6, extractor.channels, 9, 9), 1e4 * torch.randn(6, extractor.width))
    assert found.shape == (6, cells)
    assert torch.allclose(found.sum(1), torch.ones(6))
    assert float(found.min()) >= low - 1e-4
    assert float(found.max()) <= high + 1e-4


@pytest.mark.parametrize("make", [bag, timm_one])
def test_the_policys_gradient_never_reaches_the_features(make: object) -> None:
    network: fovea.Network = make()
    channels = len(network.transform.mean)
    walk = network.module.train()(torch.randn(2, channels, 128, 128))
    walk.log_probability.sum().backward()
    for name, one in network.module.named_parameters():
        if name.startswith("location."):
            continue
        assert one.grad is None or not one.grad.any(), name
    assert any(one.grad is not None and one.grad.any() for one in network.module.location.parameters())


def test_windows_nest_and_are_read_where_they_say() -> None:
    network = timm_one()
    x = torch.randn(3, 1, 128, 96)
    walk = walked(network, x, 8)
    assert walk.levels == (1, 2, 2, 2, 2, 3, 3, 3, 3)
    assert walk.parents == (-1, 0, 0, 0, 0, 1, 2, 3, 4)
    assert walk.boxes[:, 0].tolist() == [[0, 0, 96, 128]] * 3
    for i, parent in enumerate(walk.parents[1:], 1):
        inner, outer = walk.boxes[:, i], walk.boxes[:, parent]
        assert (inner[:, :2] >= outer[:, :2]).all()
        assert (inner[:, 2:] <= outer[:, 2:]).all()
    assert len({tuple(box) for box in walk.boxes[0, 1:5].tolist()}) == 4  # none twice
    x0, y0, x1, y1 = walk.boxes[1, 6].tolist()
    read = cut(x, walk.boxes[:, 6:7, :2], (y1 - y0, x1 - x0))
    assert torch.equal(read[1], x[1, :, y0:y1, x0:x1])


def test_what_was_not_read_has_no_say() -> None:
    network = timm_one()
    network.module.antialias = False  # the overview then reads a few pixels, and not the others
    x = torch.rand(1, 1, 256, 256)
    with torch.no_grad():
        before = network.module(x)
        other = x.clone()
        seen = torch.zeros(256, 256, dtype=torch.bool)
        for x0, y0, x1, y1 in before.boxes[0, 1:].tolist():
            seen[y0:y1, x0:x1] = True
        seen[3::8, 3::8] = seen[3::8, 4::8] = seen[4::8, 3::8] = seen[4::8, 4::8] = True  # of the overview, 8 apart
        assert not seen.all()
        other[0, 0, ~seen] = 0.5
        after = network.module(other)
    assert torch.equal(before.logits, after.logits)


def test_over_the_edge_there_is_nothing() -> None:
    x = torch.arange(1.0, 17).view(1, 1, 4, 4)
    found = cut(x, torch.tensor([[[-1, -1], [2, 3]]]), (2, 3))
    assert found[0, 0].tolist() == [[0, 0, 0], [0, 1, 2]]
    assert found[1, 0].tolist() == [[15, 16, 0], [0, 0, 0]]


def test_answers_after_each_are_means_of_what_was_read() -> None:
    walk = walked(timm_one(), torch.randn(2, 1, 128, 128), 5)
    assert walk.glimpses == 5
    for count in range(1, 7):
        assert torch.allclose(walk.after[:, count - 1], walk.each[:, :count].mean(1), atol=1e-6)
    assert torch.equal(walk.logits, walk.after[:, -1])


def test_one_after_the_other_is_the_same() -> None:
    network, x = timm_one(), torch.randn(2, 1, 128, 128)
    together = walked(network, x, 6)
    network.module.sequential = True
    apart = walked(network, x, 6)
    assert torch.equal(together.boxes, apart.boxes)
    assert torch.allclose(together.logits, apart.logits, atol=1e-5)


def test_each_level_has_its_own_statistics() -> None:
    network = timm_one()
    x = torch.randn(8, 1, 128, 128)
    statistics = network.module.extractor.statistics
    before = statistics.mean.clone()
    network.module.train()(x)
    changed = (statistics.mean != before)[0].any(1)
    assert changed.tolist() == [True, True, True]
    assert not torch.equal(statistics.mean[0, 0], statistics.mean[0, 2])
    assert all(one.running_mean is None for one in network.module.modules() if isinstance(one, torch.nn.BatchNorm2d))
    network.module.eval()
    lone, all_of_them = walked(network, x[:1]), walked(network, x)
    assert torch.allclose(lone.logits[0], all_of_them.logits[0], atol=1e-5)  # no batch has a say


def test_two_levels_weights_go_on_as_three(tmp_path: Path) -> None:
    network = timm_one(levels=2, glimpses=2)
    network.module.train()(torch.randn(4, 1, 64, 64))
    network.save(tmp_path / "two.safetensors")
    grown = fovea.load(tmp_path / "two.safetensors", options={"levels": 3, "glimpses": 4})
    mean, before = grown.module.extractor.statistics.mean, network.module.extractor.statistics.mean
    assert torch.equal(mean[:, :2], before)
    assert torch.equal(mean[:, 2], before[:, 1])
    assert grown.labels == network.labels
    assert walked(grown, torch.randn(1, 1, 128, 128)).levels == (1, 2, 2, 3, 3)


def test_its_features_are_a_network_again(tmp_path: Path) -> None:
    network = timm_one()
    network.module.train()(torch.randn(4, 1, 128, 128))
    network.save(tmp_path / "tnet.safetensors")
    own = {key: value for key, value in TINY.items() if key != "base"}
    whole = fovea.load("timm/resnet10t", tmp_path / "tnet.safetensors", classes=7, options=own)
    x = torch.randn(2, 1, 32, 32)
    with torch.no_grad():
        _, vector = network.module.eval().extractor(x, 2)  # as at the deepest level
        theirs = whole.module.forward_head(whole.module.forward_features(x), pre_logits=True)
    assert torch.allclose(vector, theirs, atol=1e-5)
    assert whole(x).shape == (2, 7)
    refused("last layer of its own", fovea.load, "timm/resnet10t", tmp_path / "tnet.safetensors", options=own)


def test_exploring_draws_other_places_and_testing_never_does() -> None:
    network, x = timm_one(explore=1.0), torch.randn(16, 1, 128, 128)
    assert torch.equal(walked(network, x).boxes, walked(network, x).boxes)
    network.module.train()
    with torch.no_grad():
        assert not torch.equal(network.module(x).boxes, network.module(x).boxes)


def test_training_may_read_more() -> None:
    network, x = timm_one(while_training=8), torch.randn(2, 1, 128, 128)
    assert walked(network, x).glimpses == 4
    network.module.train()
    assert walked(network, x).glimpses == 8
    refused("0 to 90", timm_one, while_training=91)


def test_probabilities_are_those_of_the_places_read() -> None:
    walk = walked(timm_one(), torch.randn(2, 1, 128, 128), 4)
    probability = walk.log_probability.exp()
    assert (probability > 0.04).all()
    assert (probability[:, 0] >= probability[:, 1]).all()  # the best first
    assert (probability[:, 0] >= 1 / 9 - 1e-6).all()


def test_any_number_of_levels() -> None:
    assert walked(timm_one(levels=1, glimpses=0), torch.randn(1, 1, 64, 64)).levels == (1,)
    deep = timm_one(levels=5, glimpses=4)
    assert walked(deep, torch.randn(1, 1, 256, 256)).levels == (1, 2, 3, 4, 5)
    assert deep.module.most == 9 + 81 + 729 + 6561


def test_options_are_checked() -> None:
    wrong = (
        ({"levels": 0}, "level"), ({"glimpses": 1000}, "0 to"), ({"explore": 2}, "explore"), ({"grid": 0}, "grid"),
        ({"stage": 9}, "maps 0 to 4"), ({"base": 0}, "base"),
    )  # fmt: skip
    for options, said in wrong:
        refused(said, timm_one, **options)
    refused("timm has no network", fovea.load, "tnet/resnet10x")
    assert math.prod(fovea.load("tnet-b0").transform.size) == 896**2


def test_a_weighted_mean_by_hand() -> None:
    """Scores 0, log 3 and log 4: weights 1; 1/4, 3/4; 1/8, 3/8, 4/8."""
    vectors, scores = torch.tensor([[[8.0], [0.0], [4.0]]]), torch.tensor([[1.0, 3.0, 4.0]]).log()
    after, share = weighted_mean(vectors, scores)
    assert after[0, :, 0].tolist() == pytest.approx([8, 2, 3])
    assert share[0].tolist() == pytest.approx([1 / 8, 3 / 8, 4 / 8])
    assert weighted_mean(vectors, scores + 1000)[0][0, :, 0].tolist() == pytest.approx([8, 2, 3], rel=1e-4)


def test_a_learned_average_begins_as_the_mean_and_learns(tmp_path: Path) -> None:
    plain, x = timm_one(), torch.randn(2, 1, 128, 128)
    plain.save(tmp_path / "plain.safetensors")
    learned = fovea.load(tmp_path / "plain.safetensors", options={"average": "learned"})
    before, same = walked(plain, x, 4), walked(learned, x, 4)
    assert torch.allclose(before.after, same.after, atol=1e-5)
    assert before.share is None
    assert same.share is not None
    assert torch.allclose(same.share, torch.full((2, 5), 0.2))
    torch.nn.functional.cross_entropy(learned.module.train()(x).logits, torch.tensor([0, 1])).backward()
    assert learned.module.weigh.weight.grad.any()
    torch.nn.init.normal_(learned.module.weigh.weight)
    walk = walked(learned, x, 4)
    for things in range(1, 6):
        first = walk.first(things)
        assert torch.allclose(
            (first.share.unsqueeze(2) * walk.each[:, :things]).sum(1), walk.after[:, things - 1], atol=1e-5
        )
    learned.save(tmp_path / "learned.safetensors")
    again = fovea.load(tmp_path / "learned.safetensors")
    assert torch.equal(again.module.weigh.weight, learned.module.weigh.weight)
    refused("average is mean or learned", timm_one, average="median")


@pytest.mark.parametrize("make", [bag, timm_one])
def test_coordinates_begin_as_they_are(make: object) -> None:
    location = make().module.location  # type: ignore[operator]
    for layer in (location.across, location.down):
        assert (float(layer.weight), float(layer.bias)) == (1, 0)
    seen = location._with_place(torch.zeros(1, 2, 3, 5))
    assert seen[0, -2, :, 0].tolist() == [-1, 0, 1]  # down
    assert seen[0, -1, 0].tolist() == [-1, -0.5, 0, 0.5, 1]


class Levels(torch.nn.Module):
    """Vectors of ones of the overview, of twos of the glimpses."""

    def forward(self, vector: Tensor, position: Tensor, level: int) -> Tensor:
        return torch.full_like(vector, level + 1)


def test_dropout_is_of_the_averaged_vector_and_of_each_alone() -> None:
    """With half of a vector dropped, what is left counts twice: numbers of a layer that copies its input."""
    net = timm_one(dropout=0.5, levels=2, glimpses=2).module.train()
    width = net.classifier.in_features
    net.classifier = torch.nn.Linear(width, width)
    net.classifier.weight.data, net.classifier.bias.data = torch.eye(width), torch.zeros(width)
    net.place = Levels()
    out = net(torch.rand(4, 1, 64, 64))
    whole = out.logits.detach().flatten().unique()
    assert whole.tolist() == pytest.approx([0, 2 * 5 / 3])  # one mask for the mean of 1, 2 and 2
    assert set(out.each[:, 0].flatten().tolist()) == {0.0, 2.0}
    assert set(out.each[:, 1:].flatten().tolist()) == {0.0, 4.0}
    net.eval()
    assert torch.allclose(net(torch.rand(4, 1, 64, 64)).logits, torch.tensor(5 / 3))


def test_several_walks_of_a_picture_in_training_alone() -> None:
    net = timm_one(samples=3, explore=1.0, levels=2, glimpses=2).module.train()
    x = torch.rand(2, 1, 64, 64)
    out = net(x)
    assert len(out.logits) == 6
    firsts = out.boxes.view(2, 3, -1, 4)[:, :, 1:]
    assert not torch.equal(firsts[:, 0], firsts[:, 1])  # drawn anew for each
    assert len(net.eval()(x).logits) == 2
    refused("explore=1.0", timm_one, samples=3)


def test_walks_of_a_picture_share_one_overview_and_are_as_walks_of_copies() -> None:
    several = timm_one(samples=3, explore=1.0, levels=3, glimpses=4).module.train()
    x, batches = torch.rand(2, 1, 128, 128), list[int]()
    several.extractor.register_forward_pre_hook(lambda _, given: batches.append(len(given[0])))
    torch.manual_seed(0)
    out = several(x)
    assert batches == [2, 12, 12]  # 2 pictures; 2 glimpses of each of 6 walks
    assert torch.equal(out.each[0, 0], out.each[2, 0])  # one overview
    copies, extent = x.repeat_interleave(3, 0), (40, 40)
    corners = torch.randint(-10, 90, (6, 2, 2))
    assert torch.equal(Pixels(x, times=3).read(corners, extent, 32), Pixels(copies).read(corners, extent, 32))
    assert Pixels(x, times=3).count == 6


def test_sharpness_is_how_sure_a_walk_may_become() -> None:
    """Of 9 logits of the length s, the best place has at most e^s / (e^s + 8)."""
    seen, vector = torch.randn(4, 8, 14, 14), torch.randn(4, 16)
    for sharpness in (1.0, 6.0):
        location = ByExcitation(8, Grid(3, 0.5), None, sharpness)
        probability = location(seen, vector)
        most = math.exp(sharpness) / (math.exp(sharpness) + 8)
        assert probability.sum(1).tolist() == pytest.approx([1] * 4)
        assert probability.max() <= most
        logits = probability.log()
        assert (logits - logits.mean(1, keepdim=True)).norm(dim=1).max() <= sharpness + 1e-4
    refused("sharpness", timm_one, sharpness=-1)


def test_batch_norm_of_the_bag_has_statistics_for_each_level() -> None:
    plain, normed = bag(), bag(norm=True)
    norms = [layer for layer in normed.module.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    convolutions = [layer for layer in plain.module.extractor.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert len(norms) == len(convolutions)
    statistics = normed.module.extractor.statistics
    assert statistics.mean.shape[:2] == (1, 2)
    normed.module.train()(torch.rand(2, 3, 224, 224))
    assert not torch.equal(statistics.mean[0, 0], statistics.mean[0, 1])
