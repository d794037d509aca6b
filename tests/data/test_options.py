from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

from checks import raises, refused
from fovea.basics import BadPicture
from fovea.data import Size, numbers, open_data, parsed, typed


def opener(
    folder: str, *, split: str | None = None, count: int = 3, size: Size = (1, 1), kind: Literal["a", "b"] = "a"
) -> None: ...


def test_text_becomes_the_functions_own_types() -> None:
    name, options = parsed("set: split = test, count=12,size=30x20,kind=b,")
    assert name == "set"
    assert typed("set", opener, options) == {"split": "test", "count": 12, "size": (30, 20), "kind": "b"}
    assert typed("set", opener, {"size": "7"}) == {"size": (7, 7)}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("count", "1.5", "set: count= takes a whole number; got '1.5'"),
        ("size", "2x", "takes a size in pixels"),
        ("kind", "c", "takes a or b; got 'c'"),
        ("folder", "x", "no option 'folder'"),
        (
            "cuont",
            "1",
            r"no option 'cuont'; did you mean 'count'\? \(its options: count, crop, fold_seed, folds, kind, labels",
        ),
    ],
)
def test_wrong_ones_say_what_was_expected(key: str, value: str, said: str) -> None:
    refused(said, typed, "set", opener, {key: value})


def test_numbers() -> None:
    assert numbers("3+5+8-10") == {3, 5, 8, 9, 10}


def test_pictures_cut_to_their_boxes(tmp_path: Path) -> None:
    """A ramp of 20 x 10 pixels, boxes in it: the rectangle around them is what is read, and they lie in it."""
    folder = tmp_path / "set"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    ramp = np.tile(np.arange(20, dtype=np.uint8) * 10, (10, 1))
    Image.fromarray(ramp).save(folder / "a" / "1.png")
    Image.fromarray(ramp).save(folder / "b" / "2.png")
    (folder / "boxes.csv").write_text("file,boxes\na/1.png,3 2 6 5;5.5 4 9 7\n")
    first, second = open_data(f"{folder}:crop=boxes").samples
    image = np.asarray(first.read().convert("L"))
    assert image.shape == (5, 6)
    assert image[0].tolist() == [30, 40, 50, 60, 70, 80]
    assert first.boxes == ((0, 0, 3, 3), (2.5, 2, 6, 5))
    assert second.read().size == (20, 10)  # it has none
    (folder / "boxes.csv").write_text("file,boxes\na/1.png,30 2 40 6\n")
    outside, _ = open_data(f"{folder}:crop=boxes").samples
    raises(BadPicture, "outside of its 20 x 10 pixels", outside.read)
    refused("crop= takes boxes", open_data, f"{folder}:crop=all")
