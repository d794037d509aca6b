import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from test_patches import Colors, Mean, named, squares
from typer.testing import CliRunner

import fovea
from checks import refused
from fovea import cli
from fovea.measures import patch_curves
from fovea.measures.figures import Figures
from fovea.models.glimpsing import Pixels, Scene, Walk
from fovea.networks import Network


@pytest.fixture
def localizer() -> Network:
    return named(Colors(), "colors")


@pytest.fixture
def mean() -> Network:
    return named(Mean(), "mean", layer="colors")


def measured(localizer: Network, full: Network, numbers: Sequence[int] = (1, 2), **more: Any) -> Figures:
    return fovea.measure("patch-curves", data=squares(), localizer=localizer, full=full, numbers=numbers, **more)


def test_boxes_cover_more_and_more() -> None:
    boxes = torch.tensor([[[0, 0, 2, 1], [1, 0, 3, 2], [0, 0, 0, 0]]])
    first, second, third = patch_curves.covered(boxes, (2, 4))[0].int().tolist()
    assert first == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert second == [[1, 1, 1, 0], [0, 1, 1, 0]]
    assert third == second  # a box that is missing covers nothing


def test_the_best_patch_is_enough_and_is_missed(localizer: Network, mean: Network) -> None:
    """One patch of 8 x 8 pixels is all that three of the pictures need, one of 16 x 16 the other's."""
    found = measured(localizer, mean, (1, 3))
    points = {
        (row["method"], row["kind"], row["patches"]): (row["area"], row["accuracy"])
        for row in found.rows
        if "kind" in row
    }
    area = (3 * 64 + 256) / 4 / 32**2
    assert points["anchornet", "coverage", 0] == (0, 0)  # of a black picture nothing can be said
    assert points["anchornet", "coverage", 1] == (pytest.approx(area), 0.75)
    assert points["anchornet", "masking", 0] == (0, 0.5)
    assert points["anchornet", "masking", 1] == (pytest.approx(area), 0)
    assert points["random", "coverage", 1][0] == pytest.approx(area)  # of the same sides
    assert points["l2caf", "coverage", 1][0] == pytest.approx((14 / 32) ** 2)
    for method in ("anchornet", "l2caf", "random"):
        areas = [points[method, "coverage", k][0] for k in (0, 1, 3)]
        assert areas == sorted(areas)
        assert areas == pytest.approx([points[method, "masking", k][0] for k in (0, 1, 3)])


def test_means_are_over_areas_that_all_methods_reach(localizer: Network, mean: Network) -> None:
    """The random patches reach the same 7/64 here: a triangle from 0 to the accuracy of one patch."""
    found = measured(localizer, mean, (1,))
    own = {row["method"]: row for row in found.rows if "kind" not in row}
    assert own["anchornet"]["coverage"] == pytest.approx(0.75 / 2)
    assert own["anchornet"]["masking"] == pytest.approx(0.5 / 2)
    assert "over areas of 0 to 0.109" in found.settings["mean accuracy"]


def test_batches_do_not_matter(localizer: Network, mean: Network) -> None:
    one, two = (measured(localizer, mean, (1, 2), batch=batch, seed=5) for batch in (1, 3))
    assert one.rows == two.rows
    other = measured(localizer, mean, (1, 2), seed=6)
    assert other.rows != one.rows


def test_what_is_refused(localizer: Network, mean: Network) -> None:
    refused("numbers is 1 to 10,000; got 0", measured, localizer, mean, (0, 2))
    refused("must be an AnchorNet", measured, mean, mean)


def test_the_figure(localizer: Network, mean: Network) -> None:
    found = measured(localizer, mean, (1, 2))
    coverage, masking = patch_curves.draw(found).axes
    assert [line.get_label().split()[0] for line in coverage.lines] == ["anchornet", "l2caf", "random"]
    assert list(masking.lines[0].get_ydata()) == [
        row["accuracy"] for row in found.rows if (row.get("kind"), row["method"]) == ("masking", "anchornet")
    ]


def test_the_command_needs_a_localizer_with_branches(tmp_path: Path) -> None:
    fovea.load("timm/test_resnet", pretrained=False, classes=2).save(tmp_path / "judge.safetensors")
    judge = str(tmp_path / "judge.safetensors")
    done = CliRunner().invoke(
        cli.app, ["measure", "patch-curves", "--data", str(tmp_path), "--localizer", judge, "--full", judge]
    )
    assert "must be an AnchorNet" in str(done.exception)


class First(torch.nn.Module):
    """Reads an overview, then the upper left and the lower right quarter, whatever the picture."""

    abilities, least, most = frozenset({"glimpses"}), 0, 2

    def forward(self, x: torch.Tensor, glimpses: int | None = None) -> Walk:
        return self.walk(Pixels(x), glimpses)

    def walk(self, scene: Scene, glimpses: int | None = None) -> Walk:
        height, width = scene.size
        quarters = [(0, 0, width, height), (0, 0, width // 2, height // 2), (width // 2, height // 2, width, height)]
        boxes = torch.tensor(quarters).expand(scene.count, 3, 4)
        nothing = torch.zeros(scene.count, 3, 4)
        return Walk(nothing[:, 0], nothing, nothing, boxes, (1, 2, 2), (-1, 0, 0), torch.zeros(scene.count, 2))


def test_a_rivals_glimpses_are_its_patches(localizer: Network, mean: Network) -> None:
    rival = named(First(), "first", output=lambda out: out.logits)
    found = measured(localizer, mean, (1, 2, 3), rival=rival)
    areas = {row["patches"]: row["area"] for row in found.rows if row["method"] == "first" and "kind" in row}
    assert areas == {0: 0, 1: 0.25, 2: 0.5, 3: 0.5}  # there is no third
    refused("glimpses", measured, localizer, mean, (1,), rival=mean)


def test_a_reader_sees_the_patches_alone(localizer: Network, mean: Network) -> None:
    """Of `a` the best patch is all red, so one is enough; of `d`, said to be green, it is red all the same."""
    found = measured(localizer, mean, (1, 3), net=mean)
    points = {row["patches"]: row for row in found.rows if (row["method"], row.get("kind")) == ("anchornet", "reading")}
    assert [points[k]["accuracy"] for k in (0, 1, 3)] == [0, 0.75, 0.75]
    sure = 1 / (1 + 2 * math.exp(-10))  # of a patch of one color
    assert points[1]["probability"] == pytest.approx((3 * sure + (1 - sure) / 2) / 4)
    assert points[1]["area"] == pytest.approx((3 * 64 + 256) / 4 / 32**2)
    first, *others = [row for row in found.rows if "kind" not in row]
    assert first["reading_low"] <= first["reading"] <= first["reading_high"]
    assert "reading_change" not in first
    for row in others:
        assert row["reading_change"] == pytest.approx(row["reading"] - first["reading"])
    assert [axis.get_title().split()[3] for axis in patch_curves.draw(found).axes] == ["patches"] * 2 + ["masked"]


def test_crops_that_the_network_sees_alone(localizer: Network, mean: Network) -> None:
    found = measured(localizer, mean, (1,), crops=True)
    assert [row["method"] for row in found.rows if "kind" not in row] == ["anchornet", "l2caf", "few-crops", "random"]
    (point,) = [
        row
        for row in found.rows
        if (row["method"], row.get("kind"), row.get("patches")) == ("few-crops", "coverage", 1)
    ]
    assert point["accuracy"] >= 0.5  # a crop of the color is surer than one with more black
