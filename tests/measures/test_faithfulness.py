import math
import os
from functools import partial

import numpy as np
import pytest
import torch
from made_maps import Known
from torch import Tensor, nn

import fovea
from checks import left_as_found, refused
from fovea.data import DataSet, Pixels, Sample, open_data
from fovea.heatmaps import names
from fovea.measures.curves import area_under, best, curve, kind_of, places
from fovea.measures.faithfulness import draw
from fovea.networks import filling
from fovea.pictures import Prepare

measure = partial(fovea.measure, "faithfulness")
SURE, UNSURE = 1 / (1 + math.exp(-6)), 1 / (1 + math.exp(6))  # the answer to a white square, and to a black one


class Square(nn.Module):
    """The class is decided by one square, rows 4 to 11 and columns 8 to 15 of 24 x 24: a ninth of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.AvgPool2d(2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.dropout(self.cells(x))[:, 0, 2:6, 4:8].mean((1, 2))
        return torch.stack([torch.zeros_like(inside), 12 * inside - 6], 1)


def square_of(value: int) -> np.ndarray:
    pixels = np.full((24, 24, 3), 90, dtype=np.uint8)
    pixels[4:12, 8:16] = value
    return pixels


def held(*pictures: tuple[np.ndarray, int]) -> DataSet:
    samples = (Sample(f"{i}.png", label, Pixels(pixels)) for i, (pixels, label) in enumerate(pictures))
    return DataSet("squares", tuple(samples), ("no", "yes"))


@pytest.fixture
def net() -> fovea.Network:
    return fovea.wrap(Square().eval(), Prepare((24, 24), (0.0,) * 3, (1.0,) * 3, None), ("no", "yes"), layer="cells")


def test_the_areas_of_the_exact_map_its_reverse_and_the_control(net: fovea.Network) -> None:
    """With 9 steps the square is gone after the first, so every area can be worked out by hand."""
    kinds = ("insertion:black", "deletion", "coverage", "masking")
    found = measure(
        net, held((square_of(255), 1)), method=[Known("exact"), Known("reversed", -1.0), "random"], kinds=kinds, steps=9
    )
    exact, reverse, control = found.rows[:3]
    early, late = 1 / 18 + 8 / 9 * SURE, 1 / 18 + 8 / 9 * UNSURE
    assert [exact[kind] for kind in ("insertion", "deletion")] == pytest.approx([early, late])
    assert [exact[kind] for kind in ("coverage", "masking")] == pytest.approx([1 / 18 + 8 / 9, 1 / 18])
    assert [reverse[kind] for kind in ("insertion", "deletion")] == pytest.approx([late, early])
    for kind in ("insertion", "coverage"):
        assert reverse[kind] < control[kind] < exact[kind]
    for kind in ("deletion", "masking"):
        assert exact[kind] < control[kind] < reverse[kind]


def test_an_interval_is_over_pictures(net: fovea.Network) -> None:
    """Of pictures that are all alike it is a point; of a square seen and none to see it spans both."""
    same = measure(net, held(*[(square_of(255), 1)] * 3), method=[Known("exact")], kinds=["coverage"], steps=9).rows[0]
    assert same["coverage_low"] == same["coverage_high"] == pytest.approx(same["coverage"])
    mixed = measure(
        net, held((square_of(255), 1), (square_of(0), 1)), method=[Known("exact")], kinds=["coverage"], steps=9
    )
    row = mixed.rows[0]
    ends = (0, same["coverage"])
    assert (row["coverage_low"], row["coverage_high"]) == pytest.approx(ends)
    assert row["coverage"] == pytest.approx(sum(ends) / 2)


def test_the_ends_of_the_curves(net: fovea.Network) -> None:
    """One picture in two is right: its square is white and the other's is black, and both are called 'yes'."""
    data = held((square_of(255), 1), (square_of(0), 1))
    found = measure(net, data, method=["cam", "random"], steps=4, true_class=True)
    for row in found.rows:
        kind, area = row.get("kind"), row.get("area")
        if (kind, area) in [("coverage", 1), ("masking", 0), ("insertion", 1), ("deletion", 0)]:
            assert row["accuracy"] == 0.5
            assert row["probability"] == pytest.approx((SURE + UNSURE) / 2)
        if (kind, area) in [("coverage", 0), ("masking", 1), ("deletion", 1)]:
            assert row["accuracy"] == 0
            assert row["probability"] == pytest.approx(UNSURE)
    assert len(found.rows) == 2 + 2 * 4 * 5
    assert found.settings["class"] == "the true one"


def test_the_class_followed_is_the_first_unless_the_true_one_is_asked_for(net: fovea.Network) -> None:
    wrong = held((square_of(0), 1))
    first, true = (
        measure(net, wrong, method=["random"], kinds=["deletion"], steps=2, true_class=one).rows[1]
        for one in (False, True)
    )
    assert (first["area"], first["probability"]) == (0, pytest.approx(SURE))
    assert (true["area"], true["probability"]) == (0, pytest.approx(UNSURE))


def test_batches_do_not_matter_and_the_seed_does(net: fovea.Network) -> None:
    data = held(*((square_of(value), 1) for value in (255, 200, 150, 100, 50)))
    seen: list[tuple[int, int]] = []
    one = measure(net, data, method=["random", "cam"], steps=3, batch=1)
    two = measure(net, data, method=["random", "cam"], steps=3, batch=4, progress=lambda *now: seen.append(now))
    other = measure(net, data, method=["random"], steps=3, seed=1)
    assert [row["method"] for row in one.rows[:2]] == ["random", "cam"]
    for a, b in zip(one.rows, two.rows, strict=True):
        assert a == pytest.approx(b)
    assert other.rows[0] != one.rows[0]
    assert seen[-1] == (40, 40)  # 5 pictures, 2 methods, 4 kinds
    assert seen == sorted(seen)


def test_every_method_can_be_measured_and_the_network_is_left_as_found(pooled: nn.Module) -> None:
    net = fovea.wrap(pooled.train(), Prepare((24, 24)), 5)
    noisy = np.random.default_rng(0).integers(0, 255, (2, 24, 24, 3), dtype=np.uint8)
    data = DataSet("noise", tuple(Sample(str(i), i, Pixels(one)) for i, one in enumerate(noisy)))
    with left_as_found(pooled):
        found = measure(net, data, method=[*names(), "random"], steps=2)
    measured = [*(name for name in names() if "rollout" not in name), "random"]
    assert [row["method"] for row in found.rows[: len(measured)]] == measured
    assert ["rollout" in words for words in found.warnings] == [True]
    for row in found.rows[: len(measured)]:
        assert all(0 <= row[kind] <= 1 for kind in ("insertion", "deletion", "coverage", "masking"))


def test_equal_values_keep_their_reading_order() -> None:
    rows = torch.tensor([[[1.0, 1.0], [2.0, 2.0]], [[7.0, 7.0], [7.0, 7.0]]])
    assert places(rows, 2, 2).tolist() == [[[2, 3], [0, 1]], [[0, 1], [2, 3]]]
    constant = torch.full((1, 3, 3), 0.1)  # interpolated, tenths would differ in their last bits
    assert places(constant, 10, 10).flatten().tolist() == list(range(100))


def test_blank_maps_are_counted(net: fovea.Network) -> None:
    found = measure(
        net, held((square_of(255), 1)), method=[Known("nothing", 0.0), Known("exact")], kinds=["coverage"], steps=2
    )
    assert [row["blank"] for row in found.rows[:2]] == [1, 0]


def test_the_best_pixels_are_as_many_as_asked_for() -> None:
    masks = best(places(torch.rand(2, 3, 3), 6, 6), np.array([0, 0.25, 1]))
    assert masks.flatten(2).sum(2).tolist() == [[0, 9, 36]] * 2
    assert bool((masks[:, 1] <= masks[:, 2]).all())


def test_masks_may_come_from_boxes(net: fovea.Network) -> None:
    """The square's own box answers, another does not; what is not shown is black unless told otherwise."""
    tensors = torch.full((1, 3, 24, 24), 1.0)
    masks = torch.zeros(1, 3, 24, 24, dtype=torch.bool)
    masks[0, 0, 4:12, 8:16] = True
    masks[0, 1, 12:, :] = True
    found = curve(net, tensors, torch.tensor([1]), masks, batch=2)
    assert found.shown[0] == pytest.approx([1 / 9, 1 / 2, 0])
    assert found.probability[0] == pytest.approx([SURE, UNSURE, UNSURE])
    assert found.right.tolist() == [[True, False, False]]
    assert curve(net, tensors, torch.tensor([1]), masks, torch.ones(1)).right.all()
    with pytest.raises(fovea.BadChoice, match=r"masks are N,S,H,W of bools, here 1,S,24,24; got \(1, 3, 24, 12\)"):
        curve(net, tensors, torch.tensor([1]), masks[..., :12])


def test_what_fills_the_rest(net: fovea.Network) -> None:
    tensors = torch.rand(2, 3, 24, 24)
    gray = fovea.wrap(net.module, Prepare((24, 24), (0.5,) * 3, (0.25,) * 3), net.labels)
    assert filling("black", gray, tensors).unique().tolist() == [-2]
    assert filling("mean", gray, tensors).unique().tolist() == [0]
    blurred = filling("blur", gray, tensors)
    assert blurred.shape == tensors.shape
    assert blurred.std() < 0.5 * tensors.std()
    assert float(blurred.mean()) == pytest.approx(float(tensors.mean()), abs=0.01)


def test_the_area_is_the_trapezoid_rules() -> None:
    assert area_under(np.array([0.0, 1.0, 0.5]), np.array([0.0, 0.5, 1.0])) == pytest.approx(0.25 + 0.375)


def test_wrong_names_are_told(net: fovea.Network) -> None:
    data = held((square_of(255), 1))
    refused("no method 'randm'; did you mean 'random'", measure, net, data, method=["randm"])
    refused("no kind of curve 'coverge'; did you mean 'coverage'", kind_of, "coverge")
    refused("no filling 'blak'; did you mean 'black'", kind_of, "deletion:blak")
    refused("each once", measure, net, data, method=["random"], kinds=["deletion", "deletion:black"])
    refused("steps is 2 to 10,000; got 1", measure, net, data, method=["random"], steps=1)
    found = measure(net, held((square_of(255), 7)), method=["random"])
    assert "does not know all classes of squares, as '7': by the class that the network predicts" in found.warnings[0]


def test_pictures_without_an_answer_are_left_out(net: fovea.Network) -> None:
    class Doubtful(Square):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) / (x.mean((1, 2, 3)) > 0.2).unsqueeze(1)

    doubtful = fovea.wrap(Doubtful().eval(), net.transform, net.labels, "cells")
    data = held((np.zeros((24, 24), np.uint8), 1), (square_of(255), 1))
    found = measure(doubtful, data, method=["random"], kinds=["coverage"], steps=2)
    assert found.rows[0]["images"] == 1
    assert found.skipped == [("0.png", "the network's output is not a number")]


def test_the_figure_has_a_dashed_control_and_labeled_axes(net: fovea.Network) -> None:
    found = measure(
        net, held((square_of(255), 1)), method=[Known("exact"), "random"], kinds=["insertion", "masking"], steps=3
    )
    insertion, masking = draw(found).axes
    assert insertion.get_ylabel() == "mean probability of the class"
    assert masking.get_ylabel() == "top-1 accuracy"
    assert "masked" in masking.get_xlabel()
    exact, control = masking.get_lines()
    assert (exact.get_linestyle(), control.get_linestyle()) == ("-", "--")
    assert control.get_label().startswith("random")


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the pack imagenet-val-3k")
def test_real_maps_beat_the_control(lite0: fovea.Network) -> None:
    data = open_data("imagenet-val-3k").first(12)
    found = measure(lite0, data, method=["l2caf", "random"], kinds=["coverage"], steps=4)
    l2caf, control = found.rows[:2]
    assert l2caf["coverage"] > control["coverage"] + 0.1
