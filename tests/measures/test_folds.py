"""Cross-validation: who answers which pictures, and what is compared, by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import raises, refused
from fovea.basics import BadPicture
from fovea.data import DataSet, Pixels, Sample, Unreadable, only_folds
from fovea.networks import Network
from fovea.pictures import Prepare

LABELS = ("a", "b")


class Says(nn.Module):
    def __init__(self, label: int) -> None:
        super().__init__()
        self.scale, self.label = nn.Parameter(torch.ones(1)), label

    def forward(self, x: Tensor) -> Tensor:
        return (torch.eye(2)[self.label] * self.scale).expand(len(x), 2)


def says(label: int, name: str) -> Network:
    return Network(Says(label), Prepare((8, 8), (0.5,) * 3, (0.5,) * 3, None), LABELS, name=name)


def made(each: int = 10) -> DataSet:
    gray = np.asarray(Image.new("RGB", (8, 8), "grey"))
    samples = [Sample(f"{label}{i}", label, Pixels(gray), ((1, 1, 7, 7),)) for label in (0, 1) for i in range(each)]
    return DataSet("made", tuple(samples), LABELS)


def test_every_picture_is_answered_once_by_the_network_of_its_fold() -> None:
    """Fold 0 of two says a, fold 1 says b: half of each half is right. The other is right of all a and of no b."""
    networks = [says(0, "one-fold0"), says(1, "one-fold1"), says(0, "two-fold0"), says(0, "two-fold1")]
    found = fovea.measure("folds", networks, made(), of=2)
    one, two = found.rows
    assert [(row["net"], row["images"], row["top1"], row["change"]) for row in (one, two)] == [
        ("one", 20, 0.5, 0.0),
        ("two", 20, 0.5, 0.0),
    ]
    assert (one["change_low"], one["change_high"]) == (0.0, 0.0)
    assert two["change_low"] < 0 < two["change_high"]  # right of other pictures
    assert two["low"] < 0.5 < two["high"]


def test_a_network_sees_no_picture_of_another_fold() -> None:
    seen: list[int] = []

    class Counts(Says):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x)) if x.any() else None
            return super().forward(x)

    networks = [says(0, f"n-fold{i}") for i in range(5)]
    networks[3].module = Counts(0)  # type: ignore[misc]
    data = made(20)
    fovea.measure("folds", networks, data, batch=3)
    assert sum(seen) >= len(only_folds(data, (6, 7))) == 8
    assert max(seen) <= 3


def test_controls_go_to_places_that_are_not_learned() -> None:
    options = {"in_chans": 3, "channels": [8, 8, 16, 16], "stem_width": 8, "base": 32, "levels": 2, "glimpses": 1}
    networks = []
    for fold in (0, 1):
        torch.manual_seed(fold)
        network = fovea.load("tnet/resnet10t", pretrained=False, classes=2, options=options)
        networks.append(Network(network.module, network.transform, LABELS, name=f"tnet-fold{fold}"))
    found = fovea.measure("folds", networks, made(4), of=2, glimpses=[1, 2], control=["center", "random"])
    names = [(row["net"], row["glimpses"]) for row in found.rows]
    assert names == [(name, count) for name in ("tnet", "tnet, center", "tnet, random") for count in (1, 2)]
    center = found.rows[2]
    assert center["found_at_2"] == 1.0  # the middle of the picture is the middle of the box
    assert center["macs"] < found.rows[0]["macs"]  # nothing is worked out to go there


@pytest.mark.parametrize(
    ("names", "of", "words"),
    [
        (("plain", "one-fold1"), 2, "NAME-fold0"),
        (("one-fold0", "one-fold1"), 5, "one-fold2 is missing"),  # these may have seen what they would answer
        (("one-fold0", "one-fold1", "one-fold2"), 2, "one-fold2 is one too many"),
        (("one-fold0",), 3, "2, 5 or 10"),
    ],
)
def test_refused(names: tuple[str, ...], of: int, words: str) -> None:
    refused(words, fovea.measure, "folds", [says(0, name) for name in names], made(), of=of)


def test_folds_are_of_the_whole_set(tmp_path: Path) -> None:
    for label in LABELS:
        (tmp_path / label).mkdir()
        for i in range(4):
            Image.new("RGB", (8, 8), "grey").save(tmp_path / label / f"{i}.png")
    networks = [says(0, "n-fold0"), says(0, "n-fold1")]
    for more in (":limit=4", ":folds=0-4", ":labels=0"):
        refused("whole set", fovea.measure, "folds", networks, f"{tmp_path}{more}", of=2)
    refused("whole set", fovea.measure, "folds", networks, str(tmp_path), of=2, limit=4)
    refused("fold_seed=", fovea.measure, "folds", networks, f"{tmp_path}:fold_seed=x", of=2)
    assert fovea.measure("folds", networks, f"{tmp_path}:fold_seed=3", of=2).rows[0]["images"] == 8


def test_without_boxes_nothing_is_said_of_where(tmp_path: Path) -> None:
    options = {"in_chans": 3, "channels": [8, 8, 16, 16], "stem_width": 8, "base": 32, "levels": 2, "glimpses": 1}
    made_of = [fovea.load("tnet/resnet10t", pretrained=False, classes=2, options=options) for _ in range(2)]
    networks = [Network(one.module, one.transform, LABELS, name=f"t-fold{i}") for i, one in enumerate(made_of)]
    data = made(4)
    bare = replace(data, samples=tuple(Sample(one.name, one.label, one.source) for one in data.samples))
    (row,) = fovea.measure("folds", networks, bare, of=2, glimpses=[1]).rows
    assert not any(key.startswith("found_at") for key in row)


def test_a_set_that_cannot_be_read_is_refused() -> None:
    data = made(4)
    gone = replace(data, samples=tuple(Sample(one.name, one.label, Unreadable("gone")) for one in data.samples))
    raises(BadPicture, "gone", fovea.measure, "folds", [says(0, "n-fold0"), says(0, "n-fold1")], gone, of=2)


def test_controls_are_for_networks_that_choose() -> None:
    found = fovea.measure("folds", [says(0, "a-fold0"), says(0, "a-fold1")], made(), of=2, control=["random"])
    assert len(found.rows) == 1  # it reads whole pictures
