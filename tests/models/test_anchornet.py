"""AnchorNet-I and what it shares with the other media: numbers of the tables, patches, attention, decision."""

import math

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.models.anchoring import AnchorNetOutput, Attention, Branch, BranchOptions, BranchOutput, decide, output_of
from fovea.models.anchornet import AnchorNet, AnchorNetOptions
from fovea.networks import geometry


def calibrated(se: str, classes: int = 3) -> AnchorNet:
    """Float64, with batch norm statistics that are not the defaults."""
    torch.manual_seed(0)
    net = AnchorNet(classes, se).double()
    for module in net.train().modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # a plain average
    with torch.no_grad():
        for scale in (0.5, 1, 2):
            net(torch.randn(4, 3, 135, 127, dtype=torch.float64) * scale)
    return net.eval()


@pytest.fixture(scope="module")
def nets() -> dict[str, AnchorNet]:
    return {se: calibrated(se) for se in ("local", "none", "global")}


def test_the_papers_table() -> None:
    network = fovea.load("anchornet", pretrained=False, classes=1000, options={"se": "global"})
    without = sum(p.numel() for name, p in network.module.named_parameters() if "auxiliary" not in name)
    assert 1.261e6 <= without <= 1.269e6


def test_patches_are_63_95_and_111_pixels_8_apart() -> None:
    found = AnchorNet(2).geometries((224, 224))
    assert [one.size for one in found] == [(63, 63), (95, 95), (111, 111)]
    assert [one.stride for one in found] == [(8, 8)] * 3
    assert [one.grid for one in found] == [(21, 21), (17, 17), (15, 15)]
    assert found[0].region((2, 3)) == (24, 16, 24 + 63, 16 + 63)


@pytest.mark.parametrize("size", [(111, 111), (112, 118), (119, 160), (224, 301)])
def test_grids_of_any_size(size: tuple[int, int]) -> None:
    out = AnchorNet(2).eval()(torch.zeros(1, 3, *size))
    for patch, branch in zip((63, 95, 111), out.branches, strict=True):
        assert branch.evidence.shape[2:] == tuple((side - patch) // 8 + 1 for side in size)


@pytest.mark.parametrize("se", ["local", "none", "global"])
@pytest.mark.parametrize(("branch", "cell"), [(0, (3, 4)), (1, (2, 1)), (2, (1, 0)), (0, (0, 0))])
def test_evidence_comes_from_the_patch_alone(
    nets: dict[str, AnchorNet], se: str, branch: int, cell: tuple[int, int]
) -> None:
    net, picture = nets[se], torch.randn(1, 3, 135, 127, dtype=torch.float64)
    x0, y0, x1, y1 = net.geometries((135, 127))[branch].region(cell)
    edited = torch.randn_like(picture) * 3
    edited[:, :, y0:y1, x0:x1] = picture[:, :, y0:y1, x0:x1]
    with torch.no_grad():
        before, after = (net(one).branches[branch].evidence[0, :, *cell] for one in (picture, edited))
    change = float((before - after).abs().max())
    assert change > 1e-3 if se == "global" else change < 1e-12, change


@pytest.mark.parametrize("se", ["local", "none"])
def test_the_widest_patch_cropped_gives_the_same_evidence(nets: dict[str, AnchorNet], se: str) -> None:
    net, picture = nets[se], torch.randn(1, 3, 135, 127, dtype=torch.float64)
    for cell in ((0, 0), (3, 2), (1, 1)):
        x0, y0, x1, y1 = net.geometries((135, 127))[2].region(cell)
        with torch.no_grad():
            whole = net(picture).branches[2].evidence[0, :, *cell]
            alone = net(picture[:, :, y0:y1, x0:x1]).branches[2].evidence[0, :, 0, 0]
        assert torch.allclose(whole, alone, rtol=0, atol=1e-12)


def test_narrow_patches_alone_through_their_own_branch(nets: dict[str, AnchorNet]) -> None:
    net, picture = nets["local"], torch.randn(1, 3, 135, 127, dtype=torch.float64)
    for number in (0, 1):
        x0, y0, x1, y1 = net.geometries((135, 127))[number].region((2, 1))
        with torch.no_grad():
            whole = net(picture).branches[number].evidence[0, :, 2, 1]
            alone = net.branches[number](net.head(picture[:, :, y0:y1, x0:x1])).evidence[0, :, 0, 0]
        assert torch.allclose(whole, alone, rtol=0, atol=1e-12)


def test_geometry_is_followed_through_the_module(nets: dict[str, AnchorNet]) -> None:
    def pick(out: AnchorNetOutput) -> Tensor:
        return out.branches[0].evidence

    found = geometry.of(nets["local"], size=(127, 127), output=pick)
    assert found.region((4, 5)) == (40, 32, 103, 95)
    assert geometry.of(nets["global"], size=(127, 127), output=pick).everything


def test_attention_by_hand() -> None:
    """Two channels, two cells, a compacting filter of zeros: Eqs. 6 to 10 with pencil and paper."""
    attention = Attention(2, nn.Conv1d)
    nn.init.zeros_(attention.compact.weight)
    x = torch.tensor([[[1.0, 3.0], [0.0, 2.0]]])  # 1,2,2
    c = torch.tensor([2.0, 1.0]).softmax(0)  # G is even, so channels' means are 2 and 1
    s = torch.stack([1 * c[0] + 0 * c[1], 3 * c[0] + 2 * c[1]]).softmax(0)
    with torch.no_grad():
        found = attention(x)
    assert torch.allclose(found, s.unsqueeze(0))
    assert float(found.sum()) == pytest.approx(1)


@pytest.mark.parametrize("rescale", [True, False])
def test_logits_are_the_mean_of_the_activation(rescale: bool) -> None:
    torch.manual_seed(1)
    net = AnchorNet(4, form=BranchOptions(rescale=rescale)).eval()
    for branch in net(torch.randn(2, 3, 120, 120)).branches:
        assert torch.allclose(branch.activation.mean((2, 3)), branch.logits, atol=1e-6)
        assert torch.allclose(branch.attention.sum((1, 2)), torch.ones(2))
        assert branch.scale == (branch.attention[0].numel() if rescale else 1)


def test_without_attention_the_mean_of_the_evidence() -> None:
    net = AnchorNet(4, form=BranchOptions(attention=False)).eval()
    for branch in net(torch.randn(2, 3, 111, 111)).branches:
        assert branch.attention is None
        assert torch.allclose(branch.evidence.mean((2, 3)), branch.logits, atol=1e-6)


def test_auxiliary_heads_in_training_only() -> None:
    net, pictures = AnchorNet(4), torch.randn(2, 3, 111, 111)
    heads = net.train()(pictures).heads()
    assert [len(heads[name]) for name in ("branches", "auxiliary")] == [3, 3]
    heads = net.eval()(pictures).heads()
    assert [len(heads[name]) for name in ("branches", "auxiliary")] == [3, 0]


@pytest.mark.parametrize(
    ("rows", "label", "branch", "probability"),
    [  # the vote decides, and the surest of those who chose it localizes; without a majority the surest of all
        (([0.6, 0.3, 0.1], [0.01, 0.98, 0.01], [0.5, 0.1, 0.4]), 0, 0, 0.6),
        (([0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]), 2, 2, 0.8),
        (([0.4, 0.3, 0.3], [0.9, 0.05, 0.05], [0.5, 0.3, 0.2]), 0, 1, 0.9),
    ],
)
def test_votes(rows: tuple[list[float], ...], label: int, branch: int, probability: float) -> None:
    """Branches that give these probabilities to one picture."""
    found = decide([torch.tensor([[math.log(p) for p in row]]) for row in rows])
    assert (int(found.label), int(found.branch)) == (label, branch)
    assert float(found.probability) == pytest.approx(probability)


def test_the_outputs_maximum_is_the_decision() -> None:
    torch.manual_seed(2)
    branches = [BranchOutput(torch.zeros(50, 5, 1, 1), None, torch.randn(50, 5) * 3, None) for _ in range(3)]
    out = output_of(branches)
    assert torch.equal(out.logits.argmax(1), out.decision.label)
    assert torch.allclose(out.logits.softmax(1).amax(1), out.decision.probability)


def test_a_picture_too_small_is_told_the_size_needed() -> None:
    refused(r"at least 111 x 111 .* got 200 x 110", AnchorNet(2), torch.zeros(1, 3, 110, 200))
    refused("at least 111 pixels", AnchorNetOptions, side=64)
    refused("did you mean 'local'", AnchorNetOptions, se="locl")


def test_a_branch_of_any_medium() -> None:
    torch.manual_seed(0)
    branch = Branch(nn.Conv1d(3, 8, 5), (8, 4, 2), nn.Conv1d(8, 4, 1), nn.Conv1d).eval()
    seen = branch(torch.randn(2, 3, 20))
    assert seen.evidence.shape == (2, 2, 16)
    assert torch.allclose(seen.activation.mean(2), seen.logits, atol=1e-6)
