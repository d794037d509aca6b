"""CUB-200-2011 as published: images/ and five text files, each line an id and what belongs to it.

bounding_boxes.txt has x y width height in pixels, taken as 0-based (its README does not say): x1 = x + width."""

import re
from pathlib import Path

from fovea.basics import BadChoice
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import demand, demand_pictures, lines
from fovea.data.samples import Below, Box, DataSet, Sample, corners

INDEX = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "bounding_boxes.txt", "classes.txt")


def is_cub(folder: Path) -> bool:
    return any((folder / file).is_file() for file in INDEX[1:4])


@layout("cub", about="200 birds: `images/` and five lists", folders=("CUB_200_2011", "cub200"), recognizes="is_cub")
def open_cub(folder: Path, *, split: str | None = None) -> DataSet:
    """200 birds; split=train or test is the official one. Labels are 0 to 199 in the order of classes.txt."""
    asked = splits_asked("cub", split, ("train", "test"))
    demand("cub", folder, ("images", *INDEX))
    classes = _table(folder / "classes.txt")
    number = {key: i for i, key in enumerate(classes)}
    label_of, is_train = _table(folder / "image_class_labels.txt"), _table(folder / "train_test_split.txt")
    boxes = {key: _box(folder, key, text) for key, text in _table(folder / "bounding_boxes.txt").items()}
    rows = {part: {"split": part} for part in asked}
    samples = []
    for key, file in _table(folder / "images.txt").items():
        if key not in label_of or key not in is_train or label_of[key] not in number:
            raise BadChoice(f"cub in {folder} is inconsistent: picture {key} ({file}) has no label, class or split")
        part = "train" if is_train[key] == "1" else "test"
        if part in asked:
            name = f"images/{file}"
            samples.append(Sample(name, number[label_of[key]], Below(folder, name), boxes.get(key, ()), rows[part]))
    demand_pictures("cub", samples)
    return DataSet("cub", tuple(samples), tuple(re.sub(r"^\d+\.", "", name) for name in classes.values()))


def _table(path: Path) -> dict[str, str]:
    found = {}
    for i, line in lines(path):
        key, _, rest = line.strip().partition(" ")
        if not rest:
            raise BadChoice(f"{path}, line {i}: expected an id and a value, got {line!r}")
        found[key] = rest.strip()
    return found


def _box(folder: Path, key: str, text: str) -> tuple[Box, ...]:
    try:
        x, y, width, height = corners(text.split(), key)
    except ValueError:
        raise BadChoice(f"{folder / 'bounding_boxes.txt'}, picture {key}: expected x y w h, got {text!r}") from None
    return ((x, y, x + width, y + height),)
