"""TIFF: its stored levels, and single tiles or strips of them, decoded by imagecodecs."""

import math
import re
import struct
from dataclasses import replace
from functools import cached_property
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadPicture
from fovea.pictures.big.directories import MASK, REDUCED, Directory, Tag, directories
from fovea.pictures.big.raster import georeference
from fovea.pictures.big.source import MAX_TILE, CountedFile, Georeference, Level, Pixels, advice, as_eight_bits, scaled

WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6
RAW, JPEG, J2K_YCBCR, WEBP = 1, 7, 33003, (34927, 50001)
STREAMS = {5: "lzw", 8: "zlib", 32946: "zlib", 32773: "packbits", 34925: "lzma", 34926: "zstd", 50000: "zstd"}
PICTURES = {JPEG: "jpeg8", J2K_YCBCR: "jpeg2k", 33005: "jpeg2k", 34712: "jpeg2k", **dict.fromkeys(WEBP, "webp")}
PART = 1024, 128  # of strips that are not compressed, of which any part can be read
GDAL = b"GDAL_STRUCTURAL_METADATA"  # in a COG's head: levels reach over the whole, also if rounded down
OME = re.compile(r'<(?:\w+:)?Pixels\b[^>]*?\bSizeC="(\d+)"')


class Packed(BadPicture):
    """A TIFF file that is compressed in a way that imagecodecs is not asked for."""


def stored_levels(file: CountedFile) -> list[Directory]:
    """The directories of the full-resolution picture and of its smaller copies, finest first."""
    every = list(directories(file))
    if not every:
        raise BadPicture(f"{file.path} is damaged or cut short: a TIFF file without pictures")
    first = next((each for each in every if not each.number(Tag.SUBFILE) & (REDUCED | MASK)), every[0])
    smaller = [each for each in every if each is not first and _is_level(each, first)]
    return [first, *sorted(smaller, key=lambda each: -each.size[0])]


def _is_level(directory: Directory, first: Directory) -> bool:
    """Whether it is the first directory's picture, smaller: the same kind of pixels, the same shape up to rounding."""
    (width, height), (full_width, full_height) = directory.size, first.size
    if not 0 < width < full_width or not 0 < height <= full_height or directory.number(Tag.SUBFILE) & MASK:
        return False
    if not directory.tiled and (first.tiled or not directory.number(Tag.SUBFILE) & REDUCED):
        return False  # a thumbnail, a label, another page
    same = all(directory.number(tag, 1) == first.number(tag, 1) for tag in (Tag.SAMPLES, Tag.BITS))
    return same and abs(full_width * height - full_height * width) <= full_width + full_height  # off by a pixel a side


class TiffSource:
    """A TIFF's full-resolution picture and its smaller copies, in the chain of directories or below the first."""

    passed = 0

    def __init__(self, file: CountedFile, stored: list[Directory]) -> None:
        _refuse(stored[0])
        self._file, self._first, self._stored = file, stored[0], [_Stored(directory) for directory in stored]
        self.levels = tuple(each.level for each in self._stored)
        if GDAL in file.read(0, min(64, file.size)):
            width, height = stored[0].size
            self.levels = tuple(replace(at, scale=(width / at.width, height / at.height)) for at in self.levels)
        self.bands, self.bits = self._first.number(Tag.SAMPLES, 1), self._first.number(Tag.BITS, 1)
        self.file_bytes, self.orientation = file.size, self._first.number(Tag.ORIENTATION, 1)

    @property
    def bytes(self) -> int:
        return self._file.count

    def tile(self, level: int, column: int, row: int) -> Pixels:
        return self._stored[level].tile(column, row)

    def georeference(self) -> Georeference:
        placed = any(tag in self._first.entries for tag in (Tag.GEO_KEYS, Tag.GEO_SCALE, Tag.GEO_TRANSFORM))
        return georeference(self._file) if placed else (None, None)


def _refuse(directory: Directory) -> None:
    """What is no picture of 8 or 16 bits, gray or RGB with or without alpha."""
    get, path = directory.number, directory.file.path
    bands, bits = get(Tag.SAMPLES, 1), set(directory.values(Tag.BITS)) or {1}
    photometric, compression = get(Tag.PHOTOMETRIC, BLACK_IS_ZERO), get(Tag.COMPRESSION, RAW)
    channels = OME.search(directory.text(Tag.DESCRIPTION))
    reason, remedy = "", advice(path)
    if min(directory.size) < 2:
        reason = f"is {directory.size[0]} x {directory.size[1]} pixels: at least 2 x 2 are needed"
    elif photometric == PALETTE:
        reason = "has a palette, and its smaller levels are averages of numbers of colors, not of colors"
    elif bands not in (1, 2, 3, 4):
        reason = f"has {bands} bands: 1 (gray) and 3 (RGB) can be read, and either with alpha"
        remedy = f"choose some, as gdal_translate -b 1 -b 2 -b 3 {path.name} out.tif"
    elif channels and int(channels[1]) > bands:
        reason = f"holds {channels[1]} channels as pictures of their own: gray and RGB can be read"
        remedy = "export what matters of them as gray or RGB"
    elif bits not in ({8}, {16}) or get(Tag.SAMPLE_FORMAT, 1) != 1:
        reason = f"has values of {max(bits)} bits: whole numbers of 8 or 16 bits, from 0 on, can be read"
        remedy = remedy if bits == {1} else f"scale them, as gdal_translate -ot Byte -scale {path.name} out.tif"
    elif photometric not in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, CMYK, YCBCR) or (photometric == CMYK and bands != 4):
        reason = f"has colors of a kind that cannot be read (TIFF's photometric interpretation {photometric})"
    elif photometric == YCBCR and compression not in PICTURES:
        reason = "has YCbCr colors that are not compressed as JPEG"
    elif get(Tag.FILL_ORDER, 1) != 1 or get(Tag.PREDICTOR, 1) not in (1, 2):
        reason = "stores its values in an order that cannot be read"
    elif compression not in (RAW, *STREAMS, *PICTURES):
        reason = f"is compressed in a way that cannot be read (TIFF's compression {compression})"
        raise Packed(f"{path} {reason}; {advice(path)}")
    if reason:
        raise BadPicture(f"{path} {reason}; {remedy}")


class _Stored:
    """One level as the file stores it."""

    def __init__(self, directory: Directory) -> None:
        get, (width, height) = directory.number, directory.size
        self.directory, self.file, self.path = directory, directory.file, directory.file.path
        self.bands, self.photometric = get(Tag.SAMPLES, 1), get(Tag.PHOTOMETRIC, BLACK_IS_ZERO)
        self.compression, self.predictor = get(Tag.COMPRESSION, RAW), get(Tag.PREDICTOR, 1)
        self.planar = get(Tag.PLANAR, 1) == 2
        self.extra = directory.values(Tag.EXTRA_SAMPLES)
        self.type = np.dtype(f"{directory.order}u{get(Tag.BITS, 8) // 8}")
        self.tables = next(iter(directory.values(Tag.JPEG_TABLES)), None)
        if directory.tiled:
            self.tags, stored = (Tag.TILE_OFFSETS, Tag.TILE_BYTES), (get(Tag.TILE_WIDTH), get(Tag.TILE_HEIGHT))
        else:
            self.tags = Tag.STRIP_OFFSETS, Tag.STRIP_BYTES
            stored = width, min(get(Tag.ROWS_PER_STRIP, height) or height, height)
        self.raw = not directory.tiled and self.compression == RAW and self.predictor == 1
        tile = (min(PART[0], width), min(PART[1], height)) if self.raw else stored
        if min(*tile, *stored) < 1 or tile[0] * tile[1] > MAX_TILE:
            raise BadPicture(f"{self.path} has tiles of {tile[0]:,} x {tile[1]:,} pixels; {advice(self.path)}")
        self.level, self.rows = Level(width, height, *tile), stored[1]
        self.across = math.ceil(width / stored[0])
        self.plane = self.across * math.ceil(height / stored[1])
        wanted = self.plane * (self.bands if self.planar else 1)
        there = min(entry.count if (entry := directory.entries.get(tag)) else 0 for tag in self.tags)
        if there < wanted:
            raise BadPicture(f"{self.path} is damaged: {wanted:,} tiles or strips, but places for {there:,}")
        offset, length = self._place(wanted - 1)
        if offset + length > self.file.size:
            raise BadPicture(f"{self.path} is cut short: {self.file.size:,} bytes of at least {offset + length:,}")
        self.decode = _codec({**STREAMS, **PICTURES}.get(self.compression))
        if self.compression in PICTURES and self.compression != JPEG:
            Image.init()

    def _place(self, index: int) -> tuple[int, int]:
        (offset,), (length,) = (self.directory.values(tag, index, 1) for tag in self.tags)
        return offset, length

    def tile(self, column: int, row: int) -> Pixels:
        left, top = column * self.level.tile_width, row * self.level.tile_height
        width = min(self.level.tile_width, self.level.width - left)
        height = min(self.level.tile_height, self.level.height - top)
        planes, bands = (range(self.bands), 1) if self.planar else (range(1), self.bands)
        if self.raw:
            parts = [self._rows(plane, bands, (left, top, left + width, top + height)) for plane in planes]
        else:
            index = row * self.across + column
            shape = self.level.tile_height if self.directory.tiled else height, self.level.tile_width, bands
            parts = [self._segment(index + plane * self.plane, shape)[:height, :width] for plane in planes]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts, -1)
        if self.photometric == CMYK:
            return np.asarray(Image.frombytes("CMYK", (width, height), scaled(values).tobytes()).convert("RGB"))
        if self.photometric == WHITE_IS_ZERO:
            values = np.concatenate([np.iinfo(self.type).max - values[..., :1], values[..., 1:]], -1)
        return as_eight_bits(values, self.extra)

    def _rows(self, plane: int, bands: int, box: tuple[int, int, int, int]) -> NDArray[np.generic]:
        """A part of strips that are not compressed, of which nothing else is read."""
        left, top, right, bottom = box
        pixel, parts, strip = bands * self.type.itemsize, [], -1
        offset = length = 0
        for row in range(top, bottom):
            if row // self.rows != strip:
                strip = row // self.rows
                offset, length = self._place(strip + plane * self.plane)
            start = (row % self.rows * self.level.width + left) * pixel
            if not offset or not length:
                parts.append(np.full((right - left) * bands, self._nodata, self.type).tobytes())
            elif start + (right - left) * pixel > length:
                raise BadPicture(f"{self.path} is damaged: a strip of {length:,} bytes")
            else:
                parts.append(self.file.read(offset + start, (right - left) * pixel))
        return np.frombuffer(b"".join(parts), self.type).reshape(bottom - top, right - left, bands)

    def _segment(self, index: int, shape: tuple[int, int, int]) -> NDArray[np.generic]:
        """One tile or strip as it is stored, h,w,bands."""
        offset, length = self._place(index)
        if not offset or not length:  # never written, as in sparse files
            return np.full(shape, self._nodata, self.type)
        data, expected = self.file.read(offset, length), math.prod(shape) * self.type.itemsize
        if self.compression in PICTURES:
            return self._picture(data, shape)
        if self.compression != RAW:
            data = self.decode(data, out=expected)
        if len(data) < expected:
            raise BadPicture(f"{self.path} is damaged: a tile of {len(data):,} bytes instead of {expected:,}")
        values = np.frombuffer(data, self.type, math.prod(shape)).reshape(shape)
        return np.cumsum(values, 1, self.type.newbyteorder("=")) if self.predictor == 2 else values

    def _picture(self, data: bytes, shape: tuple[int, int, int]) -> NDArray[np.generic]:
        """A tile that is a file of its own, no larger than it should be."""
        width, height = _jpeg_size(data) if self.compression == JPEG else _size(data)
        if width > shape[1] or height > shape[0]:
            raise BadPicture(f"{self.path} is damaged: a tile of {width} x {height}, not {shape[1]} x {shape[0]}")
        options: dict[str, Any] = {}
        if self.compression == JPEG:
            mixed = self.photometric == YCBCR and shape[2] == 3
            color, shown = ("YCBCR", "RGB") if mixed else ("UNKNOWN", "UNKNOWN")  # the latter: as it is stored
            options = {"tables": self.tables, "colorspace": color, "outcolorspace": shown}
        elif self.compression in WEBP:
            options = {"hasalpha": shape[2] == 4}
        values = self.decode(data, **options)
        values = values[..., None] if values.ndim == 2 else values
        if values.shape != (height, width, shape[2]) or values.dtype.itemsize != self.type.itemsize:
            raise BadPicture(f"{self.path} is damaged: a tile of {values.shape} {values.dtype} values, not {shape}")
        if self.compression == J2K_YCBCR:
            values = np.asarray(Image.frombytes("YCbCr", (width, height), values.tobytes()).convert("RGB"))
        return np.pad(values, ((0, shape[0] - height), (0, shape[1] - width), (0, 0)))

    @cached_property
    def _nodata(self) -> int:
        match = re.match(r"\s*(\d+)", self.directory.text(Tag.NODATA))
        return min(int(match[1]), int(np.iinfo(self.type).max)) if match else 0


def _size(data: bytes) -> tuple[int, int]:
    with Image.open(BytesIO(data), formats=("JPEG2000", "WEBP")) as image:
        return image.size


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Of a JPEG file with any number of bands, by its markers."""
    place = 2
    while data[place : place + 1] == b"\xff":
        marker, length = struct.unpack_from(">BH", data, place + 1)
        if marker == 0xFF:  # filling
            place += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        else:
            place += 2 + length
    raise ValueError("a tile is no JPEG file")


def _codec(name: str | None) -> Any:
    import imagecodecs

    return getattr(imagecodecs, f"{name}_decode") if name else None
