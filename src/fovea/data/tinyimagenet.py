"""Tiny-ImageNet as published: wnids.txt, words.txt, train/<wnid>/images/ with <wnid>_boxes.txt, val/images/.

Boxes are x0 y0 x1 y1 in 64 x 64 pixels, 0-based with the last pixel counted (0 to 63), so that x1 = 63 + 1."""

from pathlib import Path

from fovea.basics import BadChoice
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import demand, demand_pictures, lines
from fovea.data.samples import Below, Box, DataSet, Sample, corners


def is_tiny_imagenet(folder: Path) -> bool:
    return (folder / "wnids.txt").is_file() or (folder / "val/val_annotations.txt").is_file()


@layout(
    "tiny-imagenet",
    about="200 classes: `wnids.txt`, `train/`",
    folders=("tiny-imagenet-200",),
    recognizes="is_tiny_imagenet",
)
def open_tiny_imagenet(folder: Path, *, split: str | None = None) -> DataSet:
    """200 classes, split=train or val. Labels are 0 to 199 in the order of the sorted wnids, not that of wnids.txt."""
    if split == "test":
        raise BadChoice("the test pictures of tiny-imagenet have no published labels; use split=val")
    asked = splits_asked("tiny-imagenet", split, ("train", "val"))
    demand("tiny-imagenet", folder, ("wnids.txt", "words.txt"))
    wnids = sorted(line.strip() for _, line in lines(folder / "wnids.txt"))
    number = {wnid: i for i, wnid in enumerate(wnids)}
    samples = []
    if "train" in asked:
        demand("tiny-imagenet", folder, [f"train/{wnid}/{wnid}_boxes.txt" for wnid in wnids])
        for wnid in wnids:
            row = {"split": "train", "wnid": wnid}
            for file, *box in _rows(folder / f"train/{wnid}/{wnid}_boxes.txt", 5):
                name = f"train/{wnid}/images/{file}"
                samples.append(Sample(name, number[wnid], Below(folder, name), _box(box, file), row))
    if "val" in asked:
        demand("tiny-imagenet", folder, ("val/val_annotations.txt", "val/images"))
        rows = {wnid: {"split": "val", "wnid": wnid} for wnid in wnids}
        for file, wnid, *box in _rows(folder / "val/val_annotations.txt", 6):
            if wnid not in number:
                raise BadChoice(f"tiny-imagenet in {folder} is inconsistent: {file} is of {wnid}, not in wnids.txt")
            name = f"val/images/{file}"
            samples.append(Sample(name, number[wnid], Below(folder, name), _box(box, file), rows[wnid]))
    demand_pictures("tiny-imagenet", samples)
    return DataSet("tiny-imagenet", tuple(samples), _names(folder, wnids))


def _names(folder: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first of a class's words; all of them where two classes share the first."""
    words = dict(line.rstrip("\r").split("\t", 1) for _, line in lines(folder / "words.txt") if "\t" in line)
    full = [words.get(wnid, wnid) for wnid in wnids]
    short = [words_.partition(",")[0] for words_ in full]
    return tuple(long if short.count(first) > 1 else first for first, long in zip(short, full, strict=True))


def _rows(path: Path, count: int) -> list[list[str]]:
    found = []
    for i, line in lines(path):
        cells = line.split()
        if len(cells) != count or not all(map(str.isdecimal, cells[-4:])):
            raise BadChoice(f"{path}, line {i}: expected a file and a box of four numbers, got {line!r}")
        found.append(cells)
    return found


def _box(cells: list[str], file: str) -> tuple[Box, ...]:
    x0, y0, x1, y1 = corners(cells, file)
    return ((x0, y0, x1 + 1, y1 + 1),)
