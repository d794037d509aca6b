from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import fovea
from checks import raises, refused
from fovea.basics import interval_of_means
from fovea.data import DataSet, Pixels, Sample, Unreadable
from fovea.heatmaps import HeatMaps
from fovea.measures import Tally, finer
from fovea.pictures import Shown
from fovea.streams import Read, Streams
from made_twostream import STEPS, made, planted_image, scrambled

LABELS = ("red_bird", "green_bird")


def data(*labels: int, bad: bool = False) -> DataSet:
    pixels = Pixels(np.asarray(planted_image((32, 32))))
    samples = [Sample(f"{i}", label, pixels) for i, label in enumerate(labels)]
    samples += [Sample("bad", 0, Unreadable("bad is empty"))] if bad else []
    return DataSet("made", tuple(samples), LABELS)


def one_hot(row: int, column: int, side: int) -> Tensor:
    cells = torch.zeros(1, side, side)
    cells[0, row, column] = 1
    return cells


def test_area_of_known_maps() -> None:
    """3 x 3 cells at 6 x 6: along an axis, a hot middle has 0 1/4 3/4 3/4 1/4 0. Of the products only 3/4 x 3/4, which
    is the maximum, is above its half. A hot corner has 1 3/4 1/4 0 0 0, the maximum is 1, and 9/16 is above 1/2."""
    assert finer.area(one_hot(1, 1, 3), 6).tolist() == [pytest.approx(4 / 36)]
    assert finer.area(one_hot(0, 0, 3), 6).tolist() == [pytest.approx(4 / 36)]
    both = torch.cat([torch.full((1, 3, 3), 0.2), one_hot(1, 1, 3), torch.zeros(1, 3, 3)])
    even, narrow, blank = finer.area(both, 6).tolist()
    assert (even, narrow) == (1, pytest.approx(4 / 36))
    assert np.isnan(blank)
    assert finer.area(7 * one_hot(1, 1, 3), 6).tolist() == [pytest.approx(4 / 36)]  # only the shape counts


def test_area_of_one_of_49_cells() -> None:
    """A tent of 2 x 2 cells: 1 - |x| times 1 - |y| is above a half on 4 (1/2 - ln(2) / 2) of a cell, about."""
    found = float(finer.area(one_hot(3, 3, 7), 7 * 64))
    assert found == pytest.approx((2 - 2 * np.log(2)) / 49, rel=0.05)


def test_interval_of_means() -> None:
    """Of many numbers, it is the mean's usual one; a column that is the same everywhere has none; NaN is left out."""
    values = np.random.default_rng(0).normal(0.3, 0.1, (400, 1))
    (low,), (high,) = interval_of_means(values, 0)
    half = 1.96 * values.std() / 20
    assert (low, high) == (pytest.approx(values.mean() - half, abs=1e-3), pytest.approx(values.mean() + half, abs=1e-3))
    some = np.concatenate([values, np.full((100, 1), np.nan)])
    (lower,), (higher,) = interval_of_means(some, 0)
    assert (lower, higher) == (pytest.approx(low, abs=2e-3), pytest.approx(high, abs=2e-3))
    assert interval_of_means(np.full((5, 2), 0.5), 0) == ([0.5, 0.5], [0.5, 0.5])
    one_known = np.array([[0.226], [np.nan], [np.nan]])  # which some resamples are without
    assert interval_of_means(one_known, 0) == ([pytest.approx(0.226)], [pytest.approx(0.226)])


def test_rows_by_hand() -> None:
    """The map of every step is one cell of 4 x 4, at 16 x 16 four pixels a side: nothing narrows.

    Red and green are equally much, so that every step alone says neither: a tie is not a hit.
    """
    found = fovea.measure("finer", made(), data(0, 0, 1, bad=True))
    change, *steps = found.rows
    assert (change["change"], change["low"], change["high"], change["narrowed"]) == (0, 0, 0, 0)
    assert (change["attention"], change["blank"], change["images"]) == ("does not change", 0, 3)
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    wanted = float(finer.area(one_hot(1, 2, 4), 16))
    for row in steps:
        assert [row[key] for key in ("area", "low", "high")] == [pytest.approx(wanted)] * 3
        assert (row["top1"], row["weight"]) == (0, pytest.approx(1 / STEPS))
    assert change["first"] == change["last"] == pytest.approx(wanted)
    assert found.settings["skipped"] == 1
    assert found.skipped[0][0] == "bad"
    assert found.settings["patches"] == "1 a picture, by made"


@pytest.mark.parametrize(
    ("areas", "attention"),
    [((1.0, 0.5, 0.25), "narrows"), ((0.25, 0.5, 1.0), "widens"), ((0.5, 1.0, 0.5), "does not change")],
)
def test_which_way_it_comes_out(areas: tuple[float, ...], attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps whose first columns alone are 1, seen at their own size."""

    def step_maps(self: Streams, seen: Read, method: str, classes: Tensor, patches: Sequence[Shown]) -> list[HeatMaps]:
        return [
            HeatMaps(
                (torch.arange(16) < 16 * one).float().expand(len(patches), 1, 16, 16), tuple(patches), (), method, ""
            )
            for one in areas
        ]

    monkeypatch.setattr(Streams, "step_maps", step_maps)
    change, *steps = fovea.measure("finer", made(), data(0, 1), method=["gradcam"]).rows
    assert [row["area"] for row in steps] == pytest.approx(areas)
    assert change["attention"] == attention
    assert change["change"] == pytest.approx(areas[-1] - areas[0])
    assert change["narrowed"] == (1 if attention == "narrows" else 0)
    assert f"attention {attention}: {areas[0]:.3f} of the patch" in finer.sentence(change, 3)


def test_blank_maps_are_left_out_and_counted() -> None:
    """Two patches, one of them empty: areas are those of the other. All empty: there are none."""
    box, empty = (8.0, 8.0, 24.0, 24.0), (0.0, 0.0, 8.0, 8.0)
    change, *steps = fovea.measure("finer", made(boxes=(box, empty)), data(0, 0)).rows
    assert change["blank"] == 2 * STEPS
    assert [row["blank"] for row in steps] == [2] * STEPS
    assert [row["area"] for row in steps] == pytest.approx([float(finer.area(one_hot(1, 2, 4), 16))] * STEPS)
    assert (change["measured"], change["change"]) == (2, 0)
    change, *steps = fovea.measure("finer", made(boxes=(empty,)), data(0)).rows
    assert (change["change"], change["attention"], change["blank"]) == (None, None, STEPS)
    assert [row["area"] for row in steps] == [None] * STEPS
    assert "nothing can be said" in finer.sentence(change, STEPS)


def test_only_patches_with_a_first_and_a_last_map_are_compared() -> None:
    """One patch goes from 0.5 to 0.25; the other, of 0.1, has no map at first: it would make a change of its own."""
    areas = np.array([[[0.5, 0.4, 0.25], [np.nan, 0.1, 0.1]]])
    found = finer.change_of([areas], seed=0)
    assert (found["first"], found["last"], found["change"]) == (0.5, 0.25, -0.25)
    assert (found["narrowed"], found["measured"]) == (1, 1)


def test_seeds_are_one_with_students_interval() -> None:
    """Two networks of two pictures each, from 0.5 to 0.3 and from 0.6 to 0.5, twice: -0.2 and -0.1, the mean -0.15, its
    standard error 0.05, and Student's factor for one degree of freedom 12.706. Untrained, they go from 0.5 to 0.4 and
    from 0.5 to 0.5: what was learned is -0.1 in both, and -0.1 in every picture of the first alone."""
    first, second = ([[[a, b]], [[a, b]]] for a, b in ((0.5, 0.3), (0.6, 0.5)))
    trained = [np.array(first), np.array(second)]
    untrained = [np.array([[[0.5, 0.4]], [[0.5, 0.4]]]), np.array([[[0.5, 0.5]], [[np.nan, 0.5]]])]
    found = finer.change_of(trained, seed=0)
    assert (found["change"], found["first"], found["last"]) == (pytest.approx(-0.15), 0.55, 0.4)
    assert (found["low"], found["high"]) == (pytest.approx(-0.15 - 0.6353, abs=1e-4), pytest.approx(0.4853, abs=1e-4))
    assert (found["attention"], found["narrowed"], found["measured"]) == ("does not change", 1, 4)
    nets = [looked(*areas) for areas in zip(trained, untrained, strict=True)]
    for some in (nets, nets[:1]):
        assert list(finer.learned_of(some, "gradcam", 0).values()) == pytest.approx([-0.1] * 3)
    blank = looked(trained[0], np.full((2, 1, 2), np.nan))
    assert set(finer.learned_of([nets[0], blank], "gradcam", 0).values()) == {None}


def looked(trained: NDArray[np.float64], untrained: NDArray[np.float64]) -> dict[str, finer.Look]:
    """Areas N,K,T that were found by a network, and with LSTMs that have learned nothing."""
    areas = {"": trained, "untrained": untrained}
    streams = Streams.of(made(), "gradcam")
    return {how: finer.Look(streams, Tally({"gradcam": [values]})) for how, values in areas.items()}


def test_several_networks_side_by_side() -> None:
    """Those of two seeds share rows; a network that looks in other steps is not put beside them."""
    nets = [replace(scrambled(made(), seed), name=f"two-seed{seed}") for seed in (0, 1)]
    nets.append(replace(scrambled(made(), 2), name="other"))
    found = fovea.measure("finer", nets, data(0, 1), control=["untrained"])
    about = [(row["net"], row["seeds"], row["method"]) for row in found.rows if "step" not in row]
    ways = ("gradcam", "gradcam, untrained LSTMs")
    assert about == [(name, count, way) for name, count in (("two", 2), ("other", 1)) for way in ways]
    singles = [fovea.measure("finer", net, data(0, 1)).rows for net in nets]
    for key in ("first", "last", "change"):
        assert found.rows[0][key] == pytest.approx(np.mean([rows[0][key] for rows in singles[:2]]))
        assert found.rows[2][key] == pytest.approx(singles[2][0][key])
    assert found.rows[2]["low"] == pytest.approx(singles[2][0]["low"])
    steps = [row for row in found.rows if "step" in row and (row["net"], row["method"]) == ("two", "gradcam")]
    assert [row["area"] for row in steps] == pytest.approx(
        [np.mean([rows[1 + t]["area"] for rows in singles[:2]]) for t in range(STEPS)]
    )
    assert len(found.tables) == 2
    assert len(finer.draw(found).axes[0].lines) == 4
    refused("same number of steps", fovea.measure, "finer", [nets[0], replace(made(steps=2), name="short")], data(0))


def test_steps_are_right_as_often_as_their_own_answers() -> None:
    network = scrambled(made())
    labels = (0, 1, 1)
    rows = [row for row in fovea.measure("finer", network, data(*labels)).rows if "step" in row]
    looks = fovea.look_longer(network, [planted_image((32, 32))] * 3)
    for t, row in enumerate(rows):
        own = [looked.patches[0].steps[t] for looked in looks]
        right = [step.said.label == LABELS[label] for step, label in zip(own, labels, strict=True)]
        assert row["top1"] == pytest.approx(np.mean(right))
        assert row["weight"] == pytest.approx(np.mean([step.weight for step in own]), abs=1e-6)
    assert sum(row["weight"] for row in rows) == pytest.approx(1, abs=1e-5)


def test_wrong_choices() -> None:
    refused("not 'cam'", fovea.measure, "finer", made(), data(0), method=["cam"])
    refused("each once", fovea.measure, "finer", made(), data(0), method=["gradcam", "gradcam"])
    refused("single step", fovea.measure, "finer", made(steps=1), data(0))
    raises(fovea.BadPicture, "bad is empty", fovea.measure, "finer", made(), data(bad=True))


def test_the_picture_has_a_line_and_a_band_a_method() -> None:
    found = fovea.measure("finer", scrambled(made(ask=True), seed=2), data(0, 1), method=["gradcam", "self-attention"])
    (panel,) = finer.draw(found).axes
    assert len(panel.lines) == len(panel.collections) == 2
    for line, method in zip(panel.lines, ("gradcam", "self-attention"), strict=True):
        areas = [row["area"] for row in found.rows if row["method"] == method and "step" in row]
        assert list(line.get_ydata()) == areas


def test_lstms_that_have_learned_nothing_beside_those_that_have() -> None:
    network = scrambled(made())
    before = {name: value.clone() for name, value in network.module.state_dict().items()}
    found = fovea.measure("finer", network, data(0, 1), control=["untrained"], seed=0)
    alone = fovea.measure("finer", network, data(0, 1), seed=0)
    assert [row["method"] for row in found.rows[:2]] == ["gradcam", "gradcam, untrained LSTMs"]
    learned = found.rows[0]["change"] - found.rows[1]["change"]
    assert found.rows[0]["learned_change"] == pytest.approx(learned)
    assert found.rows[0]["learned_change_low"] <= learned <= found.rows[0]["learned_change_high"]
    assert f"{learned:+.3f} (" in found.notes[0]
    own = [{key: row[key] for key in row if "learned" not in key} for row in found.rows if row["method"] == "gradcam"]
    assert own == alone.rows
    trained, untrained = ([row["weight"] for row in found.rows if row["method"] == name and "step" in row]
                          for name in ("gradcam", "gradcam, untrained LSTMs"))  # fmt: skip
    assert len(untrained) == STEPS
    assert untrained != trained
    assert fovea.measure("finer", network, data(0, 1), control=["untrained"], seed=0).rows == found.rows
    assert all(torch.equal(value, before[name]) for name, value in network.module.state_dict().items())
    refused("compared with LSTMs that are untrained", fovea.measure, "finer", network, data(0, 1), control=["random"])
