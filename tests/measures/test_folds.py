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

LABELS = ("a", "b", "c")  # nothing is c


class Says(nn.Module):
    def __init__(self, label: int) -> None:
        super().__init__()
        self.scale, self.label = nn.Parameter(torch.ones(1)), label

    def forward(self, x: Tensor) -> Tensor:
        return (torch.eye(len(LABELS))[self.label] * self.scale).expand(len(x), len(LABELS))


def says(label: int, name: str) -> Network:
    return Network(Says(label), Prepare((8, 8), (0.5,) * 3, (0.5,) * 3, None), LABELS, name=name)


def walks(name: str) -> list[Network]:
    """A TNet for each of two folds."""
    options = {"in_chans": 3, "channels": [8, 8, 16, 16], "stem_width": 8, "base": 32, "levels": 2, "glimpses": 1}
    networks = []
    for fold in (0, 1):
        torch.manual_seed(fold)
        module = fovea.load("tnet/resnet10t", pretrained=False, classes=len(LABELS), options=options)
        networks.append(Network(module.module, module.transform, LABELS, name=f"{name}-fold{fold}"))
    return networks


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


def test_several_seeds_of_all_folds_have_their_mean() -> None:
    """Ten pictures are a and ten b, half of each in a fold: who says a of one is right of 5, who says c of none."""
    said = {"one-seed0": (0, 0), "one-seed1": (0, 2), "two-seed0": (0, 2), "two-seed1": (2, 2), "plain": (0, 1)}
    networks = [says(label, f"{name}-fold{fold}") for name, own in said.items() for fold, label in enumerate(own)]
    found = fovea.measure("folds", networks, made(), of=2)
    top1 = {row["net"]: (row["top1"], row["change"]) for row in found.rows[:5]}
    assert top1 == {  # beside "one" of the same seed; "plain" has none, so beside the first
        "one-seed0": (0.5, 0), "one-seed1": (0.25, 0),
        "two-seed0": (0.25, -0.25), "two-seed1": (0, -0.25), "plain": (0.5, 0),
    }  # fmt: skip
    one, two = found.rows[5:]
    assert (one["net"], one["seeds"], one["images"], one["top1"]) == ("one", 2, 20, 0.375)
    assert (one["low"], one["high"]) == (0, 1)  # 12.7 standard errors of 0.125 are more than a share can be
    assert "change" not in one
    assert (two["seeds"], two["top1"], two["change"]) == (2, 0.125, -0.25)
    assert (two["change_low"], two["change_high"]) == (-0.25, -0.25)  # both seeds lose as much
    assert "Student" in found.settings["over_seeds"]


def test_where_several_seeds_looked() -> None:
    found = fovea.measure("folds", [*walks("tnet-seed0"), *walks("tnet-seed1")], made(4), of=2, control=["center"])
    names = [(row["net"], row.get("seeds")) for row in found.rows if row["glimpses"] == 1]
    ones = [(name, None) for name in ("tnet-seed0", "tnet-seed1", "tnet, center-seed0", "tnet, center-seed1")]
    assert names == [*ones, ("tnet", 2), ("tnet, center", 2)]
    center = found.rows[-1]
    assert (center["found_at_2"], center["found_at_2_low"], center["found_at_2_high"]) == (1, 1, 1)


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
    networks = walks("tnet")
    found = fovea.measure("folds", networks, made(4), of=2, glimpses=[1, 2], control=["center", "random"])
    names = [(row["net"], row["glimpses"]) for row in found.rows]
    assert names == [(name, count) for name in ("tnet", "tnet, center", "tnet, random") for count in (1, 2)]
    center = found.rows[2]
    assert center["found_at_2"] == 1.0  # the middle of the picture is the middle of the box
    assert center["macs"] < found.rows[0]["macs"]  # nothing is worked out to go there


def test_folds_that_are_not_trained_yet_may_be_left_out() -> None:
    """Fold 1 of five alone: two pictures of each class, of which it says a."""
    found = fovea.measure("folds", [says(0, "one-fold1"), says(1, "two-fold1")], made(), only=[1])
    assert [(row["net"], row["images"], row["top1"], row["change"]) for row in found.rows] == [
        ("one", 4, 0.5, 0.0),
        ("two", 4, 0.5, 0.0),
    ]
    assert found.settings["only"] == "folds 1"
    refused("one-fold1 is missing", fovea.measure, "folds", [says(0, "one-fold2")], made(), only=[1])
    refused("only=5", fovea.measure, "folds", [says(0, "one-fold5")], made(), only=[5])


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
    for label in LABELS[:2]:
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
    networks = walks("t")
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
