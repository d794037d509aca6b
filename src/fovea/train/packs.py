"""Labelled pictures: tar packs with a manifest, and folders in ImageFolder's layout, with boxes where they exist."""

import csv
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from fovea.errors import BadChoice, BadPicture, nearest
from fovea.pictures import is_picture_name, read, read_bytes

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Sample:
    name: str
    label: int
    boxes: tuple[Box, ...]
    shard: Path | None  # the tar that holds it, or None for a plain file
    row: dict[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Pack:
    """A named set of labelled pictures on disk. Nothing is decoded until it is asked for."""

    name: str
    samples: tuple[Sample, ...]

    def __len__(self) -> int:
        return len(self.samples)

    def first(self, count: int | None) -> "Pack":
        """At most so many samples, spread evenly over the pack."""
        if count is None or count >= len(self):
            return self
        if count < 1:
            raise BadChoice(f"a limit is at least 1; got {count}")
        return Pack(self.name, tuple(self.samples[i] for i in np.linspace(0, len(self) - 1, count).round().astype(int)))

    def read(self) -> Iterator[tuple[Sample, Image.Image | BadPicture]]:
        """Each sample with its picture, or with the reason why it cannot be read. Shards stay open while in use."""
        open_tars: dict[Path, tarfile.TarFile] = {}
        try:
            for sample in self.samples:
                try:
                    if sample.shard is None:
                        yield sample, read(Path(sample.name))
                        continue
                    if sample.shard not in open_tars:
                        open_tars[sample.shard] = _shard(sample.shard)
                    yield sample, _from_tar(open_tars[sample.shard], sample.name)
                except BadPicture as reason:
                    yield sample, reason
        finally:
            for tar in open_tars.values():
                tar.close()


def _shard(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path)
    except (OSError, tarfile.TarError) as error:
        raise BadPicture(f"the shard {path.name} cannot be read: {error}") from None


def _from_tar(tar: tarfile.TarFile, name: str) -> Image.Image:
    try:
        file = tar.extractfile(name)
        data = file.read() if file is not None else b""
    except (KeyError, OSError, tarfile.TarError) as error:
        raise BadPicture(f"{name} cannot be read from its shard: {error}") from None
    return read_bytes(data, name)


def open_data(given: str | Path, split: str | None = None, labels: Sequence[str] | None = None) -> Pack:
    """A pack or a folder by path, or a pack by name below the folder that FOVEA_DATA names.

    A folder's classes are matched to `labels` by name where they all occur there.
    """
    path, home = Path(given).expanduser(), os.environ.get("FOVEA_DATA")
    if not path.is_dir() and home and Path(home, given).is_dir():
        path = Path(home, given)
    if not path.is_dir():
        names = [one.name for one in Path(home).iterdir() if one.is_dir()] if home and Path(home).is_dir() else []
        where = f"here or in {home}" if home else "here; FOVEA_DATA, where packs are looked for by name, is not set"
        raise BadChoice(f"no data {str(given)!r} {where}{nearest(path.name, names)}")
    if (path / "manifest.csv").is_file():
        return open_pack(path, split)
    return open_folder(path, labels)


def open_pack(folder: Path, split: str | None = None) -> Pack:
    """manifest.csv (file, shard, label, boxes, split, ...) beside its tar shards."""
    with open(folder / "manifest.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    missing_columns = {"file", "shard", "label"} - set(rows[0] if rows else ())
    if missing_columns:
        raise BadChoice(f"{folder / 'manifest.csv'} lacks the columns {', '.join(sorted(missing_columns))}")
    missing = sorted({row["shard"] for row in rows if not (folder / row["shard"]).is_file()})
    if missing:
        raise BadChoice(f"pack {folder.name} is incomplete: {', '.join(missing)} not in {folder}")
    splits = {row.get("split", "") for row in rows}
    if split is not None and split not in splits:
        raise BadChoice(
            f"pack {folder.name} has no split {split!r}{nearest(split, splits)} (it has: {', '.join(sorted(splits))})"
        )
    samples = (
        Sample(row["file"], int(row["label"]), _boxes(row.get("boxes", "")), folder / row["shard"], row)
        for row in rows
        if split is None or row.get("split") == split
    )
    return Pack(folder.name, tuple(samples))


def open_folder(folder: Path, labels: Sequence[str] | None = None) -> Pack:
    """class/picture files; the class is its folder's place in sorted order, or its number when every folder is one.

    boxes.csv beside the classes (file,boxes; several rows or ';' for several boxes) gives the boxes.
    """
    classes = sorted(one.name for one in folder.iterdir() if one.is_dir())
    if not classes:
        raise BadChoice(f"{folder} holds neither manifest.csv nor a folder a class")
    if labels is not None and set(classes) <= set(labels):
        numbers = {name: list(labels).index(name) for name in classes}
    else:
        numbers = {name: int(name) if all(map(str.isdecimal, classes)) else i for i, name in enumerate(classes)}
    boxes: dict[str, tuple[Box, ...]] = {}
    if (folder / "boxes.csv").is_file():
        with open(folder / "boxes.csv", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                boxes[row["file"]] = boxes.get(row["file"], ()) + _boxes(row["boxes"])
    samples = [
        Sample(str(path), numbers[name], boxes.get(path.relative_to(folder).as_posix(), ()), None)
        for name in classes
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and is_picture_name(path)
    ]
    return Pack(folder.name, tuple(samples))


def _boxes(text: str) -> tuple[Box, ...]:
    """'x0 y0 x1 y1;x0 y0 x1 y1'."""
    found = []
    for one in filter(None, map(str.strip, (text or "").split(";"))):
        numbers = [float(n) for n in one.split()]
        if len(numbers) != 4:
            raise BadChoice(f"a box is 'x0 y0 x1 y1'; got {one!r}")
        found.append((numbers[0], numbers[1], numbers[2], numbers[3]))
    return tuple(found)
