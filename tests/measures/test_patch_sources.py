"""Pictures of 20 x 10 with a true box each: every figure can be worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

import fovea
from checks import refused
from fovea import BadChoice
from fovea.data import DataSet, Pixels, Sample, Unreadable
from fovea.measures import patch_sources
from fovea.patches import Opened, Patches, Scored, Shape

BLACK = Pixels(np.zeros((10, 20), dtype=np.uint8))


@pytest.fixture
def data() -> DataSet:
    samples = (
        Sample("a", 0, BLACK, ((0.0, 0.0, 10.0, 10.0),)),
        Sample("b", 0, BLACK, ((0.0, 0.0, 2.0, 10.0), (1.0, 0.0, 4.0, 10.0))),  # together 4 of 20 columns
        Sample("no box", 0, BLACK),
        Sample("torn", 0, Unreadable("torn apart"), ((0.0, 0.0, 1.0, 1.0),)),
    )
    return DataSet("halves", samples, ("thing",))


def two_patches(images: Sequence[Image.Image]) -> list[Scored]:
    """The left half, then a little at the right."""
    return [[((0, 0, 10, 10), 0.9), ((18, 0, 20, 10), 0.1)] for _ in images]


def test_figures_by_hand(data: DataSet) -> None:
    told: list[tuple[int, int]] = []
    source = Opened("two:/home/someone/net.pth,count=2", "two", None, two_patches, Shape(least=0))
    found = fovea.measure(
        "patch-sources", data=data, source=[source, "whole"], batch=1, progress=lambda *now: told.append(now)
    )
    two, whole = found.rows
    assert (two["kind"], two["source"], two["images"]) == ("two", "two:net.pth,count=2", 2)
    assert two["patches"] == 2
    assert two["centre_in_box"] == 0.5  # (5, 5) is in a's box, and in none of b's
    assert two["centre_in_box_all"] == 0.25  # (19, 5) is in none
    assert two["chance"] == pytest.approx((10 / 20 + 4 / 20) / 2)
    assert two["mean_area"] == pytest.approx((10 / 20 + 2 / 20) / 2)
    assert two["iou"] == pytest.approx((1 + 3 / 10) / 2)
    assert two["ms_per_picture"] > 0
    assert whole["centre_in_box"] == 0  # (10, 5): a's box ends before it
    assert whole["mean_area"] == 1
    assert whole["iou"] == pytest.approx((10 / 20 + 3 / 20) / 2)
    assert found.skipped == [("torn", "torn apart")]
    assert told[-1] == (3, 3)


def test_data_without_boxes_and_no_source_are_refused(data: DataSet) -> None:
    with pytest.raises(BadChoice, match="no boxes"):
        fovea.measure("patch-sources", data=DataSet("bare", data.samples[2:3], ("thing",)), source=["whole"])
    refused("no patch source", fovea.measure, "patch-sources", data=data)


def test_centers_on_the_far_edge_are_outside() -> None:
    patches = Patches(((0.0, 0.0, 4.0, 4.0), (2.0, 2.0, 6.0, 6.0)), (1.0, 1.0))
    assert patch_sources.centers_inside(patches, [(0.0, 0.0, 4.0, 4.0)]).tolist() == [True, False]
