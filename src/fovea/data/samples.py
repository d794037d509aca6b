"""A labelled picture, where its pixels come from, and a set of them. Nothing is decoded until it is asked for."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from fovea.errors import BadChoice, BadPicture
from fovea.pictures import read, read_bytes

Box = tuple[float, float, float, float]  # x0 y0 x1 y1, half open, in the picture's own pixels


class Source(Protocol):
    """Where a picture's pixels come from; cheap to copy to another process."""

    def read(self) -> Image.Image: ...  # or BadPicture


@dataclass(frozen=True)
class File:
    path: Path

    def read(self) -> Image.Image:
        return read(self.path)


@dataclass(frozen=True)
class Member:
    """A file inside an uncompressed tar: any number of readers, none of which keeps it open."""

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
            raise BadPicture(f"{self.name} cannot be read from {self.shard.name}: {error.strerror}") from None
        return read_bytes(data, self.name)


@dataclass(frozen=True)
class Unreadable:
    reason: str

    def read(self) -> Image.Image:
        raise BadPicture(self.reason)


@dataclass(frozen=True)
class Sample:
    name: str  # the file's path, or its name in the set
    label: int
    source: Source
    boxes: tuple[Box, ...] = ()
    row: Mapping[str, str] = field(default_factory=dict, compare=False)  # what else the set says about it


@dataclass(frozen=True)
class DataSet:
    """A named set of labelled pictures. `labels` are the names of all classes, also of those not in this part."""

    name: str
    samples: tuple[Sample, ...]
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def first(self, count: int | None) -> "DataSet":
        """At most so many samples, spread evenly over the set."""
        if count is None or count >= len(self):
            return self
        if count < 1:
            raise BadChoice(f"a limit is at least 1; got {count}")
        picked = np.linspace(0, len(self) - 1, count).round().astype(int)
        return replace(self, samples=tuple(self.samples[i] for i in picked))

    def only(self, labels: Collection[int]) -> "DataSet":
        """The samples of these classes."""
        kept = tuple(sample for sample in self.samples if sample.label in labels)
        if not kept:
            raise BadChoice(f"{self.name} has no picture of the classes asked for (it has 0 to {len(self.labels) - 1})")
        return replace(self, samples=kept)

    def with_boxes(self) -> "DataSet":
        return replace(self, samples=tuple(sample for sample in self.samples if sample.boxes))

    def read(self) -> Iterator[tuple[Sample, Image.Image | BadPicture]]:
        """Each sample with its picture, or with the reason why it cannot be read."""
        for sample in self.samples:
            try:
                image: Image.Image | BadPicture = sample.source.read()
            except BadPicture as reason:
                image = reason
            yield sample, image


def boxes_of(text: str) -> tuple[Box, ...]:
    """'x0 y0 x1 y1;x0 y0 x1 y1'."""
    found = []
    for one in filter(None, map(str.strip, (text or "").split(";"))):
        try:
            x0, y0, x1, y1 = (float(number) for number in one.split())
        except ValueError:
            raise BadChoice(f"a box is 'x0 y0 x1 y1'; got {one!r}") from None
        found.append((x0, y0, x1, y1))
    return tuple(found)
