"""A labeled picture, where its pixels come from, and a set of them. Nothing is decoded until it is asked for."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadChoice, BadPicture, Bound, demand_bounds, shown
from fovea.pictures import from_array, read, read_all, read_bytes

Bytes = NDArray[np.uint8]
PIXELS = Bound(-1e6, 1e6, real=True)
Box = tuple[float, float, float, float]  # x0 y0 x1 y1, half open, in the picture's own pixels


UNLABELED = ("",)  # the labels of a set that has none


class Source(Protocol):
    """Where a picture's pixels come from; cheap to copy to another process."""

    def read(self) -> Image.Image: ...  # or BadPicture


class Annotation(Protocol):
    """Where a picture's boxes are written, for sets with one file per picture: too many to read them all at opening."""

    def read(self) -> tuple[Box, ...]: ...  # or BadPicture


def inside(folder: Path, name: str) -> Path:
    """The file that a list of the set names; one that would lead out of its folder is not followed."""
    if leads_out(name):
        raise BadPicture(f"{shown(name)} is not read: it leads out of {folder}")
    return folder / name


def leads_out(name: str) -> bool:
    return "\0" in name or os.path.isabs(name) or ".." in re.split(r"[/\\]", name)


@dataclass(frozen=True, slots=True)
class Below:
    """A file of a large set: a million of them share one folder, and only their names take memory."""

    folder: Path
    name: str

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def read(self) -> Image.Image:
        return read(inside(self.folder, self.name))


@dataclass(frozen=True)
class Member:
    """A file inside an uncompressed tar: any number of readers, none of which keeps it open. It lies in the shard as a
    whole, so that reading takes no more memory than there are bytes."""

    shard: Path
    name: str
    offset: int
    size: int

    def read(self) -> Image.Image:
        try:
            with open(self.shard, "rb") as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            reason = f"{self.name} cannot be read from {self.shard.name}: {error.strerror}"
            raise BadPicture(reason, passing=True) from None
        return read_bytes(data, self.name)


@dataclass(frozen=True, eq=False)
class Pixels:
    """A small picture that is in memory already."""

    values: NDArray[np.uint8]  # H,W

    def read(self) -> Image.Image:
        return from_array(self.values)


@dataclass(frozen=True)
class Unreadable:
    reason: str

    def read(self) -> Image.Image:
        raise BadPicture(self.reason)


@dataclass(frozen=True)
class Cropped:
    """A part of a picture: half-open x0 y0 x1 y1, in whole pixels of it."""

    source: Source
    box: tuple[int, int, int, int]

    def read(self) -> Image.Image:
        image = self.source.read()
        x0, y0, x1, y1 = self.box
        x1, y1 = min(x1, image.width), min(y1, image.height)
        if x0 >= x1 or y0 >= y1:
            raise BadPicture(f"its boxes lie outside of its {image.width} x {image.height} pixels")
        return image.crop((x0, y0, x1, y1))


class _Boxes:
    """The field `boxes`: a tuple, or an annotation that becomes one the first time it is looked at."""

    def __get__(self, sample: "Sample | None", owner: type) -> tuple[Box, ...]:
        if sample is None:
            return ()
        given: tuple[Box, ...] | Annotation = sample.__dict__["_boxes"]
        if not isinstance(given, tuple):
            given = given.read()
            object.__setattr__(sample, "_boxes", given)
        return given

    def __set__(self, sample: "Sample", given: tuple[Box, ...] | Annotation) -> None:
        object.__setattr__(sample, "_boxes", given)


@dataclass(frozen=True)
class Sample:
    name: str  # the file's path, or its name in the set
    label: int
    source: Source
    boxes: _Boxes = _Boxes()  # given as a tuple or an Annotation, seen as a tuple
    row: Mapping[str, str] = field(default_factory=dict, compare=False)  # what else the set says about it

    def read(self) -> Image.Image:
        """Decoded now, or BadPicture."""
        return self.source.read()


@dataclass(frozen=True)
class DataSet:
    """A named set of labeled pictures. `labels` are the names of all classes, also of those not in this part."""

    name: str
    samples: tuple[Sample, ...] = field(repr=False)
    labels: tuple[str, ...] = ()

    @property
    def labeled(self) -> bool:
        return self.labels != UNLABELED

    def __len__(self) -> int:
        return len(self.samples)

    def first(self, count: int | None) -> "DataSet":
        """At most so many samples, spread evenly over the set."""
        demand_bounds({"limit": count})
        if count is None or count >= len(self):
            return self
        picked = np.linspace(0, len(self) - 1, count).round().astype(int)
        return replace(self, samples=tuple(self.samples[i] for i in picked))

    def only(self, labels: Collection[int]) -> "DataSet":
        """The samples of these classes."""
        kept = tuple(sample for sample in self.samples if sample.label in labels)
        if not kept:
            raise BadChoice(f"{self.name} has no picture of the classes asked for (it has 0 to {len(self.labels) - 1})")
        return replace(self, samples=kept)

    def with_boxes(self) -> "DataSet":
        """The samples with boxes, all of which are read now. One whose boxes cannot be read stays, as a picture that
        cannot be read: whoever iterates reports it."""
        return replace(self, samples=tuple(sample for sample in map(_boxes_read, self.samples) if sample is not None))

    def cropped(self) -> "DataSet":
        """Every picture cut to the smallest rectangle around its boxes; one that has none stays whole."""
        return replace(self, samples=tuple(map(_cropped, self.samples)))

    def read(self) -> Iterator[tuple[Sample, Image.Image | BadPicture]]:
        """Each sample with its picture, or with the reason why it cannot be read."""
        return zip(self.samples, read_all(self.samples), strict=True)


def of_arrays(name: str, parts: Iterable[str], read: Callable[[str], tuple[Bytes, ...]], wide: int) -> DataSet:
    """Digits that are in memory, split by split: `read` gives pictures (N,H,W) and labels (N)."""
    samples = []
    for part in parts:
        row = {"split": part}
        for i, (image, label) in enumerate(zip(*read(part), strict=True)):
            samples.append(Sample(f"{part}/{i:0{wide}}", int(label), Pixels(image), (), row))
    return DataSet(name, tuple(samples), tuple(map(str, range(10))))


def _boxes_read(sample: Sample) -> Sample | None:
    try:
        return sample if sample.boxes else None
    except BadPicture as reason:
        return Sample(sample.name, sample.label, Unreadable(str(reason)), (), sample.row)


def _cropped(sample: Sample) -> Sample:
    try:
        boxes = sample.boxes
    except BadPicture as reason:
        return Sample(sample.name, sample.label, Unreadable(str(reason)), (), sample.row)
    if not boxes:
        return sample
    starts, ends = np.floor(np.min(boxes, 0)[:2]).clip(0), np.ceil(np.max(boxes, 0)[2:])
    (x0, y0), (x1, y1) = starts.astype(int).tolist(), ends.astype(int).tolist()
    moved = tuple((a - x0, b - y0, c - x0, d - y0) for a, b, c, d in boxes)
    return Sample(sample.name, sample.label, Cropped(sample.source, (x0, y0, x1, y1)), moved, sample.row)


def corners(cells: Iterable[str], where: str) -> list[float]:
    """The numbers of a box, in pixels."""
    return [PIXELS.read(f"{where}: a corner of a box", cell) for cell in cells]


def boxes_of(text: str, where: str = "") -> tuple[Box, ...]:
    """'x0 y0 x1 y1;x0 y0 x1 y1'; `where` they are written begins the error."""
    found, before = [], f"{where}: " if where else ""
    for box in filter(None, map(str.strip, (text or "").split(";"))):
        try:
            x0, y0, x1, y1 = corners(box.split(), where)
        except ValueError:
            raise BadChoice(f"{before}a box is 'x0 y0 x1 y1'; got {shown(box)}") from None
        if not (x0 < x1 and y0 < y1):
            raise BadChoice(f"{before}a box is 'x0 y0 x1 y1' with x0 < x1 and y0 < y1; got {shown(box)}")
        found.append((x0, y0, x1, y1))
    return tuple(found)
