import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from checks import left_as_found, raises, refused
from conftest import Through
from fovea.basics import interval
from fovea.data import DataSet, Sample, Unreadable
from fovea.measures.classify import Confusion, taken_for
from fovea.networks import match, rank_of
from fovea.pictures import Prepare

measure = partial(fovea.measure, "classify")
COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


@dataclass(frozen=True)
class Plain:
    color: str

    def read(self) -> Image.Image:
        return Image.new("RGB", (8, 8), self.color)


def colored(*pairs: tuple[str, str], labels: tuple[str, ...] = tuple(COLORS)) -> DataSet:
    """Samples of (label, color)."""
    samples = [Sample(f"{i}.png", labels.index(name), Plain(color)) for i, (name, color) in enumerate(pairs)]
    return DataSet("colors", tuple(samples), labels)


def network(*labels: str) -> fovea.Network:
    """Each output is the mean of its color; a label that is no color gets nothing."""
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, len(labels), bias=False))
    weight = [[channel / 255 for channel in COLORS.get(label, (0, 0, 0))] for label in labels]
    module[2].weight.data = torch.tensor(weight)
    return fovea.wrap(module.eval(), Prepare((8, 8), (0.0,) * 3, (1.0,) * 3), labels)


SIX = (("red", "red"), ("red", "red"), ("red", "lime"), ("green", "lime"), ("blue", "lime"), ("blue", "lime"))


def test_three_classes_by_hand() -> None:
    seen: list[tuple[int, int]] = []
    data = colored(*SIX)
    broken = Sample("broken.png", 0, Unreadable("broken.png is not a picture"))
    data = DataSet(data.name, (*data.samples, broken), data.labels)
    found = measure(network(*COLORS), data, batch=4, progress=lambda *now: seen.append(now))
    (row,) = found.rows
    assert list(row) == ["net", "data", "images", "top1", "top5", "low", "high"]
    assert (row["data"], row["images"], row["top1"], row["top5"]) == (
        "colors",
        6,
        0.5,
        None,
    )  # three outputs: no top 5
    assert row["low"] < 0.5 < row["high"]
    assert found.skipped == [("broken.png", "broken.png is not a picture")]
    assert seen[-1] == (7, 7)
    assert found.extra.matrix().tolist() == [[2, 1, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0]]
    assert found.extra.pairs(5) == [
        {"class": "blue", "taken_for": "green", "times": 2, "of": 2},
        {"class": "red", "taken_for": "green", "times": 1, "of": 3},
    ]
    per_class = [(one["class"], one["images"], one["top1"]) for one in found.extra.per_class()]
    assert per_class == [("red", 3, pytest.approx(2 / 3)), ("green", 1, 1.0), ("blue", 2, 0.0)]


def test_file_holds_the_matrix(tmp_path: Path) -> None:
    measure(network(*COLORS), colored(*SIX)).write(tmp_path / "new" / "figures.json", seed=0)
    told = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert (told["what"], told["seed"], told["settings"]["labels"]) == ("classify", 0, "matched by name")
    assert told["confusion"]["counts"] == [[2, 1, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0]]
    assert told["confusion"]["taken_for"] == ["red", "green", "blue", "another class"]
    assert [one["top1"] for one in told["per_class"]] == [pytest.approx(2 / 3), 1.0, 0.0]


def test_of_many_classes_the_pairs_are_written(tmp_path: Path) -> None:
    names = tuple(f"c{i}" for i in range(101))
    data = colored(*((name, "black") for name in names), labels=names)
    found = measure(network(*names), data)  # every output is 0: a tie, which is no hit
    assert found.rows[0]["top1"] == found.rows[0]["top5"] == 0
    found.write(tmp_path / "figures.json")
    told = json.loads((tmp_path / "figures.json").read_text())
    assert "confusion" not in told
    assert (len(told["most_confused"]), len(told["per_class"])) == (50, 101)


def test_interval_is_that_of_plain_resampling() -> None:
    hits = np.arange(80) < 60
    drawn = np.random.default_rng(1).choice(hits, (10_000, 80)).mean(1)
    low, high = interval(hits)
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1.01 / 80)  # one picture
    binomial = np.random.default_rng(2).binomial(80, 0.75, 10_000) / 80
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.quantile(binomial, q) == pytest.approx(np.quantile(drawn, q), abs=1.01 / 80)
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.75 * 0.25 / 80), rel=0.08)  # the normal approximation


def test_interval_narrows_and_is_seeded() -> None:
    widths = [np.ptp(interval(np.arange(n) % 2 == 0)) for n in (10, 100, 1000)]
    assert widths == sorted(widths, reverse=True)
    assert interval(np.array([True] * 9)) == (1.0, 1.0)
    assert interval(np.arange(50) < 20, seed=3) == interval(np.arange(50) < 20, seed=3)


def test_names_in_another_order_among_others() -> None:
    found = measure(network("blue", "cyan", "red", "green"), colored(("red", "red"), ("blue", "blue"), ("red", "lime")))
    assert found.rows[0]["top1"] == pytest.approx(2 / 3)
    assert found.extra.matrix().tolist() == [[1, 0, 0], [0, 1, 1]]  # blue, red as the network has them; green is no
    assert found.extra.pairs(1)[0]["taken_for"] == "green"  # class of these pictures, but has a name


def test_imagenet_labels_from_the_rows() -> None:
    rows = [{"imagenet_label": "0"}, {"imagenet_label": "497"}]
    samples = tuple(Sample(f"{i}", i, Plain("red"), row=row) for i, row in enumerate(rows))
    data = DataSet("two", samples, ("a fish", "a church"))
    net = fovea.Network(nn.Identity(), labels=tuple(f"imagenet {i}" for i in range(1000)))
    assert match(net, data, 1000).outputs == {0: 0, 1: 497}
    assert match(net, data, 1000).how == "imagenet_label"
    other = fovea.Network(nn.Identity(), labels=("x", "y", "z"))
    assert match(other, data, 3).outputs == {0: 0, 1: 1}
    assert match(other, data, 3).how == "number, since the names differ"


def test_a_name_that_stands_for_two_outputs_is_no_match() -> None:
    data = colored(("red", "red"), ("blue", "blue"))
    net = fovea.Network(nn.Identity(), labels=("blue", "red", "red"))
    assert match(net, data, 3).outputs == {0: 0, 2: 2}


def test_names_of_which_the_network_knows_some_are_refused() -> None:
    data = colored(("red", "red"), ("blue", "blue"))
    net = fovea.Network(nn.Identity(), labels=("red", "mauve", "lime"))
    refused("knows 1 of the 2 classes of colors by name, but not 'blue': leave", match, net, data, 3)


def test_more_classes_than_outputs_are_refused() -> None:
    data = colored(*SIX)
    refused("has 2 outputs and colors labels up to 2", measure, network("left", "right"), data)
    part = data.only([0, 1])  # as many as the network knows
    assert measure(network("left", "right"), part).rows[0]["images"] == 4


def test_an_embedding_is_refused() -> None:
    net = network(*COLORS)
    net.labels = None
    refused("measure retrieval", measure, net, colored(*SIX))


def test_nothing_to_read() -> None:
    data = DataSet("bad", (Sample("x", 0, Unreadable("x is cut short")),), tuple(COLORS))
    raises(fovea.BadPicture, "no picture of bad could be read: x is cut short", measure, network(*COLORS), data)
    raises(fovea.BadPicture, "bad is empty", measure, network(*COLORS), DataSet("bad", (), tuple(COLORS)))


def test_ties_and_what_is_not_a_number_are_taken_for_another() -> None:
    output, labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [torch.nan] * 3]), torch.tensor([0, 1, 2])
    assert taken_for(output, labels, rank_of(output, labels)) == [1, 1, 0]


def test_outputs_that_are_not_numbers_are_counted() -> None:
    net = network(*COLORS)
    net.module[2].weight.data[0, 0] = torch.nan
    found = measure(net, colored(*SIX))
    assert (found.rows[0]["top1"], found.settings["not_finite"]) == (0, 6)


def test_the_network_is_left_as_found() -> None:
    net = network(*COLORS)
    net.module.append(nn.Dropout(0.9)).train()
    with left_as_found(net.module):
        assert measure(net, colored(*SIX)).rows[0]["top1"] == 0.5  # dropout was off


@pytest.mark.parametrize("classes", [3, 30, 70])
def test_matrix_as_a_picture(classes: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    true, taken = generator.integers(classes, size=(2, 500))
    found = Confusion(true, taken, {i: f"class {i}" for i in range(classes)})
    found.figure("title").savefig(tmp_path / "confusion.png")
    with Image.open(tmp_path / "confusion.png") as drawn:
        assert min(drawn.size) > 300
        assert len(drawn.convert("RGB").getcolors(10**6) or ()) > 10


def test_matrix_counts_every_picture() -> None:
    true, taken = np.random.default_rng(0).integers(7, size=(2, 300))
    counts = Confusion(true, taken, dict.fromkeys(range(7), "")).matrix()
    assert counts.sum() == 300
    assert counts[2, 5] == ((true == 2) & (taken == 5)).sum()
    assert not counts[:, -1].any()


def test_an_output_that_is_no_row_of_classes() -> None:
    net = fovea.wrap(Through(lambda x: x.mean((2, 3)).unsqueeze(1)), Prepare((8, 8)), labels=3)
    refused(r"this network gives \(1, 3\) per picture", measure, net, colored(*SIX))
