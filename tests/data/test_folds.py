"""Sets divided into ten folds by class."""

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from checks import refused
from fovea.data import open_data


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "a:b" / "photos"  # a path may hold what options begin with
    for name, count in (("cat", 30), ("dog", 8), ("owl", 5)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (4, 4)).save(folder / name / f"{i}.png")
    return folder


def names(given: str) -> set[str]:
    return {sample.name for sample in open_data(given).samples}


def test_folds_divide_every_class(photos: Path) -> None:
    parts = [open_data(f"{photos}:folds={folds}") for folds in ("0-5", "6-7", "8-9")]
    assert sorted(sample.name for part in parts for sample in part.samples) == sorted(names(str(photos)))
    counts = [Counter(part.labels[sample.label] for sample in part.samples) for part in parts]
    assert counts[0] == {"cat": 18, "dog": 5, "owl": 3}
    assert counts[1] == {"cat": 6, "dog": 1, "owl": 1}
    assert counts[2] == {"cat": 6, "dog": 2, "owl": 1}


def test_they_are_the_same_wherever_the_folder_lies_and_others_by_another_seed(photos: Path) -> None:
    before = {Path(name).relative_to(photos) for name in names(f"{photos}:folds=0-4")}
    moved = photos.rename(photos.parent / "moved")
    assert {Path(name).relative_to(moved) for name in names(f"{moved}:folds=0-4")} == before
    assert {Path(name).relative_to(moved) for name in names(f"{moved}:folds=0-4,fold_seed=1")} != before
    (moved / "cat" / "new.png").write_bytes((moved / "cat" / "0.png").read_bytes())
    again = {Path(name).relative_to(moved) for name in names(f"{moved}:folds=0-4")}
    assert len(again ^ before) <= 2  # one more picture moves few others


def test_settings_are_chosen_on_a_part_that_nothing_is_trained_on(photos: Path) -> None:
    fit, choose = (open_data(f"{photos}:part={part}") for part in ("fit", "choose"))
    assert {sample.name for sample in fit.samples} == names(f"{photos}:folds=0-8")
    assert {sample.name for sample in choose.samples} == names(str(photos)) - {sample.name for sample in fit.samples}
    assert Counter(choose.labels[sample.label] for sample in choose.samples) == {"cat": 3, "dog": 1, "owl": 1}
    assert names(f"{photos}:part=choose,fold_seed=1") != names(f"{photos}:part=choose")
    refused("part= takes fit or choose; got 'fti'.*fit", open_data, f"{photos}:part=fti")
    refused("leave one of part= and folds= out", open_data, f"{photos}:part=fit,folds=1")


def test_a_part_is_of_the_training_split() -> None:
    """Folds of all pictures of a set would hold some that are tested on."""
    for other in ("part=fit", "split=test,part=choose"):
        refused("part= is of the training split: give split=train", open_data, f"digits:{other}")
    assert len(open_data("digits:split=train,part=choose")) > 0


def test_what_is_no_fold_is_said(photos: Path) -> None:
    refused("a fold", open_data, f"{photos}:folds=10")
    refused("fold_seed=", open_data, f"{photos}:folds=1,fold_seed=x")
