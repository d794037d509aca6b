"""Saccader: the tables' numbers, what its cells see, where it goes, and what each stage trains."""

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.models.glimpsing import Glimpsing, Pixels
from fovea.models.saccader import Cell, Cells, CellWalk, Policy, Saccader, SaccaderOptions, build, most_probable
from fovea.networks import cost, geometry

TINY = 0.125
SIDE = 101  # 4 x 4 cells


def net_of(stage: str = "all", **options: object) -> Saccader:
    """Blocks that are not their shortcuts and statistics that are not the defaults, so that everything counts."""
    torch.manual_seed(0)
    first = Saccader(3, SaccaderOptions(TINY, side=SIDE))
    for module in first.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # a plain average
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    with torch.no_grad():
        first(torch.randn(4, 3, SIDE, SIDE))
    net = Saccader(3, SaccaderOptions(TINY, stage=stage, side=SIDE, **options))
    net.load_state_dict(first.state_dict())
    return net.eval()


def pictures(n: int = 2, side: int = SIDE) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_the_papers_parameters() -> None:
    """With 1,001 classes and running statistics counted, as TensorFlow does: its Table Supp. 1 to the last one."""
    with torch.device("meta"):
        net = Saccader(1001, SaccaderOptions())
    assert cost.parameters(net) + cost.statistics(net) == 35_583_913
    own = net.representation
    assert cost.parameters(own) + cost.statistics(own) == 20_628_393


def test_multiplications_of_the_table_do_not_grow_with_the_locations() -> None:
    """The whole picture is read whatever is asked; a step weighs 361 cells three times."""
    few, many = (cost.macs(build(10, SaccaderOptions(TINY, k)), torch.zeros(1, 3, 224, 224)) for k in (2, 30))
    assert few < many < 1.01 * few
    step = 361 * 64 * 3  # of 64 channels
    assert many - few == 28 * step


def test_cells_see_77_pixels_8_apart() -> None:
    (found,) = geometry.of_tensors(net_of("representation"), torch.zeros(1, 3, 117, 109), lambda out: [out.evidence])
    assert (found.grid, found.size, found.stride) == ((6, 5), (77, 77), (8, 8))
    assert found.region((2, 3)) == (24, 16, 24 + 77, 16 + 77)


@pytest.mark.parametrize("cell", [(0, 0), (1, 3), (3, 2)])
def test_evidence_comes_from_the_patch_alone(cell: tuple[int, int]) -> None:
    net, before = net_of("representation").double(), pictures(1).double()
    row, column = cell
    inside = (..., slice(8 * row, 8 * row + 77), slice(8 * column, 8 * column + 77))
    edited = torch.randn_like(before) * 3
    edited[inside] = before[inside]
    with torch.no_grad():
        seen, again, other = (net(one).evidence[0, :, row, column] for one in (before, edited, before * 1.1))
    assert torch.allclose(seen, again, rtol=0, atol=1e-12)
    assert not torch.allclose(seen, other, atol=1e-3)


@pytest.mark.parametrize("training", [False, True])
def test_no_cell_twice_and_the_answer_is_the_mean(training: bool) -> None:
    net = net_of().train(training)
    out = net.walk(Pixels(pictures()), 16)  # all there are
    assert all(sorted(one) == list(range(16)) for one in out.cells.tolist())
    assert torch.allclose(out.log_probability[:, -1], torch.zeros(2), atol=1e-6)  # one cell was left
    assert torch.allclose(out.logits, out.evidence.mean((2, 3)), atol=1e-5)
    few = net.eval().walk(Pixels(pictures()), 3)
    rows, columns = few.cells // 4, few.cells % 4
    each = torch.stack([few.evidence[i, :, rows[i], columns[i]].T for i in range(2)])
    assert torch.allclose(few.each, each)
    assert torch.allclose(few.after[:, 1], each[:, :2].mean(1), atol=1e-6)
    assert torch.equal(few.logits, few.after[:, -1])
    assert (few.levels, few.parents, few.glimpses) == ((2,) * 3, (-1,) * 3, 3)
    assert torch.equal(few.boxes[:, :, 0], columns * 8.0)
    assert torch.equal(few.boxes[:, :, 3], rows * 8.0 + 77)


def test_the_cell_by_hand() -> None:
    """Two cells, two channels; weights of zero, so that cells count alike at first."""
    cell = Cell(2)
    nn.init.zeros_(cell.weigh.weight)
    mixed = torch.tensor([[[1.0, 0.0], [3.0, 2.0]]])  # 1,P,C: channels' means are 2 and 1
    channels = torch.tensor([2.0, 1.0]).softmax(0)
    wanted = torch.stack([channels[0], 3 * channels[0] + 2 * channels[1]]).log_softmax(0)
    with torch.no_grad():
        found = cell(mixed, torch.zeros(1, 2, dtype=torch.bool))
        assert torch.allclose(found[0], wanted)
        cells, log_p = Policy(cell, mixed).follow(2, most_probable)
    assert cells.tolist() == [[1, 0]]
    assert torch.allclose(log_p[0], torch.stack([wanted[1], torch.tensor(0.0)]))


def test_the_memory_counts() -> None:
    """Where it was changes what it weighs: the second step is not the first one's next best."""
    mixed = torch.tensor([[[8.0, 0.0], [0.0, 5.0], [3.0, 0.0]]])
    cell = Cell(2)
    nn.init.zeros_(cell.weigh.weight)
    with torch.no_grad():
        first = cell(mixed, torch.zeros(1, 3, dtype=torch.bool))
        cells, _ = Policy(cell, mixed).follow(3, most_probable)
    assert first[0].argsort(descending=True).tolist() == [0, 2, 1]
    assert cells.tolist() == [[0, 1, 2]]  # with the first cell gone the second channel matters


def test_drawn_in_training_and_the_same_every_time_else() -> None:
    net = net_of()
    before = torch.get_rng_state()
    with torch.no_grad():
        first, second = (net(pictures()) for _ in range(2))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(first.logits, second.logits)
        torch.manual_seed(0)
        drawn = [net.train()(pictures()).cells for _ in range(4)]
        torch.manual_seed(0)
        again = net(pictures()).cells
    assert torch.equal(drawn[0], again)
    assert any(not torch.equal(drawn[0], one) for one in drawn[1:])


def test_probabilities_are_whole_in_half_precision() -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        out = net_of()(pictures())
    assert out.evidence.dtype == torch.bfloat16
    assert out.log_probability.dtype == out.policy.mixed.dtype == torch.float32


def gradient_size(module: nn.Module) -> float:
    return sum(float(one.grad.abs().sum()) for one in module.parameters() if one.grad is not None)


@pytest.mark.parametrize(
    ("stage", "options", "into_features"),
    [("all", {}, True), ("all", {"policy_into_features": False}, False), ("locations", {}, False)],
)
def test_where_the_policys_gradient_goes(stage: str, options: dict[str, bool], into_features: bool) -> None:
    net = net_of(stage, **options).train()
    net(pictures()).log_probability.sum().backward()
    assert gradient_size(net.attention) > 0 < gradient_size(net.cell)
    assert (gradient_size(net.representation) > 0) == into_features


def test_the_answers_gradient_does_not_go_into_the_policy() -> None:
    net = net_of().train()
    net(pictures()).logits.sum().backward()
    assert gradient_size(net.representation) > 0
    assert gradient_size(net.attention) == gradient_size(net.cell) == 0


def test_stages_have_the_same_parameters_and_train_their_own() -> None:
    nets = {stage: Saccader(3, SaccaderOptions(TINY, stage=stage)) for stage in ("representation", "locations", "all")}
    shapes = [{key: value.shape for key, value in net.state_dict().items()} for net in nets.values()]
    assert shapes[0] == shapes[1] == shapes[2]
    nets["locations"].load_state_dict(nets["representation"].state_dict())
    nets["all"].load_state_dict(nets["locations"].state_dict())
    trained = {
        stage: {name.partition(".")[0] for name, one in net.named_parameters() if one.requires_grad}
        for stage, net in nets.items()
    }
    assert trained["representation"] == {"representation"}
    assert trained["locations"] == {"attention", "cell"}
    assert trained["all"] == {"representation", "attention", "cell"}
    assert not nets["locations"].train().representation.training


def test_the_first_stage_answers_by_all_cells() -> None:
    out = net_of("representation")(pictures())
    assert isinstance(out, Cells)
    assert torch.equal(out.logits, out.evidence.mean((2, 3)))
    assert isinstance(net_of("representation").walk(Pixels(pictures())), CellWalk)


def test_scenes_of_other_sizes() -> None:
    """A scene twice as wide and three times as high is read at the network's side: boxes are in its own pixels."""
    net, small = net_of(), pictures(1)
    scene = Pixels(small.repeat_interleave(3, 2).repeat_interleave(2, 3))
    assert scene.size == (3 * SIDE, 2 * SIDE)
    with torch.no_grad():
        large = net.walk(scene, 4)
        read = scene.read(torch.zeros(1, 1, 2, dtype=torch.long), scene.size, SIDE)
        assert torch.equal(large.evidence, net(read).evidence)
        assert torch.equal(net(small).logits, net.walk(Pixels(small)).logits)
    row, column = large.cells // 4, large.cells % 4
    wanted = torch.stack([16 * column, 24 * row, 16 * column + 154, 24 * row + 231], 2)
    assert torch.allclose(large.boxes, wanted.float(), atol=1e-3)
    assert net(pictures(1, 120)).evidence.shape[2:] == (6, 6)  # a batch is read as it is


def test_glimpses_beyond_the_cells_are_refused() -> None:
    net = net_of()
    assert isinstance(net, Glimpsing)
    assert net.most == 16
    for glimpses in (0, 17):
        refused(rf"4 x 4: 1 to 16 glimpses; got {glimpses}", net.walk, Pixels(pictures(1)), glimpses)
    refused("at least 77 x 77 pixels", net, pictures(1, 76))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stage": "location"}, "did you mean 'locations'"),
        ({"width": 0}, "width .* above 0"),
        ({"side": 76}, "at least 77 pixels"),
        ({"side": 85, "locations": 5}, "4 cells: 1 to 4 locations; got 5"),
        ({"locations": 0}, "1 to 361 locations; got 0"),
    ],
)
def test_options_are_checked(options: dict[str, object], words: str) -> None:
    refused(words, SaccaderOptions, **{"width": TINY, **options})


def test_new_classes_keep_the_rest() -> None:
    net = net_of("locations")
    kept = net.representation.compact[0].weight.clone()
    net.reset_classifier(7)
    assert net(pictures(1)).logits.shape == (1, 7)
    assert torch.equal(net.representation.compact[0].weight, kept)
    assert not any(one.requires_grad for one in net.representation.parameters())


@pytest.mark.parametrize("stage", ["representation", "locations", "all"])
def test_explained_at_the_cells(stage: str) -> None:
    network = build(3, SaccaderOptions(TINY, 3, stage, SIDE))
    network.module.load_state_dict(net_of().state_dict())
    seen = fovea.explain(network, pictures(1), method="gradcam" if stage != "representation" else "cam")
    assert seen.grid == (4, 4)
    if stage == "representation":  # the class's evidence, cell by cell, less the last layer's bias
        with torch.no_grad():
            out = network.module.eval()(pictures(1))
        label = int(out.logits.argmax())
        bias = network.module.representation.classify.bias[label]
        assert torch.allclose(seen.values.flatten(), (out.evidence[0, label] - bias).flatten(), atol=1e-4)


def test_localized_by_proven_patches() -> None:
    from fovea.patches import look

    network = build(3, SaccaderOptions(TINY, 3, "representation", SIDE))
    found = look(network, pictures(1), method="cam")
    assert found.proven
    assert found.scales[0].side == 77
    assert found.scales[0].boxes[5].tolist() == [8, 8, 85, 85]


def test_without_batch_norm_blocks_begin_as_their_shortcuts() -> None:
    torch.manual_seed(0)
    net = Saccader(2, SaccaderOptions(0.125, 2, side=93, norm=False))
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in net.modules())
    block = net.representation.features[4]
    x = torch.rand(1, block.narrow[0].in_channels, 5, 5)
    assert torch.equal(block(x), torch.relu(block.shortcut(x[:, :, 1:4, 1:4])))
    alone, together = net.eval()(torch.ones(1, 3, 93, 93)), net.train()(torch.ones(2, 3, 93, 93))
    assert torch.allclose(alone.evidence, together.evidence[:1], atol=1e-5)  # no picture depends on its batch
