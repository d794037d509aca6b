"""Picture folders in torchvision's ImageFolder layout: class/picture files, with an optional boxes.csv.

train/, val/ or test/ may stand above the classes. Boxes are x0 y0 x1 y1, 0-based and half open."""

import os
from collections.abc import Sequence
from pathlib import Path

from fovea.basics import BadChoice
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import called, holds_pictures, pictures, subfolders, table, too_large
from fovea.data.samples import Below, Box, DataSet, Sample, boxes_of
from fovea.pictures import is_picture_name

SPLITS = ("train", "val", "valid", "validation", "test")


def is_folder(folder: Path) -> bool:
    """A folder that holds pictures itself, one or (below a split) two levels down."""
    above = [folder / name for name in subfolders(folder)]
    below = [place / name for place in above if place.name in SPLITS for name in subfolders(place)]
    return any(is_picture_name(Path(name)) for place in above + below for name in os.listdir(place))


@layout("folder", about="one folder per class, below `train/`, `val/`, `test/` or not", recognizes="is_folder", turn=1)
def open_folder(folder: Path, names: Sequence[str] | None = None, split: str | None = None) -> DataSet:
    """The class is its folder's place among `names`, or in sorted order, or its number when every folder is one.
    boxes.csv beside the classes, or beside the splits (file,boxes; several rows or ';' for several boxes), gives
    boxes."""
    above = subfolders(folder)
    splits = [name for name in SPLITS if name in above and subfolders(folder / name)]
    if any(holds_pictures(folder / name) for name in above if splits and name not in splits):
        splits = []  # train/ is a class among others, not annotations/ beside the splits
    asked = splits_asked(f"the folder {called(folder)}", split, splits)
    classes = sorted({name for part in splits for name in subfolders(folder / part)}) if splits else above
    if not classes:
        raise BadChoice(f"{folder} holds neither manifest.csv nor a folder per class, as {folder}/cat/photo.jpg")
    number, labels = _numbered(classes, names)
    samples = []
    for part in asked or ("",):
        boxes = _boxes(folder, part)
        row = {"split": part} if part else {}
        for name in classes:
            there = folder / part / name
            for file in pictures(there) if there.is_dir() else ():
                found = boxes.pop(f"{name}/{file}", ())
                samples.append(Sample(str(there / file), number[name], Below(there, file), found, row))
        _refuse_misnamed(folder, boxes, samples)
    if not samples:
        raise BadChoice(f"no picture in the class folders of {folder / (split or '')} ({', '.join(classes[:5])} ...)")
    return DataSet(called(folder), tuple(samples), labels)


def _numbered(classes: Sequence[str], names: Sequence[str] | None) -> tuple[dict[str, int], tuple[str, ...]]:
    if names is not None and set(classes) <= set(names):
        labels = tuple(names)
    elif all(map(str.isdecimal, classes)) and not too_large(max(map(int, classes)), len(classes)):
        return {name: int(name) for name in classes}, tuple(str(i) for i in range(max(map(int, classes)) + 1))
    else:
        labels = tuple(classes)
    places = {name: i for i, name in reversed(list(enumerate(labels)))}
    return {name: places[name] for name in classes}, labels


def _boxes(folder: Path, part: str) -> dict[str, tuple[Box, ...]]:
    """By 'class/file'; a boxes.csv above the splits names files as 'split/class/file'."""
    boxes: dict[str, tuple[Box, ...]] = {}
    for where, before in {folder: f"{part}/" if part else "", folder / part: ""}.items():
        if not (where / "boxes.csv").is_file():
            continue
        for line, row in table(where / "boxes.csv", ("file", "boxes")):
            if row["file"].startswith(before):
                name = row["file"].removeprefix(before)
                boxes[name] = boxes.get(name, ()) + boxes_of(row["boxes"], line)
    return boxes


def _refuse_misnamed(folder: Path, left: dict[str, tuple[Box, ...]], samples: Sequence[Sample]) -> None:
    """Rows for pictures left out on purpose are fine; if no row fits any picture, the names are wrong."""
    if left and not any(sample.boxes for sample in samples):
        why = "a file is written class/picture, as seen from boxes.csv"
        raise BadChoice(f"boxes.csv in {folder} names no picture that is there: it has {next(iter(left))!r}; {why}")
