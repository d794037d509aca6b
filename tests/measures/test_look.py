import os
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import left_as_found, refused
from fovea.data import DataSet, Pixels, Sample, open_data
from fovea.measures.look import PANELS, SOURCES, draw
from fovea.pictures import Prepare

measure = partial(fovea.measure, "look")
ROWS = [(kind, name) for kind, names in SOURCES.items() for name in names]
BRIGHT, SHARED = 17, 40  # two of the 7 x 7 cells


class Cells(nn.Module):
    """The first class counts for nothing; each other is a sum over the 7 x 7 cells of 8 x 8 pixels, less a number."""

    def __init__(self, weights: dict[int, list[float]], bias: float) -> None:
        super().__init__()
        self.cells, self.fc = nn.AvgPool2d(8), nn.Linear(49, 1 + len(next(iter(weights.values()))))
        with torch.no_grad():
            self.fc.weight.zero_()
            self.fc.bias.fill_(-bias)
            self.fc.bias[0] = 0
            for cell, each in weights.items():
                self.fc.weight[1:, cell] = torch.tensor(each)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.cells(x)[:, 0].flatten(1))


def made(weights: dict[int, list[float]], bias: float) -> fovea.Network:
    module = Cells(weights, bias).eval()
    return fovea.wrap(module, Prepare((56, 56), (0.0,) * 3, (1.0,) * 3, None), len(module.fc.bias), layer="cells")


def spots(*cells: int) -> DataSet:
    """A black picture with these cells white."""
    pixels = np.zeros((7, 7, 3), np.uint8)
    pixels.reshape(49, 3)[list(cells)] = 255
    return DataSet("spots", (Sample("0.png", 0, Pixels(pixels.repeat(8, 0).repeat(8, 1))),))


def test_an_answer_that_hangs_on_one_patch() -> None:
    """White, it is enough and needed; black, gray or blurred it is not. Random patches are as many as come before it,
    and it. The first tenth of the pixels has all of it, so that the difference is there at once, or gone at once."""
    found = measure(made({BRIGHT: [12.0]}, 9.6), spots(BRIGHT), seed=3)
    rows = {(row["kind"], row["by"]): row for row in found.rows}
    assert list(rows) == ROWS
    ranks = np.random.default_rng(3).random(49, np.float32)
    before = int((ranks > ranks[BRIGHT]).sum())
    assert before > 5
    for kind in ("enough", "needed"):
        own, hottest, random = (rows[kind, name] for name in SOURCES[kind])
        assert own["mean"] == hottest["mean"] == pytest.approx(1 / 49)
        assert (hottest["change"], random["change"]) == pytest.approx((0, before / 49))
        assert "change" not in own
        assert [(row["none"], row["held"]) for row in (own, hottest, random)] == [(0, 1.0)] * 3
    for name in SOURCES["deletion"]:
        assert rows["deletion", name]["mean"] == pytest.approx(0.05, abs=1e-6)
        assert rows["insertion", name]["mean"] == pytest.approx(0.95, abs=1e-6)
    assert found.settings["patches"] == "49 to 49 per picture"


def test_contrast_is_what_the_runner_up_does_not_share() -> None:
    """Of two classes that see the same cell, one sees another besides: it alone tells them apart. The first twentieth
    of the pixels, by the contrast map, has all of it."""
    found = measure(made({SHARED: [6.0, 6.0], BRIGHT: [3.0, 0.0]}, 1.0), spots(SHARED, BRIGHT), steps=20)
    mean = {(row["kind"], row["by"]): row["mean"] for row in found.rows}
    assert mean["deletion", "contrast"] == pytest.approx(0.025, abs=1e-6)
    assert mean["insertion", "contrast"] == pytest.approx(0.975, abs=1e-6)
    assert mean["deletion", "answer"] > 0.035
    assert mean["insertion", "answer"] < 0.965


def test_where_nothing_is_found_the_share_is_the_whole() -> None:
    """Whatever is shown, the answer is the same: nothing is enough, and none is needed."""
    found = measure(made({BRIGHT: [0.0]}, 1.0), spots(BRIGHT))
    for row in found.rows[:3]:
        assert (row["kind"], row["mean"], row["none"], row["held"]) == ("enough", 0.0, 0, 1.0)
    for row in found.rows[3:6]:
        assert (row["kind"], row["mean"], row["none"], row["held"]) == ("needed", 1.0, 1, None)


def test_pictures_of_several_shapes_come_in_whole_and_the_network_is_left_as_found(pooled: nn.Module) -> None:
    net = fovea.wrap(pooled.train(), Prepare((64, 64)), 5).fitted("whole")
    noise = [np.random.default_rng(i).integers(0, 255, (48, 48 * i, 3), dtype=np.uint8) for i in (1, 2)]
    data = DataSet("noise", tuple(Sample(str(i), 0, Pixels(one)) for i, one in enumerate(noise)))
    seen: list[tuple[int, int]] = []
    with left_as_found(pooled):
        found = measure(net, data, forwards=30, progress=lambda *now: seen.append(now))
    assert found.settings["input"] == "whole, in its proportions"
    assert found.settings["patches"] == "49 to 98 per picture"
    assert seen[-1] == (2, 2)
    assert all(row["held"] in (1.0, None) for row in found.rows[:6])
    assert [row["images"] for row in found.rows] == [2] * len(ROWS)
    panels = draw(found).axes
    assert [panel.get_title() for panel in panels] == list(PANELS.values())
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["look", "hottest", "random"]


def test_a_network_without_maps_is_refused() -> None:
    net = fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625})
    refused("reads glimpses: it has no map that its answer depends on", measure, net, spots(BRIGHT))


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the pack imagenet-val-3k")
def test_real_patches_beat_random_ones(lite0: fovea.Network) -> None:
    found = measure(lite0, open_data("imagenet-val-3k").first(3), steps=2)
    assert [row["held"] for row in found.rows[:6]] == [1.0] * 6
    own, _, random = found.rows[:3]
    assert own["mean"] < random["mean"]
