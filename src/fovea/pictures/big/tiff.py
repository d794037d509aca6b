"""TIFF as it lies in the file: directories of tags, stored levels, and single tiles or strips, decoded by imagecodecs.

Only what is needed is read: of the tables of where tiles lie, a megabyte for 65,536 of them, single entries.
"""

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadPicture
from fovea.pictures.big.source import MAX_TILE, CountedFile, Level, Pixels, advice
from fovea.pictures.decoding import open_lazily

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
TYPES = {1: "B", 2: "s", 3: "H", 4: "I", 5: "II", 6: "b", 7: "s", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d",
         13: "I", 16: "Q", 17: "q", 18: "Q"}  # fmt: skip
MOST_TAGS, MOST_DIRECTORIES, MOST_VALUES = 4096, 1024, 1 << 20  # of a directory, a file, and bytes of a tag
WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER, DESCRIPTION = 256, 257, 258, 259, 262, 266, 270
STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS_PER_STRIP, STRIP_BYTES, PLANAR = 273, 274, 277, 278, 279, 284
PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_BYTES, SUB_DIRECTORIES = 317, 322, 323, 324, 325, 330
EXTRA_SAMPLES, SAMPLE_FORMAT, JPEG_TABLES, SUBSAMPLING, SUBFILE, GEO_KEYS, NODATA = (
    338,
    339,
    347,
    530,
    254,
    34735,
    42113,
)
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6
JPEG, J2K_YCBCR, WEBP = 7, 33003, (34927, 50001)
STREAMS = {5: "lzw", 8: "zlib", 32946: "zlib", 32773: "packbits", 34925: "lzma", 34926: "zstd", 50000: "zstd"}
PICTURES = {JPEG: "jpeg8", J2K_YCBCR: "jpeg2k", 33005: "jpeg2k", 34712: "jpeg2k", **dict.fromkeys(WEBP, "webp")}
REDUCED, MASK = 1, 4  # bits of a directory's kind


@dataclass(frozen=True)
class Tag:
    kind: int
    count: int
    offset: int  # of its values in the file


@dataclass(frozen=True)
class Directory:
    """The tags of one stored picture, their values read when asked for."""

    file: CountedFile
    order: str
    tags: dict[int, Tag]

    def values(self, tag: int, first: int = 0, most: int | None = None) -> tuple[Any, ...]:
        """From the `first` value on, `most` of them or all; nothing where there is no such tag."""
        entry = self.tags.get(tag)
        if entry is None:
            return ()
        form = TYPES[entry.kind]
        size = struct.calcsize(f"={form}")
        count = min(entry.count - first, entry.count if most is None else most)
        if count < 0 or count * size > MOST_VALUES:
            raise BadPicture(f"{self.file.path} is damaged: tag {tag} holds {entry.count:,} values")
        data = self.file.read(entry.offset + first * size, count * size)
        return (data,) if form == "s" else struct.unpack(f"{self.order}{count * form}", data)

    def number(self, tag: int, default: int = 0) -> int:
        return int(next(iter(self.values(tag, most=1)), default))

    def text(self, tag: int) -> str:
        return b"".join(map(bytes, self.values(tag))).split(b"\0")[0].decode("utf-8", "replace")

    @cached_property
    def size(self) -> tuple[int, int]:
        return self.number(WIDTH), self.number(HEIGHT)

    @property
    def tiled(self) -> bool:
        return TILE_OFFSETS in self.tags


def directories(file: CountedFile) -> Iterator[Directory]:
    """Of the file's chain, those below the first (its SubIFDs) right after it."""
    head = file.read(0, min(16, file.size))
    if head[:4] not in MAGIC:
        raise BadPicture(f"{file.path} is no TIFF file")
    order, big = "<" if head[:1] == b"I" else ">", head[2:4] in (b"+\0", b"\0+")
    if len(head) < (16 if big else 8):
        raise BadPicture(f"{file.path} is damaged or cut short: it ends within its first 16 bytes")
    offset = struct.unpack(f"{order}{'Q' if big else 'I'}", head[8:] if big else head[4:8])[0]
    known = set[int]()
    while offset and offset not in known and len(known) < MOST_DIRECTORIES:
        first = not known
        known.add(offset)
        directory, offset = _directory(file, offset, order, big)
        yield directory
        for below in directory.values(SUB_DIRECTORIES)[:MOST_DIRECTORIES] if first else ():
            if below not in known:
                known.add(below)
                yield _directory(file, below, order, big)[0]


def _directory(file: CountedFile, offset: int, order: str, big: bool) -> tuple[Directory, int]:
    head, entry, wide = (8, 20, "Q") if big else (2, 12, "I")
    count = struct.unpack(f"{order}{'Q' if big else 'H'}", file.read(offset, head))[0]
    if count > MOST_TAGS:
        raise BadPicture(f"{file.path} is damaged: a directory of {count:,} tags")
    room = struct.calcsize(wide)
    data = file.read(offset + head, count * entry + room)
    tags = {}
    for place in range(0, count * entry, entry):
        code, kind, values = struct.unpack_from(f"{order}HH{wide}", data, place)
        if kind in TYPES:
            inside = values * struct.calcsize(f"={TYPES[kind]}") <= room
            at = offset + head + place + 4 + room
            tags[code] = Tag(
                kind, values, at if inside else struct.unpack_from(f"{order}{wide}", data, place + 4 + room)[0]
            )
    return Directory(file, order, tags), struct.unpack_from(f"{order}{wide}", data, count * entry)[0]


class TiffSource:
    """A TIFF's full-resolution picture and its smaller copies, in the chain of directories or below the first."""

    def __init__(self, file: CountedFile) -> None:
        self.file, chain = file, directories(file)
        first = next(chain, None)
        if first is None:
            raise BadPicture(f"{file.path} is damaged or cut short: a TIFF file without pictures")
        _refuse(first)
        self._levels = [_Stored(first)]
        for directory in chain:
            if _is_level(directory, first):
                self._levels.append(_Stored(directory))
        self._levels.sort(key=lambda stored: -stored.level.width)
        self.levels = tuple(stored.level for stored in self._levels)
        self.bands, self.bits = first.number(SAMPLES, 1), first.number(BITS, 1)
        self.orientation = first.number(ORIENTATION, 1)
        for stored in self._levels:
            stored.refuse_short()

    @property
    def bytes(self) -> int:
        return self.file.count

    def tile(self, level: int, column: int, row: int) -> Pixels:
        return self._levels[level].tile(column, row)

    def georeference(self) -> tuple[str | None, tuple[float, ...] | None]:
        return None, None


def _is_level(directory: Directory, first: Directory) -> bool:
    """Whether it is the first directory's picture, smaller: the same kind of pixels, the same shape up to rounding."""
    (width, height), (full_width, full_height) = directory.size, first.size
    if not 0 < width < full_width or not 0 < height <= full_height or directory.number(SUBFILE) & MASK:
        return False
    if not directory.tiled and not (directory.number(SUBFILE) & REDUCED and not first.tiled):
        return False  # a thumbnail, a label, another page
    same = all(directory.number(tag, 1) == first.number(tag, 1) for tag in (SAMPLES, BITS))
    slack = 1 + full_width / width
    return same and abs(full_width / width * height - full_height) <= slack


def _refuse(directory: Directory) -> None:
    """What is no picture of 8 or 16 bits, gray or RGB with or without alpha."""
    path, bands, bits = directory.file.path, directory.number(SAMPLES, 1), set(directory.values(BITS)) or {1}
    photometric, compression = directory.number(PHOTOMETRIC, BLACK_IS_ZERO), directory.number(COMPRESSION, 1)
    reason = ""
    if min(directory.size) < 2:
        reason = f"is {directory.size[0]} x {directory.size[1]} pixels: at least 2 x 2 are needed"
    elif photometric == PALETTE:
        reason = "has a palette, and its smaller levels are made of numbers of colors, not of colors"
    elif bands not in (1, 2, 3, 4):
        reason = f"has {bands} bands: 1 (gray), 3 (RGB), or either with alpha can be read"
    elif (not bits <= {8} and not bits <= {16}) or directory.number(SAMPLE_FORMAT, 1) != 1:
        reason = f"has values of {sorted(bits)} bits that are not whole numbers of 8 or 16 bits from 0"
    elif photometric not in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, CMYK, YCBCR):
        reason = f"has colors of a kind that cannot be read (TIFF's photometric interpretation {photometric})"
    elif photometric == YCBCR and compression not in PICTURES:
        reason = "has YCbCr colors that are not compressed as JPEG"
    elif compression != 1 and compression not in STREAMS and compression not in PICTURES:
        reason = f"is compressed in a way that cannot be read (TIFF's compression {compression})"
    elif directory.number(FILL_ORDER, 1) != 1 or directory.number(PREDICTOR, 1) not in (1, 2):
        reason = "stores its bits in an order that cannot be read"
    if reason:
        raise BadPicture(f"{path} {reason}; {advice(path)}")


@dataclass
class _Stored:
    """One stored picture of the file, from which tiles are read."""

    directory: Directory
    level: Level = field(init=False)

    def __post_init__(self) -> None:
        get, (width, height) = self.directory.number, self.directory.size
        self.path = self.directory.file.path
        self.bands, self.photometric = get(SAMPLES, 1), get(PHOTOMETRIC, BLACK_IS_ZERO)
        self.compression, self.predictor, self.planar = get(COMPRESSION, 1), get(PREDICTOR, 1), get(PLANAR, 1) == 2
        self.extra = self.directory.values(EXTRA_SAMPLES)
        self.type = np.dtype(f"{self.directory.order}u{get(BITS, 8) // 8}")
        self.tables = bytes(next(iter(self.directory.values(JPEG_TABLES)), b"")) or None
        if self.directory.tiled:
            self.offsets, self.sizes, tile = TILE_OFFSETS, TILE_BYTES, (get(TILE_WIDTH), get(TILE_HEIGHT))
        else:
            self.offsets, self.sizes = STRIP_OFFSETS, STRIP_BYTES
            tile = width, min(get(ROWS_PER_STRIP, height) or height, height)
        self.level = Level(width, height, *tile)
        if min(tile) < 1 or tile[0] * tile[1] > MAX_TILE:
            raise BadPicture(
                f"{self.path} has tiles or strips of {tile[0]:,} x {tile[1]:,} pixels; {advice(self.path)}"
            )
        self.across, down = math.ceil(width / tile[0]), math.ceil(height / tile[1])
        self.plane = self.across * down
        wanted = self.plane * (self.bands if self.planar else 1)
        counts = [tag.count if (tag := self.directory.tags.get(code)) else 0 for code in (self.offsets, self.sizes)]
        if min(counts) < wanted:
            raise BadPicture(f"{self.path} is damaged: {wanted:,} tiles or strips, but places for {min(counts):,}")

    def refuse_short(self) -> None:
        """A file that ends before its last tile does."""
        size, (offset, length) = self.directory.file.size, self._place(self.plane - 1)
        if offset + length > size:
            raise BadPicture(f"{self.path} is cut short: {size:,} bytes of at least {offset + length:,}")

    def _place(self, index: int) -> tuple[int, int]:
        (offset,), (length,) = (self.directory.values(tag, index, 1) for tag in (self.offsets, self.sizes))
        return offset, length

    def tile(self, column: int, row: int) -> Pixels:
        index = row * self.across + column
        if self.planar:
            parts = [self._segment(index + band * self.plane, 1, row) for band in range(self.bands)]
            values = np.concatenate(parts, -1)
        else:
            values = self._segment(index, self.bands, row)
        width = min(self.level.tile_width, self.level.width - column * self.level.tile_width)
        height = min(self.level.tile_height, self.level.height - row * self.level.tile_height)
        return as_eight_bits(values[:height, :width], self.photometric, self.extra)

    def _segment(self, index: int, bands: int, row: int) -> NDArray[np.generic]:
        """One tile or strip as it is stored, h,w,bands."""
        offset, length = self._place(index)
        rows = self.level.tile_height
        if not self.directory.tiled:
            rows = min(rows, self.level.height - row * rows)
        shape = rows, self.level.tile_width, bands
        if not offset or not length:  # never written, as in sparse files
            return np.full(shape, self._nodata, self.type)
        if length > self.directory.file.size:
            raise BadPicture(f"{self.path} is damaged: a tile of {length:,} bytes")
        data = self.directory.file.read(offset, length)
        if self.compression in PICTURES:
            return self._decoded(data, shape)
        expected = math.prod(shape) * self.type.itemsize
        if self.compression != 1:
            data = _codec(STREAMS[self.compression])(data, out=expected)
        if len(data) < expected:
            raise BadPicture(f"{self.path} is damaged: a tile of {len(data):,} bytes instead of {expected:,}")
        values = np.frombuffer(data, self.type, math.prod(shape)).reshape(shape)
        if self.predictor == 2:
            values = np.cumsum(values, 1, self.type.newbyteorder("="))
        return values

    def _decoded(self, data: bytes, shape: tuple[int, int, int]) -> NDArray[np.generic]:
        """A tile that is a picture of its own, no larger than it should be."""
        with open_lazily(BytesIO(data)) as image:
            size = image.size
        if size[0] > shape[1] or size[1] > shape[0]:
            raise BadPicture(
                f"{self.path} is damaged: a tile of {size[0]:,} x {size[1]:,} instead of {shape[1]:,} x {shape[0]:,}"
            )
        options: dict[str, Any] = {}
        if self.compression == JPEG:
            color = {RGB: "RGB", YCBCR: "YCBCR", CMYK: "CMYK"}.get(self.photometric) if shape[2] > 1 else None
            options = {
                "tables": self.tables,
                "colorspace": color,
                "outcolorspace": "RGB" if color == "YCBCR" else color,
            }
        elif self.compression in WEBP:
            options = {"hasalpha": shape[2] == 4}
        values = _codec(PICTURES[self.compression])(data, **options)
        values = values[..., None] if values.ndim == 2 else values
        if values.ndim != 3 or values.shape[2] != shape[2]:
            raise BadPicture(f"{self.path} is damaged: a tile of shape {values.shape} instead of {shape}")
        if self.compression == J2K_YCBCR:
            values = np.asarray(Image.fromarray(values, "YCbCr").convert("RGB"))
        short = [(0, wanted - got) for wanted, got in zip(shape[:2], values.shape[:2], strict=True)]
        return np.pad(values, (*short, (0, 0))) if any(more for _, more in short) else values

    @cached_property
    def _nodata(self) -> int:
        match = re.match(r"\s*(\d+)", self.directory.text(NODATA)) if NODATA in self.directory.tags else None
        return min(int(match[1]), int(np.iinfo(self.type).max)) if match else 0


def _codec(name: str) -> Callable[..., Any]:
    import imagecodecs

    return getattr(imagecodecs, f"{name}_decode")


def as_eight_bits(values: NDArray[np.generic], photometric: int, extra: tuple[int, ...]) -> Pixels:
    """Gray or RGB of 8 bits, as every picture is decoded: 16 bits over 257, alpha on white."""
    if values.dtype.itemsize == 2:
        values = np.rint(np.arange(65536) / 257).astype(np.uint8)[values]
    eight = values.astype(np.uint8, copy=False)
    bands = eight.shape[2]
    if photometric == CMYK:
        return np.asarray(Image.fromarray(np.ascontiguousarray(eight), "CMYK").convert("RGB"))
    if photometric == WHITE_IS_ZERO:
        eight = np.concatenate([255 - eight[..., :1], eight[..., 1:]], -1)
    colors = 3 if bands >= 3 else 1
    alpha = extra[-1] if extra else 2
    color = eight[..., :colors] if colors == 3 else eight[..., 0]
    if bands in (1, 3) or alpha == 0:
        return color
    over = eight[..., -1:] if colors == 3 else eight[..., -1]
    white = 255 - over.astype(np.uint16)
    if alpha != 1:  # 1: the colors are multiplied by it already
        color = (color * over.astype(np.uint16) + 127) // 255
    return np.minimum(color + white, 255).astype(np.uint8)
