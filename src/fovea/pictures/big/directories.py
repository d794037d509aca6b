"""TIFF's directories: the tags of each stored picture, which are small, with values that are read when asked for.

Of the tables of where tiles lie, a megabyte for 65,536 of them, only single entries are read.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from fovea.basics import BadPicture
from fovea.pictures.big.source import CountedFile

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
TYPES = {1: "B", 2: "s", 3: "H", 4: "I", 5: "II", 6: "b", 7: "s", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d",
         13: "I", 16: "Q", 17: "q", 18: "Q"}  # fmt: skip
MOST_TAGS, MOST_DIRECTORIES, MOST_BYTES = 512, 1024, 1 << 20  # of a directory, a file, and of a tag's values
REDUCED, MASK = 1, 4  # bits of a directory's subfile type


class Tag(IntEnum):
    SUBFILE, WIDTH, HEIGHT, BITS, COMPRESSION = 254, 256, 257, 258, 259
    PHOTOMETRIC, FILL_ORDER, DESCRIPTION, MAKE, MODEL = 262, 266, 270, 271, 272
    STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS_PER_STRIP, STRIP_BYTES = 273, 274, 277, 278, 279
    PLANAR, SOFTWARE, PREDICTOR, TILE_WIDTH, TILE_HEIGHT = 284, 305, 317, 322, 323
    TILE_OFFSETS, TILE_BYTES, SUB_DIRECTORIES, EXTRA_SAMPLES, SAMPLE_FORMAT = 324, 325, 330, 338, 339
    JPEG_TABLES, XMP, GEO_SCALE, GEO_TRANSFORM, GEO_KEYS, NODATA = 347, 700, 33550, 34264, 34735, 42113


KNOWN = frozenset(Tag)


@dataclass(frozen=True)
class Entry:
    kind: int
    count: int
    offset: int  # of its values in the file


@dataclass(frozen=True)
class Directory:
    """The tags of one stored picture."""

    file: CountedFile
    order: str
    entries: dict[int, Entry]

    def values(self, tag: Tag, first: int = 0, most: int | None = None) -> tuple[Any, ...]:
        """From the `first` value on, `most` of them or all; nothing where there is no such tag."""
        entry = self.entries.get(tag)
        if entry is None:
            return ()
        form = TYPES[entry.kind]
        size = struct.calcsize(f"={form}")
        count = entry.count - first if most is None else min(entry.count - first, most)
        if count < 0 or count * size > MOST_BYTES:
            raise BadPicture(f"{self.file.path} is damaged: {entry.count:,} values of {tag.name.lower()}")
        data = self.file.read(entry.offset + first * size, count * size)
        return (data,) if form == "s" else struct.unpack(f"{self.order}{count * form}", data)

    def number(self, tag: Tag, default: int = 0) -> int:
        value = next(iter(self.values(tag, most=1)), default)
        if not isinstance(value, int):
            raise BadPicture(f"{self.file.path} is damaged: its {tag.name.lower()} is no whole number")
        return value

    def text(self, tag: Tag) -> str:
        data = self.values(tag, most=MOST_BYTES)
        return data[0].split(b"\0")[0].decode("utf-8", "replace") if data and isinstance(data[0], bytes) else ""

    @cached_property
    def size(self) -> tuple[int, int]:
        return self.number(Tag.WIDTH), self.number(Tag.HEIGHT)

    @property
    def tiled(self) -> bool:
        return Tag.TILE_OFFSETS in self.entries


def directories(file: CountedFile) -> Iterator[Directory]:
    """Of the file's chain, those below the first (its SubIFDs) right after it. Each once, wherever a chain leads."""
    head = file.read(0, min(16, file.size))
    if head[:4] not in MAGIC:
        raise BadPicture(f"{file.path} is no TIFF file")
    order, big = "<" if head[:1] == b"I" else ">", b"+" in head[2:4]
    if len(head) < (16 if big else 8):
        raise BadPicture(f"{file.path} is damaged or cut short: it ends within its first 16 bytes")
    offset = struct.unpack(f"{order}{'Q' if big else 'I'}", head[8:] if big else head[4:8])[0]
    known = set[int]()
    while offset and offset not in known and len(known) < MOST_DIRECTORIES:
        first = not known
        known.add(offset)
        directory, offset = _directory(file, offset, order, big)
        yield directory
        for below in directory.values(Tag.SUB_DIRECTORIES)[:MOST_DIRECTORIES] if first else ():
            if below not in known and len(known) < MOST_DIRECTORIES:
                known.add(below)
                yield _directory(file, below, order, big)[0]


def _directory(file: CountedFile, offset: int, order: str, big: bool) -> tuple[Directory, int]:
    head, length, wide = (8, 20, "Q") if big else (2, 12, "I")
    count = struct.unpack(f"{order}{'Q' if big else 'H'}", file.read(offset, head))[0]
    if count > MOST_TAGS:
        raise BadPicture(f"{file.path} is damaged: a directory of {count:,} tags")
    room, entries = struct.calcsize(wide), {}
    data = file.read(offset + head, count * length + room)
    for place in range(0, count * length, length):
        code, kind, values = struct.unpack_from(f"{order}HH{wide}", data, place)
        if kind in TYPES and code in KNOWN:
            at = offset + head + place + 4 + room
            if values * struct.calcsize(f"={TYPES[kind]}") > room:
                at = struct.unpack_from(f"{order}{wide}", data, place + 4 + room)[0]
            entries[code] = Entry(kind, values, at)
    return Directory(file, order, entries), struct.unpack_from(f"{order}{wide}", data, count * length)[0]
