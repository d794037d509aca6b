"""A picture that is read window by window and never loaded."""

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from PIL import Image

from fovea.basics import BadChoice, BadPicture, go_on
from fovea.pictures.big.source import Pixels, Source
from fovea.pictures.decoding import MAX_PIXELS, SIDEWAYS, STRIP, TURNS, as_bad_picture

T = Image.Transpose
FLIPS = {T.FLIP_LEFT_RIGHT: (1, 0), T.ROTATE_180: (1, 1), T.FLIP_TOP_BOTTOM: (0, 1), T.TRANSPOSE: (0, 0),
         T.ROTATE_270: (0, 1), T.TRANSVERSE: (1, 1), T.ROTATE_90: (1, 0)}  # fmt: skip
SUPPORT = {Image.Resampling.BOX: 0.5, Image.Resampling.BILINEAR: 1.0, Image.Resampling.HAMMING: 1.0,
           Image.Resampling.BICUBIC: 2.0, Image.Resampling.LANCZOS: 3.0}  # fmt: skip
BAND = 1 << 23  # pixels, narrowed to a window's width, that are in memory before they are shrunk to its height
WIDE = 1 << 26  # pixels of a row of tiles that are in memory at once
SIDE = 1 << 24  # pixels of a side, at most: shrunk to one pixel, a longer one would not fit into memory
Box = Sequence[float]
Key = tuple[int, int, int]  # level, column, row


@dataclass(frozen=True)
class Counts:
    """What was read of a file: pixels decoded (each at the level it was decoded at), tiles, and bytes of the file, None
    where nobody can tell."""

    pixels: int = 0
    tiles: int = 0
    bytes: int | None = 0

    def since(self, earlier: "Counts") -> "Counts":
        known = self.bytes is not None and earlier.bytes is not None
        return Counts(
            self.pixels - earlier.pixels,
            self.tiles - earlier.tiles,
            (self.bytes or 0) - (earlier.bytes or 0) if known else None,
        )


class Tiles:
    """Decoded tiles, those used last kept within a limit of bytes; no two threads decode the same tile at once."""

    def __init__(self, source: Source, limit: int) -> None:
        self.source, self.limit, self.pixels, self.count = source, limit, 0, 0
        self._kept, self._bytes, self._coming = OrderedDict[Key, Pixels](), 0, dict[Key, Future[Pixels]]()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Pixels:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            waiting = self._coming.get(key)
            if waiting is None:
                mine = self._coming[key] = Future()
        if waiting is not None:
            return waiting.result()
        try:
            go_on()
            tile = np.ascontiguousarray(self.source.tile(*key))  # and nothing that it was cut out of
        except BaseException as error:
            with self._lock:
                del self._coming[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._coming[key]
            self._keep(key, tile)
        mine.set_result(tile)
        return tile

    def _keep(self, key: Key, tile: Pixels) -> None:
        self.pixels += tile.shape[0] * tile.shape[1]
        self.count += 1
        self._kept[key], self._bytes = tile, self._bytes + tile.nbytes
        while self._bytes > self.limit and self._kept:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes

    def counts(self) -> Counts:
        with self._lock:
            return Counts(self.pixels + self.source.passed, self.count, self.source.bytes)


class BigPicture:
    """A picture in a file: `read` gives any window of it at any size, decoding only the tiles it touches of the nearest
    stored level that is not coarser. May be used from several threads, and in a `with` block."""

    def __init__(self, name: str, source: Source, cache: int, closing: ExitStack | None = None) -> None:
        self.name, self._source, self._closing = name, source, closing or ExitStack()
        self._tiles, self._turn = Tiles(source, cache), TURNS.get(source.orientation)
        self.bands, self.bits, self.file_bytes = source.bands, source.bits, source.file_bytes
        full = source.levels[0]
        if max(full.width, full.height) > SIDE:
            raise BadPicture(f"{name} is {full.width:,} x {full.height:,} pixels: a side has {SIDE:,} at most")
        self._scales = [
            level.scale or (_factor(full.width, level.width), _factor(full.height, level.height))
            for level in source.levels
        ]

    @property
    def size(self) -> tuple[int, int]:
        return self.levels[0]

    @property
    def levels(self) -> tuple[tuple[int, int], ...]:
        sizes = ((level.width, level.height) for level in self._source.levels)
        return tuple((h, w) if self._turn in SIDEWAYS else (w, h) for w, h in sizes)

    @property
    def counts(self) -> Counts:
        return self._tiles.counts()

    @property
    def band(self) -> int:
        """Pixels that are in memory while a window is read, at most."""
        return max(min(level.width * level.tile_height, WIDE) for level in self._source.levels)

    @property
    def crs(self) -> str | None:
        return self._georeference[0]

    @property
    def transform(self) -> tuple[float, ...] | None:
        return self._georeference[1]

    @cached_property
    def _georeference(self) -> tuple[str | None, tuple[float, ...] | None]:
        with as_bad_picture(self.name):
            crs, transform = self._source.georeference()
        if transform is None or self._turn is None:
            return crs, transform
        a, b, c, d, e, f = transform
        full, (across, down) = self._source.levels[0], FLIPS[self._turn]
        a, b, c, d, e, f = (-a, b, c + a * full.width, -d, e, f + d * full.width) if across else (a, b, c, d, e, f)
        a, b, c, d, e, f = (a, -b, c + b * full.height, d, -e, f + e * full.height) if down else (a, b, c, d, e, f)
        return crs, (b, a, c, e, d, f) if self._turn in SIDEWAYS else (a, b, c, d, e, f)

    def read(
        self, box: Box, size: tuple[int, int], resample: Image.Resampling = Image.Resampling.BILINEAR
    ) -> Image.Image:
        """A window x0 y0 x1 y1 of full-resolution pixels as RGB of this width and height, shrunk as `Image.resize`
        shrinks the window cut out of the picture."""
        x0, y0, x1, y1 = box
        if not (0 <= x0 < x1 <= self.size[0] and 0 <= y0 < y1 <= self.size[1]):
            raise BadChoice(f"a window lies inside the picture of {self.size[0]} x {self.size[1]}; got {tuple(box)}")
        if min(size) < 1 or size[0] * size[1] > MAX_PIXELS:
            raise BadChoice(f"a window is read at 1 x 1 to {MAX_PIXELS:,} pixels; got {size[0]} x {size[1]}")
        with as_bad_picture(self.name):
            if self._turn is None:
                return self._stored((x0, y0, x1, y1), size, resample)
            sideways = self._turn in SIDEWAYS
            spans = [(y0, y1), (x0, x1)] if sideways else [(x0, x1), (y0, y1)]
            full = self._source.levels[0]
            (x0, x1), (y0, y1) = (
                (side - last, side - first) if flip else (first, last)
                for (first, last), side, flip in zip(spans, (full.width, full.height), FLIPS[self._turn], strict=True)
            )
            return self._stored((x0, y0, x1, y1), size[::-1] if sideways else size, resample).transpose(self._turn)

    def _stored(self, box: Box, size: tuple[int, int], resample: Image.Resampling) -> Image.Image:
        """A window as the file stores it, not turned upright."""
        level = max(
            k for k, (x, y) in enumerate(self._scales)
            if k == 0 or ((box[2] - box[0]) / x >= size[0] * 0.9999 and (box[3] - box[1]) / y >= size[1] * 0.9999)
        )  # fmt: skip
        stored, (x, y) = self._source.levels[level], self._scales[level]
        left, right = _span(box[0] / x, box[2] / x, stored.width)
        top, bottom = _span(box[1] / y, box[3] / y, stored.height)
        step, wide = (bottom - top) / size[1], max(size[0], 1)
        reach = SUPPORT[resample] * max(step, 1.0) + 1
        rows = max(int((BAND / wide - 2 * reach) / step), 1)  # of the result, at a time
        parts = []
        for first in range(0, size[1], rows):
            last = min(first + rows, size[1])
            above, below = top + first * step, top + last * step
            start = max(math.floor(top), math.floor(above - reach))
            end = min(math.ceil(bottom), math.ceil(below + reach))
            narrow = self._narrowed(level, (left, right), (start, end), size[0], resample)
            parts.append(narrow.resize((size[0], last - first), resample, (0, above - start, size[0], below - start)))
        if len(parts) == 1:
            return parts[0]
        whole = Image.new("RGB", size)
        for number, part in enumerate(parts):
            whole.paste(part, (0, number * rows))
        return whole

    def _narrowed(
        self, level: int, span: tuple[float, float], rows: tuple[int, int], width: int, resample: Image.Resampling
    ) -> Image.Image:
        """Rows of a level shrunk to a width, height as it is. Pillow shrinks across before it shrinks down, so that
        whoever shrinks this further has what it would have made of all at once."""
        start, end = math.floor(span[0]), math.ceil(span[1])
        narrow = Image.new("RGB", (width, rows[1] - rows[0]))
        for top, band in self._bands(level, (start, end), rows):
            step = max(STRIP // (end - start), 1)
            for first in range(0, len(band), step):  # Pillow copies what it shrinks
                image = Image.fromarray(band[first : first + step])
                box = (span[0] - start, 0, span[1] - start, image.height)
                narrow.paste(image.resize((width, image.height), resample, box), (0, top - rows[0] + first))
        return narrow

    def _bands(self, level: int, columns: tuple[int, int], rows: tuple[int, int]) -> Iterator[tuple[int, Pixels]]:
        """Pixels of a level, one row of tiles at a time; of tall tiles in a long row, some lines of it."""
        stored = self._source.levels[level]
        wide, high = stored.tile_width, stored.tile_height
        lines = min(max(WIDE // (columns[1] - columns[0]), 1), high)
        for row in range(rows[0] // high, -(-rows[1] // high)):
            first, last = max(rows[0], row * high), min(rows[1], (row + 1) * high)
            for top in range(first, last, lines):
                bottom = min(top + lines, last)
                band = np.empty((bottom - top, columns[1] - columns[0], 3), np.uint8)
                for column in range(columns[0] // wide, -(-columns[1] // wide)):
                    left, right = max(columns[0], column * wide), min(columns[1], (column + 1) * wide)
                    tile = self._tiles.get((level, column, row))
                    part = tile[top - row * high : bottom - row * high, left - column * wide : right - column * wide]
                    band[:, left - columns[0] : right - columns[0]] = part if part.ndim == 3 else part[..., None]
                yield top, band

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"BigPicture({self.name!r}, {self.size[0]} x {self.size[1]}, {len(self.levels)} levels)"


def _factor(full: int, stored: int) -> float:
    """How many full-resolution pixels a stored one stands for. Levels that leave out what does not fill a last pixel
    (libvips) are exactly so many times smaller, those that round up (GDAL) are stretched over the whole."""
    whole = round(full / stored)
    return whole if full // whole == stored else full / stored


def _span(first: float, last: float, side: int) -> tuple[float, float]:
    """Inside the level, on whole pixels where that is what rounding left."""
    first, last = (round(edge) if abs(edge - round(edge)) < 1e-6 else edge for edge in (first, last))
    last = min(last, side)
    return min(first, max(last - 1, 0)), last
