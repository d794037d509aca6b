"""Huge JPEG and PNG files, which have no tiles: decoded from the top, strip by strip, by libvips; a JPEG reduced by its
decoder."""

import math
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fovea.basics import BadPicture
from fovea.pictures.big.source import CountedFile, Georeference, Level, Pixels, advice, as_eight_bits
from fovea.pictures.decoding import ORIENTATION

MOST = 4_000_000_000  # pixels: half a minute for one window
STRIP = 1 << 20  # pixels of a strip
REDUCED = (1, 2, 4, 8)  # times that JPEG's decoder makes a picture smaller
KEPT = 8_000_000  # pixels of a smaller copy, made on one way through the file and kept for all coarse windows


def refuse_plain(path: Path, image: Image.Image) -> None:
    """What no strip can be decoded of on its way through the file."""
    size, reason = f"is {image.width:,} x {image.height:,} pixels", ""
    if image.format not in ("JPEG", "MPO", "PNG"):
        reason = f"in a {image.format} file, which is decoded whole or not at all"
    elif image.width * image.height > MOST:
        reason = f"without tiles: {MOST:,} at most can be read so"
    elif image.info.get("progressive") or image.info.get("interlace"):
        reason = "in passes over the whole picture (progressive or interlaced), which must all be in memory"
    elif image.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        reason = f"of colors that are not RGB or gray ({image.mode})"
    if reason:
        raise BadPicture(f"{path} {size} {reason}; {advice(path)}")


class PlainSource:
    def __init__(self, file: CountedFile, image: Image.Image) -> None:
        refuse_plain(file.path, image)
        self._file, self._lock, self.passed, self.file_bytes = file, threading.Lock(), 0, file.size
        self.orientation = image.getexif().get(ORIENTATION, 1)
        self._png = image.format == "PNG"
        self._times = (1,) if self._png else REDUCED
        self._open = dict[int, tuple[_Strips, int]]()  # by level: what is being decoded, and its next strip
        strips = [_Strips(file, self._png, times) for times in self._times]
        self.bands, self.bits = strips[0].image.bands, 16 if strips[0].image.format == "ushort" else 8
        self.levels = tuple(_level(each.image, times) for each, times in zip(strips, self._times, strict=True))
        self._copied: Pixels | None = None
        if small := _small(strips[-1].image):
            self.levels += (_level(small[0], small[1] * self._times[-1]),)

    @property
    def bytes(self) -> int:
        return self._file.count

    def tile(self, level: int, column: int, row: int) -> Pixels:
        """A strip; those before it are decoded on the way, all of them if the last one asked for came after it."""
        stored = self.levels[level]
        top = row * stored.tile_height
        rows = min(stored.tile_height, stored.height - top)
        if level == len(self._times):
            return self._copy[top : top + rows]
        with self._lock:
            strips, upcoming = self._open.pop(level, (None, 0))
            if strips is None or upcoming > row:
                strips, upcoming = _Strips(self._file, self._png, self._times[level]), 0
            self.passed += (row - upcoming) * stored.tile_height * stored.width
            data = strips.region.fetch(0, top, stored.width, rows)
            self._open[level] = strips, row + 1
        self._file.refuse_changed()
        values = np.frombuffer(data, np.uint16 if self.bits == 16 else np.uint8)
        return as_eight_bits(values.reshape(rows, stored.width, self.bands))

    @property
    def _copy(self) -> Pixels:
        with self._lock:
            if self._copied is None:
                strips = _Strips(self._file, self._png, self._times[-1])
                image, _ = _small(strips.image) or (strips.image, 1)
                self.passed += strips.image.width * strips.image.height
                values = np.frombuffer(image.write_to_memory(), np.uint16 if self.bits == 16 else np.uint8)
                self._file.refuse_changed()
                self._copied = as_eight_bits(values.reshape(image.height, image.width, image.bands))
            return self._copied

    def georeference(self) -> Georeference:
        return None, None


def _small(image: Any) -> tuple[Any, int] | None:
    """A copy of at most so many pixels, and how many times smaller it is; None where the picture is no larger."""
    times = 1 << max(math.ceil(math.log2(image.width * image.height / KEPT) / 2), 0)
    if times == 1 or min(image.width, image.height) < times:
        return None
    if image.hasalpha():
        image = image.flatten(background=65535 if image.format == "ushort" else 255)
    small = image.shrink(times, times)
    return small.crop(0, 0, image.width // times, image.height // times), times


def _level(image: Any, times: int) -> Level:
    width, height = image.width, image.height
    return Level(width, height, width, max(min(STRIP // width, height), 1), (times, times))


class _Strips:
    """A decoder on its way through the file. It reads by functions of ours: libvips would map the file into memory, and
    whoever cuts the file then ends the process."""

    def __init__(self, file: CountedFile, png: bool, times: int) -> None:
        import pyvips

        self.source = pyvips.SourceCustom()  # as long as anything reads from it
        self.source.on_read(partial(_read, file, place := [0]))
        self.source.on_seek(partial(_seek, file, place))
        options = {"access": "sequential", "fail_on": "truncated"}
        if png:
            self.image = pyvips.Image.pngload_source(self.source, **options)
        else:
            self.image = pyvips.Image.jpegload_source(self.source, shrink=times, **options)
        self.region = pyvips.Region.new(self.image)

    def __del__(self) -> None:
        for name in ("region", "image"):  # what may still read, before what it reads from
            self.__dict__.pop(name, None)


def _read(file: CountedFile, place: list[int], length: int) -> bytes | None:
    try:
        data = file.read(place[0], max(min(length, file.size - place[0]), 0))
    except (BadPicture, OSError):  # which nobody catches in there; for the decoder the file ends here
        return None
    place[0] += len(data)
    return data or None


def _seek(file: CountedFile, place: list[int], offset: int, whence: int) -> int:
    place[0] = max(offset + (0, place[0], file.size)[whence], 0)
    return place[0]
