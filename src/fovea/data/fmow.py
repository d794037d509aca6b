"""fMoW-rgb as published: <split>/<category>/<category>_<n>/<category>_<n>_<m>_rgb.jpg with a .json beside each.

The json's bounding_boxes have box = x y width height in the picture's pixels, 0-based: x1 = x + width."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fovea.basics import BadChoice, BadPicture, Record, contents
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import subfolders
from fovea.data.samples import Below, Box, DataSet, Sample, inside

PICTURE = "_rgb.jpg"  # the _msrgb.jpg beside them show the same places in the colors of another sensor
LONGEST = 10_000_000  # bytes of a .json
Length = Annotated[float, Field(ge=-1e6, le=1e6)]  # pixels
FOLDERS = {"train": ("train",), "val": ("val",), "test": ("test_gt", "test")}


class Mark(Record, extra="ignore"):
    box: tuple[Length, Length, Length, Length]  # x y width height
    category: str | None = None


class Marks(Record, extra="ignore"):
    bounding_boxes: list[Mark] | Mark


@dataclass(frozen=True, slots=True)
class JsonBoxes:
    """The boxes of the picture's own category, as listed; where none says its category, the first box."""

    folder: Path
    file: str
    category: str

    def read(self) -> tuple[Box, ...]:
        path = inside(self.folder, self.file)
        try:
            content = contents(path, LONGEST)
        except FileNotFoundError:
            return ()
        except (OSError, BadChoice) as error:
            raise BadPicture(f"the boxes in {path} cannot be read: {error}") from None
        listed = Marks.read(content, path, "its picture is left out", BadPicture).bounding_boxes
        listed = listed if isinstance(listed, list) else [listed]
        marked = [item.box for item in listed if item.category == self.category] or [item.box for item in listed[:1]]
        return tuple((x, y, x + width, y + height) for x, y, width, height in marked)


def is_fmow(folder: Path) -> bool:
    return any(_categories(folder / name) for names in FOLDERS.values() for name in names)


@layout("fmow", about="62 kinds of places: `<split>/<category>/`", folders=("fmow-rgb",), recognizes="is_fmow")
def open_fmow(folder: Path, *, split: str | None = None) -> DataSet:
    """62 categories, split=train, val or test. Labels are the categories sorted; boxes are read when looked at."""
    there = {key: next((name for name in names if _categories(folder / name)), None) for key, names in FOLDERS.items()}
    if not any(there.values()):
        raise BadChoice(
            f"fmow is incomplete: no train/, val/, test/ or test_gt/ in {folder} "
            "with <category>/<category>_<n>/<...>_rgb.jpg (fMoW-rgb; the test pictures need their categories)"
        )
    asked = splits_asked(f"fmow in {folder}", split, [part for part, name in there.items() if name])
    categories = sorted({category for name in there.values() if name for category in subfolders(folder / name)})
    number = {name: i for i, name in enumerate(categories)}
    samples = []
    for part in asked:
        for category in subfolders(folder / str(there[part])):
            row = {"split": part}
            for file in _pictures(folder, f"{there[part]}/{category}"):
                boxes = JsonBoxes(folder, file.removesuffix(".jpg") + ".json", category)
                samples.append(Sample(file, number[category], Below(folder, file), boxes, row))
    return DataSet("fmow", tuple(samples), tuple(categories))


def _categories(folder: Path) -> bool:
    """Are there pictures in <category>/<category>_<n>/? A few tell: of unlabeled ones there are tens of thousands."""
    return any(
        name.endswith(("_rgb.jpg", "_rgb.json"))
        for category in subfolders(folder)[:3]
        for place in subfolders(folder / category)[:1]
        if place.startswith(f"{category}_")
        for name in os.listdir(folder / category / place)
    )


def _pictures(folder: Path, category: str) -> Iterator[str]:
    for place in subfolders(folder / category):
        names = (file.name for file in os.scandir(folder / category / place))
        yield from sorted(f"{category}/{place}/{name}" for name in names if name.endswith(PICTURE))
