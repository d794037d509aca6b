"""Pictures of 64 pixels, which the localizer takes at 32: every figure below can be worked out by hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fovea
from checks import refused
from fovea.data import DataSet, Pixels, Sample, Unreadable
from fovea.measures import patch_attack, patches
from fovea.measures.attacks import Victims
from fovea.measures.figures import Figures
from fovea.models.anchoring import AnchorNetOutput, BranchOutput, output_of
from fovea.networks import Network, geometry
from fovea.networks.geometry import Geometry
from fovea.pictures import Prepare

PREPARE = Prepare((32, 32), (0.0,) * 3, (1.0,) * 3, None, "nearest")
NAMES = ("red", "green", "blue")
WEAK_STRONG = ("fgsm:0.01", "fgsm:255")


def same_colors() -> nn.Conv2d:
    layer = nn.Conv2d(3, 3, 1, bias=False)
    layer.weight.data = torch.eye(3).view(3, 3, 1, 1)
    return layer


class Colors(nn.Module):
    """Two branches with patches of 8 and 16 pixels, 4 apart: a color speaks where it fills over 0.3 of a patch.

    The small branch is surer of red and green, the large one of blue.
    """

    abilities = frozenset({"branches"})

    def __init__(self) -> None:
        super().__init__()
        self.colors = same_colors()

    def forward(self, x: Tensor) -> AnchorNetOutput:
        seen = self.colors(x)
        return output_of([self._branch(seen, 8, (50.0, 50.0, 5.0)), self._branch(seen, 16, (5.0, 5.0, 50.0))])

    @staticmethod
    def _branch(seen: Tensor, side: int, sure: tuple[float, float, float]) -> BranchOutput:
        filled = F.avg_pool2d(seen, side, 4)
        evidence = (filled - 0.3).relu() * torch.tensor(sure).view(3, 1, 1)
        return BranchOutput(evidence, None, evidence.mean((2, 3)), None)

    @property
    def proven(self) -> bool:
        return True

    def geometries(self, size: tuple[int, int]) -> tuple[Geometry, ...]:
        return geometry.of_tensors(self, torch.zeros(1, 3, *size), lambda out: [one.evidence for one in out.branches])


class Mean(nn.Module):
    """The color that there is most of: 9 multiplications a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.colors = same_colors()
        self.squares = 0  # that it was asked about

    def forward(self, x: Tensor) -> Tensor:
        self.squares += len(x)
        return 10 * self.colors(x).mean((2, 3))


def picture(color: int, box: tuple[int, int, int, int], background: tuple[int, int, int] = (0, 0, 0)) -> Pixels:
    pixels = np.full((64, 64, 3), background, dtype=np.uint8)
    x0, y0, x1, y1 = box
    pixels[y0:y1, x0:x1] = np.eye(3, dtype=np.uint8)[color] * 255
    return Pixels(pixels)


def squares() -> DataSet:
    """Red on a faint green that fills the rest; green in a corner; a large blue one; red, but said to be green."""
    samples = (
        Sample("a", 0, picture(0, (16, 32, 32, 48), (0, 51, 0)), ((16, 32, 32, 48),)),
        Sample("b", 1, picture(1, (0, 0, 16, 16)), ((0, 0, 16, 16),)),
        Sample("c", 2, picture(2, (32, 0, 64, 32))),
        Sample("d", 1, picture(0, (16, 32, 32, 48)), ((0, 0, 8, 8), (60, 60, 64, 64))),
    )
    return DataSet("squares", samples, NAMES)


def named(module: nn.Module, name: str, **more: Any) -> Network:
    return Network(module.eval(), PREPARE, NAMES, name=name, **more)


@pytest.fixture
def localizer() -> Network:
    return named(Colors(), "colors")


@pytest.fixture
def mean() -> Network:
    return named(Mean(), "mean", layer="colors")


def measured(localizer: Network, net: Network, data: DataSet | None = None, **more: Any) -> Figures:
    return fovea.measure("patches", net, data or squares(), localizer=localizer, full=net, **more)


def sensitivity(localizer: Network, net: Network, data: DataSet | None = None, **more: Any) -> Figures:
    return fovea.measure("patch-sensitivity", net, data or squares(), localizer=localizer, **more)


def of_kind(found: Figures, kind: str, **wanted: Any) -> Mapping[str, Any]:
    (row,) = [row for row in found.rows if row["kind"] == kind and wanted.items() <= row.items()]
    return row


def test_patches_against_whole_pictures(localizer: Network, mean: Network) -> None:
    """A whole picture of `a` is mostly green. 3 of 49 cells are looked at of 8 pixels, 2 of 25 of 16 pixels."""
    found = measured(localizer, mean)
    full, small, large, overall = (of_kind(found, "patches", scale=one) for one in ("full", "8", "16", "overall"))
    assert [one["top1"] for one in (full, small, large, overall)] == pytest.approx([0.5, 2 / 3, 1, 0.75])
    assert [one["images"] for one in (full, small, large, overall)] == [4, 3, 1, 4]
    # small ones that share half of their pixels have an IoU of 1/3, large ones 4 pixels apart 0.6
    assert [one["patches"] for one in (full, small, large, overall)] == [None, 3, 1, 2.5]
    assert [one["macs"] for one in (full, small, large, overall)] == [9 * 32**2, 27 * 8**2, 9 * 16**2, 1872]
    assert [one["macs_ratio"] for one in (full, small, large, overall)] == [1, 27 / 144, 0.25, 1872 / 9216]
    assert overall["macs_with_localizer"] == 1872 + 9216  # the localizer has the same layer on the whole picture
    assert overall["ratio_with_localizer"] == pytest.approx(1 + 1872 / 9216)
    assert overall["low"] <= overall["top1"] <= overall["high"]
    assert overall["top5"] is None  # of three classes
    assert of_kind(found, "patches", scale="full, patch network")["top1"] == full["top1"]


def test_where_the_localizer_looks(localizer: Network, mean: Network) -> None:
    """Centers are 8 of the user's pixels apart from 8 on: 4 of 49 lie in the box of `a`, 1 in that of `b`."""
    found = measured(localizer, mean)
    small, large, overall = (of_kind(found, "localizer", scale=one) for one in ("8", "16", "overall"))
    assert [one["share"] for one in (small, large, overall)] == [0.75, 0.25, 1]
    assert [one["top1"] for one in (small, large, overall)] == [0.75, 0.25, 0.75]  # a tie is not a hit
    assert (small["centre_in_box"], small["chance"]) == pytest.approx((2 / 3, 5 / 49 / 3))
    assert (large["centre_in_box"], large["chance"]) == (None, None)  # `c` has no box
    assert (overall["centre_in_box"], overall["chance"]) == pytest.approx((2 / 3, 5 / 49 / 3))


def test_localized_against_rescaled(localizer: Network, mean: Network) -> None:
    """Scaling a picture down leaves the color that there is most of."""
    found = measured(localizer, mean)
    rows = [row for row in found.rows if row["kind"] == "rescaled"]
    assert [(row["scale"], row["pictures"], row["images"]) for row in rows] == [
        ("8", "its own", 3),
        ("16", "its own", 1),
        ("8", "all", 4),
        ("16", "all", 4),
    ]
    assert [row["localised"] for row in rows] == pytest.approx([2 / 3, 1, 0.75, 0.5])
    assert [row["rescaled"] for row in rows] == pytest.approx([1 / 3, 1, 0.5, 0.5])
    assert [row["rescaled_full"] for row in rows] == pytest.approx([1 / 3, 1, 0.5, 0.5])


def test_rescaled_pictures_stay_between_black_and_white(localizer: Network) -> None:
    board = torch.tensor([0.0, 1.0]).repeat_interleave(16).expand(1, 3, 32, 32)
    small = patches.rescaled(localizer, board, 8)
    assert small.shape == (1, 3, 8, 8)
    assert (float(small.min()), float(small.max())) == (0, 1)
    assert float(small.mean()) == pytest.approx(0.5, abs=1e-3)


def test_batches_do_not_matter_and_what_cannot_be_read_is_told(localizer: Network, mean: Network) -> None:
    data = squares()
    cut = Unreadable("cut short")
    bad = (Sample("x", 0, cut), Sample("y", 0, data.samples[0].source, cut))
    mixed = replace(data, samples=(bad[0], *data.samples[:3], bad[1], data.samples[3]))
    seen: list[tuple[int, int]] = []
    whole = measured(localizer, mean, data)
    for batch in (1, 2, 16):
        found = measured(localizer, mean, mixed, batch=batch, progress=lambda *now: seen.append(now))
        assert found.rows == whole.rows
        assert found.skipped == [("x", "cut short"), ("y", "cut short")]
        assert seen[-1] == (6, 6)
    with pytest.raises(fovea.BadPicture, match="no picture of squares could be measured: cut short"):
        measured(localizer, mean, replace(data, samples=bad))


def test_sensitivity_agrees_with_the_table(localizer: Network, mean: Network) -> None:
    table = measured(localizer, mean)
    grid = sensitivity(localizer, mean)
    assert len(grid.rows) == 3 * 4 * 5
    for scale in ("8", "16", "overall"):
        (row,) = [r for r in grid.rows if (r["scale"], r["share"], r["overlap"]) == (scale, 0.05, 0.5)]
        same = of_kind(table, "patches", scale=scale)
        for key in ("images", "patches", "top1", "top5", "macs", "macs_ratio", "ratio_with_localizer"):
            assert row[key] == pytest.approx(same[key]), key


def test_a_patch_is_classified_once_whatever_picks_it(localizer: Network) -> None:
    """T = 1 takes the best cells as they come: 15 of 49 and, by K, 4 of 25 hold what the smaller share picks."""
    one = named(Mean(), "mean")
    found = sensitivity(localizer, one, shares=(0.05, 0.3, 0.05), overlaps=(1.0,))
    asked = one.module.squares - 1 - 3  # to see how many outputs it has, and to count multiplications
    assert asked == 3 * 15 + 4
    assert [row["patches"] for row in found.rows if row["scale"] == "8"] == [3, 15]


def test_sensitivity_of_forced_branches(localizer: Network, mean: Network) -> None:
    found = sensitivity(localizer, mean, shares=(0.05,), overlaps=(0.5,), forced=True)
    assert [(row["scale"], row["images"], row["top1"]) for row in found.rows] == [("8", 4, 0.75), ("16", 4, 0.5)]
    only = replace(squares(), samples=squares().samples[:2])
    empty = [row for row in sensitivity(localizer, mean, only).rows if row["scale"] == "16"]
    assert all((row["images"], row["top1"], row["macs"]) == (0, None, None) for row in empty)


def test_attacks_on_the_localizer(localizer: Network, mean: Network) -> None:
    """A step that nobody sees changes nothing here; one of 255 leaves no trace of the right color."""
    found = fovea.measure("patch-attack", mean, squares(), localizer=localizer, full=mean, attacks=WEAK_STRONG)
    table = measured(localizer, mean)

    def top1(net: str, scale: str, cut: str | None) -> list[float]:
        own = [row for row in found.rows if (row["net"], row["scale"]) == (net, scale)]
        return [row["top1"] for row in own if cut is None or row["cut"] in (None, cut)]

    assert top1("colors", "overall", None) == [0.75, 0.75, 0]
    assert top1("mean", "8", "attacked")[:2] == [of_kind(table, "patches", scale="8")["top1"]] * 2
    patched = [row for row in found.rows if row["net"] == "mean" and row["localizer"]]
    overall = [row for row in patched if row["scale"] == "overall"]
    assert [row["strength"] for row in overall] == [0, 0.01, 255, 0.01, 255]
    assert overall[0]["drop"] == 0
    assert "drop_low" not in overall[0]  # nothing was done
    assert overall[1]["drop"] == overall[1]["drop_low"] == overall[1]["drop_high"] == 0
    assert overall[2]["drop"] == overall[0]["top1"] - overall[2]["top1"] > 0
    assert overall[2]["drop_low"] <= overall[2]["drop"] <= overall[2]["drop_high"]
    assert all("drop_low" not in row for row in patched if row["scale"] == "8")  # of other pictures than before
    whole = [row["top1"] for row in found.rows if row["net"] == "mean" and not row["localizer"]]
    assert whole == [0.5, 0.5, 0]
    assert found.rows[-1]["attack"] == "fgsm on mean"


def test_one_attack_on_both_where_no_gradient_is_followed(localizer: Network, mean: Network) -> None:
    """Turned into a picture of one color, no picture is what it was; only the first is red."""

    class Red:
        name, strength, steps = "texture", 3.0, 1

        def __call__(self, victims: Victims, tell: object) -> Tensor:
            return torch.tensor([255.0, 0, 0]).view(3, 1, 1).expand_as(victims.pixels)

    found = fovea.measure("patch-attack", mean, squares(), localizer=localizer, full=mean, attacks=[Red()])
    attacked = [row for row in found.rows if row["attack"] == "texture" and row["scale"] == "overall"]
    assert [(row["net"], row["cut"], row["top1"]) for row in attacked] == [
        ("mean", "attacked", 0.25), ("colors", None, 0.25), ("mean", None, 0.25),
    ]  # fmt: skip
    sheet = patch_attack.draw(found)
    assert len(found.extra) == 4
    assert sheet.height > 4 * 300  # a row for each picture


def test_what_is_refused(localizer: Network, mean: Network) -> None:
    refused(r"must be an AnchorNet.*mean has no branches", measured, mean, mean)
    with pytest.raises(fovea.BadChoice, match="knows other classes than squares: cat, dog, cow … instead of red"):
        measured(localizer, replace(mean, labels=("cat", "dog", "cow")))
    refused("at least one share", sensitivity, localizer, mean, shares=())
    refused(r"overlaps is 0 to 1", sensitivity, localizer, mean, overlaps=(1.5,))
    with pytest.raises(fovea.BadChoice, match=r"-1"):
        fovea.measure("patch-attack", mean, squares(), localizer=localizer, full=mean, attacks=["fgsm:-1"])


def test_robustness_of_an_anchornet() -> None:
    """Its logits are read, and a gradient flows back to the pixels."""
    torch.manual_seed(0)
    net = fovea.load("anchornet", pretrained=False, classes=2, options={"side": 119})
    texture = fovea.load("timm/test_resnet", pretrained=False)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 20, 20, 3), dtype=np.uint8).repeat(6, 1).repeat(7, 2)
    data = DataSet("noise", tuple(Sample(str(i), i, Pixels(one)) for i, one in enumerate(pixels)), ("0", "1"))
    found = fovea.measure("robustness", net, data, attacks=["fgsm:2", "texture:1"], texture_net=texture)
    assert [row["attack"] for row in found.rows] == ["none", "fgsm", "texture"]
    plain, attacked, _ = (np.asarray(one.image, dtype=int) for one in found.extra[0])
    inner = (plain > 2) & (plain < 253)
    moved = np.abs(attacked - plain)[inner]
    assert moved.max() == 2
    assert (moved == 2).mean() > 0.9
