"""What a big picture is read from: levels, each cut into tiles, in a file whose bytes are counted."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BadPicture
from fovea.pictures.decoding import Stamp, opened, stamp

MAX_TILE = 1 << 25  # pixels of a tile or strip that is decoded whole: 100 MB as RGB
Pixels = NDArray[np.uint8]  # h,w,3 or h,w: RGB or gray


Georeference = tuple[str | None, tuple[float, ...] | None]  # a coordinate system, and x y of pixels as in Affine


def advice(path: Path) -> str:
    return f"make a copy with tiles and levels: fovea pyramid {path.name} out.tif"


@dataclass(frozen=True)
class Level:
    """One stored resolution: its size, and that of the tiles it is cut into."""

    width: int
    height: int
    tile_width: int
    tile_height: int
    scale: tuple[float, float] | None = None  # full-resolution pixels per stored one, where the file says so


class Source(Protocol):
    levels: tuple[Level, ...]  # finest first
    bands: int
    bits: int
    orientation: int  # EXIF's: 1 is upright
    passed: int  # pixels decoded on the way to those that were asked for
    file_bytes: int  # of all its files

    def tile(self, level: int, column: int, row: int) -> Pixels:
        """Decoded, without what of it reaches over the level's right and lower edge."""
        ...

    @property
    def bytes(self) -> int | None:
        """Of the file, read so far; None where nobody can tell."""
        ...

    def georeference(self) -> Georeference: ...


class CountedFile:
    """A file that is open for reading from several threads, its bytes counted, and refused once it has changed."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self.handle = path, file.fileno()
        self.stamp = stamp(path, os.fstat(self.handle))
        self.size, self.count, self._lock = self.stamp[2], 0, threading.Lock()

    @property
    def alias(self) -> str:
        """A name for libraries that open files themselves: of the file that is open, whatever the path leads to by now
        and whatever its letters mean to them."""
        name = Path(f"/proc/self/fd/{self.handle}")
        return str(name if name.exists() else self.path.resolve())

    def read(self, offset: int, length: int) -> bytes:
        """All of it, or BadPicture."""
        if not 0 <= offset <= offset + length <= self.size:
            raise BadPicture(
                f"{self.path} is damaged or cut short: bytes {offset:,} to {offset + length:,} "
                f"of a file of {self.size:,} are needed"
            )
        data = b""
        while len(data) < length and (more := os.pread(self.handle, length - len(data), offset + len(data))):
            data = data + more if data else more
            with self._lock:
                self.count += len(more)
        self.refuse_changed()
        if len(data) < length:
            raise BadPicture(f"{self.path} is damaged or cut short: {len(data):,} of {length:,} bytes at {offset:,}")
        return data

    def refuse_changed(self) -> None:
        if stamp(self.path, os.fstat(self.handle)) != self.stamp:
            raise BadPicture(f"{self.path} changed after it was first read: run again on what it is now", passing=True)


@contextmanager
def counted(path: Path, stamps: list[Stamp] | None = None) -> Iterator[CountedFile]:
    with opened(path, stamps=stamps) as file:
        yield CountedFile(path, file)


class Metered:
    """Counts the bytes that a library reads by itself, as the system counts them for the thread that calls it; None on
    systems that do not."""

    passed = 0

    def __init__(self) -> None:
        self._count: int | None = 0
        self._counting = threading.Lock()

    @property
    def bytes(self) -> int | None:
        return self._count

    @contextmanager
    def metered(self) -> Iterator[None]:
        before = _accounts()
        yield
        after = _accounts()
        with self._counting:
            if self._count is not None:
                self._count = self._count + _rchar(after) - _rchar(before) - len(before) if before and after else None


def _accounts() -> bytes:
    try:
        return Path("/proc/thread-self/io").read_bytes()
    except OSError:
        return b""


def _rchar(accounts: bytes) -> int:
    return int(accounts.split()[1])


@lru_cache
def _sixteen_to_eight() -> NDArray[np.uint8]:
    return np.rint(np.arange(65536) / 257).astype(np.uint8)


def scaled(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Of 8 bits: 16 bits over 257."""
    if values.dtype.itemsize == 2:
        values = _sixteen_to_eight()[values]
    return values.astype(np.uint8, copy=False)


def as_eight_bits(values: NDArray[np.generic], extra: tuple[int, ...] = (2,)) -> Pixels:
    """Gray or RGB of 8 bits out of h,w,bands, as every picture is decoded: alpha on white. `extra` is TIFF's: 0 no
    alpha, 1 alpha that the colors are multiplied by already, 2 alpha."""
    eight, bands = scaled(values), values.shape[2]
    color = eight[..., :3] if bands >= 3 else eight[..., 0]
    alpha = extra[-1] if extra else 2
    if bands in (1, 3) or alpha == 0:
        return color
    over = eight[..., -1:] if bands == 4 else eight[..., -1]
    if alpha != 1:
        color = (color * over.astype(np.uint32) + 127) // 255
    return np.minimum(color + (255 - over.astype(np.uint32)), 255).astype(np.uint8)
