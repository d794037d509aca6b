"""fMoW-rgb as published: <split>/<category>/<category>_<n>/<category>_<n>_<m>_rgb.jpg with a .json beside each.

The json's bounding_boxes have box = x y width height in the picture's pixels, 0-based: x1 = x + width.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fovea.basics import BadChoice, BadPicture
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import subfolders
from fovea.data.samples import Below, Box, DataSet, Sample

PICTURE = "_rgb.jpg"  # the _msrgb.jpg beside them show the same places in the colors of another sensor
FOLDERS = {"train": ("train",), "val": ("val",), "test": ("test_gt", "test")}


@dataclass(frozen=True, slots=True)
class JsonBoxes:
    """The boxes of the picture's own category, as listed; where none says its category, the first box."""

    folder: Path
    file: str
    category: str

    def read(self) -> tuple[Box, ...]:
        try:
            listed = json.loads((self.folder / self.file).read_bytes())["bounding_boxes"]
            listed = listed if isinstance(listed, list) else [listed]
            marked = [item for item in listed if item.get("category") == self.category] or listed[:1]
            boxes = [item["box"] for item in marked]
            return tuple((float(x), float(y), float(x + w), float(y + h)) for x, y, w, h in boxes)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadPicture(f"the boxes in {self.folder / self.file} cannot be read: {error!r}") from None


def is_fmow(folder: Path) -> bool:
    return any(_categories(folder / name) for names in FOLDERS.values() for name in names)


@layout("fmow", about="62 kinds of places: `<split>/<category>/`", folders=("fmow-rgb",), recognizes="is_fmow")
def open_fmow(folder: Path, *, split: str | None = None) -> DataSet:
    """62 categories, split=train, val or test. Labels are the categories sorted; boxes are read when looked at."""
    there = {
        part: next((name for name in names if _categories(folder / name)), None) for part, names in FOLDERS.items()
    }
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
