"""ILSVRC-2012: train/<wnid>/*.JPEG, val/ flat or in wnid folders, boxes from the XML where they are unpacked.

Labels are in the usual order, that of the 1000 sorted wnids; the devkit numbers its classes otherwise. Of a flat val/
the classes come from the devkit or from the XML. Boxes: see xmlboxes.py."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from fovea.basics import BadChoice, BadPicture
from fovea.data.classes import imagenet_labels
from fovea.data.layouts import layout
from fovea.data.matlab import columns
from fovea.data.options import splits_asked
from fovea.data.places import lines, pictures, subfolders
from fovea.data.samples import Below, Box, DataSet, Sample, Unreadable
from fovea.data.xmlboxes import XmlBoxes, read_marked

PICTURES = ("Data/CLS-LOC/{}", "{}", "ILSVRC2012_img_{}")
PACKED = "ILSVRC2012_bbox_{}"  # as the archives of boxes are called
BOXES = ("Annotations/CLS-LOC/{}", "Annotations/{}", "bbox/{}", PACKED, f"{PACKED}_v3/{{}}", f"{PACKED}_v2")
DEVKITS = ("ILSVRC2012_devkit_t12/data", "devkit/data")
TRUTH = "ILSVRC2012_validation_ground_truth.txt"


def is_imagenet(folder: Path) -> bool:
    """Not every folder of wnids: a few classes of it, as Imagenette, are a picture folder with labels of its own."""
    if any((folder / place).is_dir() for place in ("Data/CLS-LOC", *DEVKITS)):
        return True
    flat = os.listdir(folder / "val") if (folder / "val").is_dir() else ()
    whole = any(len(_wnids(folder / part)) >= 1000 for part in ("train", "val"))
    return whole or any(name.startswith("ILSVRC2012_val_") for name in flat)


@layout(
    "imagenet",
    about="1000 classes: `train/`, `val/`",
    folders=("ILSVRC2012", "ILSVRC", "imagenet-1k"),
    recognizes="is_imagenet",
)
def open_imagenet(folder: Path, *, split: str | None = None) -> DataSet:
    """1000 classes, split=train or val; boxes are read when looked at. A set with other wnids has those, sorted."""
    if split == "test":
        raise BadChoice("the test pictures of imagenet have no published labels; use split=val")
    there = {part: place for part in ("train", "val") if (place := _first(folder, PICTURES, part))}
    if not there:
        places = ", ".join(place.format("train|val") for place in PICTURES)
        raise BadChoice(f"imagenet is incomplete: no folder of pictures in {folder} (looked for {places})")
    asked = splits_asked(f"imagenet in {folder}", split, tuple(there))
    found = sorted({wnid for place in there.values() for wnid in _wnids(folder / place)})
    wnids, names = _classes(found)
    number = {wnid: i for i, wnid in enumerate(wnids)}
    samples: list[Sample] = []
    for part in asked:
        in_folders = _wnids(folder / there[part])
        if in_folders:
            samples += _from_folders(folder, part, there[part], in_folders, number)
        else:
            samples += _from_flat(folder, part, there[part], number)
    if not samples:
        places = ", ".join(str(folder / there[part]) for part in asked)
        raise BadChoice(f"imagenet is incomplete: no picture in {places}")
    return DataSet("imagenet", tuple(samples), names)


def _classes(found: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """The wnids that number the classes, and the classes' names."""
    from timm.data import ImageNetInfo

    usual: list[str] = ImageNetInfo("imagenet-1k").label_names()
    return (usual, imagenet_labels()) if set(found) <= set(usual) else (found, tuple(found))


def _first(folder: Path, places: Sequence[str], part: str) -> str | None:
    return next((path for path in (place.format(part, part) for place in places) if (folder / path).is_dir()), None)


def _wnids(folder: Path) -> list[str]:
    return [name for name in subfolders(folder) if re.fullmatch(r"n\d{8}", name)]


def _from_folders(folder: Path, part: str, place: str, wnids: list[str], number: dict[str, int]) -> Iterator[Sample]:
    marked = _first(folder, BOXES, part)
    for wnid in wnids:
        row = {"split": part, "wnid": wnid}
        inside = marked and (f"{marked}/{wnid}" if (folder / marked / wnid).is_dir() else marked)
        for file in pictures(folder / place / wnid):
            name = f"{place}/{wnid}/{file}"
            boxes = XmlBoxes(folder, f"{inside}/{_stem(file)}.xml") if inside else ()
            yield Sample(name, number[wnid], Below(folder, name), boxes, row)


def _from_flat(folder: Path, part: str, place: str, number: dict[str, int]) -> Iterator[Sample]:
    """Nothing but an index can tell the classes, so the XML are all read where there is no devkit. A picture without a
    class cannot be used; it stays as one that cannot be read, so that it is reported."""
    marked = _first(folder, BOXES, part) or place  # the archive of XML unpacks into val/ too
    truth = _truth(folder)
    rows = {wnid: {"split": part, "wnid": wnid} for wnid in number}
    nameless, files = 0, pictures(folder / place)
    for file in files:
        name, xml = f"{place}/{file}", XmlBoxes(folder, f"{marked}/{_stem(file)}.xml")
        try:
            wnid, boxes = _said(xml) if truth is None else (truth.get(_stem(file), ""), xml)
            if wnid not in number:
                raise BadPicture(f"{wnid!r} is none of the classes")
        except BadPicture as reason:
            nameless += 1
            yield Sample(name, 0, Unreadable(f"{name} has no class: {reason}"))
        else:
            yield Sample(name, number[wnid], Below(folder, name), boxes, rows[wnid])
    if files and nameless == len(files):
        raise BadChoice(
            f"imagenet is incomplete: {place}/ is flat and none of its {len(files):,} pictures has a class. It comes "
            f"from the XML (looked for {xml.path}) or from {TRUTH} and meta.mat (looked in {folder / DEVKITS[0]})"
        )


def _said(xml: XmlBoxes) -> tuple[str, tuple[Box, ...] | XmlBoxes]:
    """The class of the first object, and the boxes."""
    try:
        found = read_marked(xml.path)
    except FileNotFoundError:
        raise BadPicture(f"{xml.path} does not exist") from None
    return found.names[0] if found.names else "", found.boxes


def _truth(folder: Path) -> dict[str, str] | None:
    """The wnid of every validation picture: the i-th line is the devkit's class of the i-th picture."""
    devkit = next((folder / place for place in DEVKITS if (folder / place / TRUTH).is_file()), None)
    if devkit is None or not (devkit / "meta.mat").is_file():
        return None
    wnid_of = dict(zip(*columns(devkit / "meta.mat", ("ILSVRC2012_ID", "WNID"), "synsets"), strict=True))
    return {f"ILSVRC2012_val_{i:08}": wnid_of.get(line.strip(), "") for i, line in lines(devkit / TRUTH)}


def _stem(file: str) -> str:
    return file.rpartition("/")[2].rpartition(".")[0]
