"""Picture folders in torchvision's ImageFolder layout: class/picture files, with an optional boxes.csv."""

import csv
from collections.abc import Sequence
from pathlib import Path

from fovea.data.samples import Box, DataSet, File, Sample, boxes_of
from fovea.errors import BadChoice
from fovea.pictures import is_picture_name


def open_folder(folder: Path, names: Sequence[str] | None = None) -> DataSet:
    """The class is its folder's place among `names`, or in sorted order, or its number when every folder is one.

    boxes.csv beside the classes (file,boxes; several rows or ';' for several boxes) gives the boxes.
    """
    classes = sorted(one.name for one in folder.iterdir() if one.is_dir())
    if not classes:
        raise BadChoice(f"{folder} holds neither manifest.csv nor a folder a class")
    if names is not None and set(classes) <= set(names):
        labels = tuple(names)
    elif all(map(str.isdecimal, classes)):
        labels = tuple(str(i) for i in range(max(map(int, classes)) + 1))
    else:
        labels = tuple(classes)
    number = {name: int(name) if name.isdecimal() and name not in labels else labels.index(name) for name in classes}
    boxes: dict[str, tuple[Box, ...]] = {}
    if (folder / "boxes.csv").is_file():
        with open(folder / "boxes.csv", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                boxes[row["file"]] = boxes.get(row["file"], ()) + boxes_of(row["boxes"])
    samples = [
        Sample(str(path), number[name], File(path), boxes.get(path.relative_to(folder).as_posix(), ()))
        for name in classes
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and is_picture_name(path)
    ]
    return DataSet(folder.name, tuple(samples), labels)
