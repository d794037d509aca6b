"""Huge JPEG and PNG files, which have no tiles: decoded from the top, strip by strip, by libvips; a JPEG reduced by its
decoder."""

import threading
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
        self._file, self._lock = file, threading.Lock()
        self.orientation = image.getexif().get(ORIENTATION, 1)
        self._jpeg = image.format != "PNG"
        self._open = dict[int, tuple[Any, int]]()  # by level: what is being decoded, and its next strip
        first = self._image(0)
        self.bands, self.bits = first.bands, 16 if first.format == "ushort" else 8
        sizes = [(first.width, first.height)]
        if self._jpeg:
            sizes += [(image.width, image.height) for image in map(self._image, range(1, len(REDUCED)))]
        self.levels = tuple(
            Level(width, height, width, max(min(STRIP // width, height), 1), scale=(REDUCED[k], REDUCED[k]))
            for k, (width, height) in enumerate(sizes)
        )

    @property
    def bytes(self) -> int:
        return self._file.count

    def _image(self, level: int) -> Any:
        import pyvips

        source, place = pyvips.SourceCustom(), 0

        def read(length: int) -> bytes:
            nonlocal place
            data = self._file.read(place, min(length, self._file.size - place))
            place += len(data)
            return data

        def seek(offset: int, whence: int) -> int:
            nonlocal place
            place = offset + (0, place, self._file.size)[whence]
            return place

        source.on_read(read)
        source.on_seek(seek)
        if self._jpeg:
            return pyvips.Image.jpegload_source(source, shrink=REDUCED[level], access="sequential", fail_on="truncated")
        return pyvips.Image.pngload_source(source, access="sequential", fail_on="truncated")

    def tile(self, level: int, column: int, row: int) -> Pixels:
        """A strip; those before it are decoded on the way if the last one asked for came after it."""
        import pyvips

        stored = self.levels[level]
        with self._lock:
            region, upcoming = self._open.pop(level, (None, 0))
            if region is None or upcoming > row:
                region = pyvips.Region.new(self._image(level))
            top = row * stored.tile_height
            rows = min(stored.tile_height, stored.height - top)
            data = region.fetch(0, top, stored.width, rows)
            self._open[level] = region, row + 1
        values = np.frombuffer(data, np.uint16 if self.bits == 16 else np.uint8)
        return as_eight_bits(values.reshape(rows, stored.width, self.bands))

    def georeference(self) -> Georeference:
        return None, None
