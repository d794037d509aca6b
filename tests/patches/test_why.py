from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.basics import BadChoice, BadNetwork
from fovea.data import DataSet, Pixels, Sample, Unreadable
from fovea.models.anchoring import AnchorNetOutput, BranchOutput, output_of
from fovea.networks import Network
from fovea.networks.geometry.cells import Geometry
from fovea.patches import LocalizeOptions, reasons, why
from fovea.pictures import Prepare

SIDE = 8


class Quarters(nn.Module):
    """Two branches over the quarters of a picture: light speaks for 'light' in the one, dark for 'dark' in the other.

    The evidence of a quarter is its mean shade from 0 to 1 for 'light', and 1 less that for 'dark', times a weight.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([[3.0, 1.0], [1.0, 3.0]]))  # branch, class

    proven = True
    abilities = frozenset({"branches"})

    def geometries(self, size: tuple[int, int]) -> tuple[Geometry, ...]:
        half = size[0] // 2
        boxes = torch.tensor([[x, y, x + half, y + half] for y in (0, half) for x in (0, half)])
        return (Geometry((), (2, 2), size, boxes),) * 2

    def forward(self, x: torch.Tensor) -> AnchorNetOutput:
        light = nn.functional.avg_pool2d(x[:, :1], x.shape[2] // 2)[:, 0]  # N,2,2
        shades = torch.stack([light, 1 - light], 1)  # N,classes,2,2
        branches = []
        for weight in self.weights:
            evidence = shades * weight.view(-1, 1, 1)
            branches.append(BranchOutput(evidence, None, evidence.mean((2, 3)), None))
        return output_of(branches)


@pytest.fixture
def network() -> Network:
    transform = Prepare((SIDE, SIDE), (0.0,), (1.0,), None, "nearest")
    return Network(Quarters(), transform, ("light", "dark"), name="quarters", output=lambda out: out.logits)


def sample(name: str, label: int, *quarters: int) -> Sample:
    """A picture of twice the network's size, with these shades in reading order."""
    values = np.array(quarters, np.uint8).reshape(2, 2).repeat(SIDE, 0).repeat(SIDE, 1)
    return Sample(name, label, Pixels(values))


@pytest.fixture
def data() -> DataSet:
    samples = (
        sample("bright", 0, 255, 0, 204, 255),
        sample("dim", 0, 0, 153, 0, 0),
        sample("night", 1, 0, 0, 0, 51),
        sample("moon", 1, 0, 0, 204, 0),
        sample("dusk", 1, 102, 102, 102, 102),
    )
    return DataSet("shades", samples, ("light", "dark"))


def test_patches_of_a_class_and_of_what_is_confused_with_it(network: Network, data: DataSet) -> None:
    """By hand: the lightest quarter of each picture, times 3 in the branch that gives 'light' most."""
    found = why.for_class(network, data, "light", most=2)
    assert [(one.sample.name, round(one.evidence, 4)) for one in found.representative] == [("bright", 3), ("dim", 1.8)]
    assert [(one.sample.name, round(one.evidence, 4)) for one in found.confusing] == [("moon", 2.4), ("dusk", 1.2)]
    assert found.pictures == (2, 3)
    assert found.confusing[0].true == "dark"
    assert found.confusing[0].box == (0, SIDE, SIDE, 2 * SIDE)  # the lower left quarter, in the picture's own pixels
    assert np.asarray(found.confusing[0].crop()).mean() == 204


def test_the_branch_may_be_named(network: Network, data: DataSet) -> None:
    network.module.geometries = lambda size: (  # type: ignore[method-assign,assignment]
        Quarters.geometries(network.module, size)[0],  # type: ignore[arg-type]
        Geometry((), (2, 2), size, torch.tensor([[0, 0, 5, 5]] * 4)),
    )
    found = why.for_class(network, data, "light", most=1, options=LocalizeOptions(branch=5))
    assert [one.evidence for one in found.representative] == [1]  # the second branch weighs light by 1
    with pytest.raises(BadChoice, match="there are: 4, 5"):
        why.for_class(network, data, "light", options=LocalizeOptions(branch=7))


def test_a_picture_as_each_branch_saw_it(network: Network, data: DataSet) -> None:
    """Half light, half dark: the first branch takes it for light, the second for dark."""
    half = Image.fromarray(np.array([[255, 0], [0, 255]], np.uint8).repeat(SIDE, 0).repeat(SIDE, 1))
    (found,) = why.for_pictures(network, half, "dark", data)
    assert [(one.label, one.right) for one in found.branches] == [("light", False), ("dark", True)]
    share = float(torch.tensor([1.5, 0.5]).softmax(0)[0])
    assert [one.probability for one in found.branches] == pytest.approx([share, share])
    first, second = found.branches
    assert first.patch.box == (0, 0, SIDE, SIDE)
    assert second.patch.box == (SIDE, 0, 2 * SIDE, SIDE)
    assert first.mistaken_for is not None
    assert (first.mistaken_for.sample.name, first.mistaken_for.true) == ("bright", "light")
    assert second.mistaken_for is None
    assert why.for_pictures(network, half)[0].branches[0].right is None


def test_pictures_on_which_branches_disagree(network: Network, data: DataSet) -> None:
    """Of shade s the first branch says light where 3s > 1 - s, the second where s > 3(1 - s): between 1/4 and 3/4."""
    broken = Sample("broken", 0, Unreadable("broken is cut short"))
    found = why.disagreements(network, replace(data, samples=(*data.samples, broken)))
    assert found.skipped == (("broken", "broken is cut short"),)
    assert [one.name for one in found] == ["dusk", "bright"]  # shades 0.4 and 0.7: wrong by 1.2 - 0.6, by 0.9 - 0.7
    dusk, bright = found
    assert [one.right for one in bright.branches] == [True, False]
    assert [one.right for one in dusk.branches] == [False, True]
    assert dusk.branches[0].mistaken_for is not None


def test_right_and_wrong_are_told_by_more_than_color(network: Network, data: DataSet, tmp_path: Path) -> None:
    row = why.disagreements(network, data).save(tmp_path, files=True)[0]
    pixels = {color for _, color in Image.open(tmp_path / row["files"]["figure"]).getcolors(1 << 20)}
    assert {tuple(bytes.fromhex(ink[1:])) for ink in (reasons.RIGHT, reasons.WRONG)} <= pixels
    assert [one["right"] for one in row["branches"]] == [False, True]
    tick, cross = Image.new("RGB", (60, 60)), Image.new("RGB", (60, 60))
    reasons._mark(tick, True, reasons.RIGHT)
    reasons._mark(cross, False, reasons.RIGHT)
    assert tick.tobytes() != cross.tobytes()


def test_any_network_tells_what_speaks_for_a_class(
    pooled: nn.Module, photographs: Path, made: Callable[..., Path]
) -> None:
    data = fovea.data.open_data(made("folder"))
    network = fovea.wrap(pooled, Prepare((24, 24)), ["cat", "dog", "emu", "fox", "gnu"])
    found = why.for_class(network, data, "dog", most=1)
    assert (found.pictures, len(found.representative), len(found.confusing)) == ((2, 2), 1, 1)
    assert "cam at" in found.source
    assert "may see the whole picture" in found.source
    with pytest.raises(BadChoice, match="do not compare"):
        why.for_class(network, data, "dog", options=LocalizeOptions(method="l2caf"))
    with pytest.raises(BadNetwork, match="no branches"):
        why.for_pictures(network, photographs / "chelsea.png")


def test_wrong_choices(network: Network, data: DataSet, tmp_path: Path) -> None:
    with pytest.raises(BadChoice, match="did you mean 'light'"):
        why.for_class(network, data, "ligth")
    with pytest.raises(BadChoice, match="no picture of 'dark'"):
        why.for_class(network, data.only([0]), "dark")
    with pytest.raises(BadChoice, match="most is 1 to 10,000; got 0"):
        why.for_class(network, data, "light", most=0)
    ((_, reason),) = why.for_pictures(network, tmp_path / "none.png").skipped
    assert "no file" in reason


def test_a_real_network(photographs: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = fovea.load("anchornet", pretrained=False, classes=3, options={"side": 112})
    reports = why.for_pictures(network, photographs / "chelsea.png", "0")
    (report,) = reports
    assert [one.side for one in report.branches] == [63, 95, 111]
    for one in report.branches:
        x0, y0, x1, y1 = one.patch.box  # the photograph is 451 x 300, squashed or cropped into 112 x 112
        assert 0 <= x0 < x1 <= 451
        assert 0 <= y0 < y1 <= 300
    (row,) = reports.save(tmp_path, files=True)
    assert (tmp_path / row["files"]["figure"]).is_file()
