"""Huge JPEG and PNG files, which have no tiles: decoded from the top, strip by strip, by libvips; a JPEG reduced by its
decoder."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fovea.basics import BadPicture
from fovea.pictures.big.source import CountedFile, Georeference, Level, Metered, Pixels, advice, as_eight_bits
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


class PlainSource(Metered):
    def __init__(self, file: CountedFile, image: Image.Image) -> None:
        super().__init__()
        refuse_plain(file.path, image)
        self._file, self._lock = file, threading.Lock()
        self.orientation = image.getexif().get(ORIENTATION, 1)
        self._jpeg = image.format != "PNG"
        self._open = dict[int, tuple[Any, int]]()  # by level: what is being decoded, and its next strip
        with self.metered():
            first, *others = [self._image(level) for level in range(len(REDUCED) if self._jpeg else 1)]
        self.bands, self.bits = first.bands, 16 if first.format == "ushort" else 8
        self.levels = tuple(
            Level(each.width, each.height, each.width, max(min(STRIP // each.width, each.height), 1), (times, times))
            for times, each in zip(REDUCED, (first, *others), strict=False)
        )

    def _image(self, level: int) -> Any:
        import pyvips

        source = pyvips.Source.new_from_file(self._file.alias)
        options = {"access": "sequential", "fail_on": "truncated"}
        if self._jpeg:
            return pyvips.Image.jpegload_source(source, shrink=REDUCED[level], **options)
        return pyvips.Image.pngload_source(source, **options)

    def tile(self, level: int, column: int, row: int) -> Pixels:
        """A strip; those before it are decoded on the way, all of them if the last one asked for came after it."""
        import pyvips

        stored = self.levels[level]
        top = row * stored.tile_height
        rows = min(stored.tile_height, stored.height - top)
        with self._lock, self.metered():
            region, upcoming = self._open.pop(level, (None, 0))
            if region is None or upcoming > row:
                region, upcoming = pyvips.Region.new(self._image(level)), 0
            self.passed += (row - upcoming) * stored.tile_height * stored.width
            data = region.fetch(0, top, stored.width, rows)
            self._open[level] = region, row + 1
        self._file.refuse_changed()
        values = np.frombuffer(data, np.uint16 if self.bits == 16 else np.uint8)
        return as_eight_bits(values.reshape(rows, stored.width, self.bands))

    def georeference(self) -> Georeference:
        return None, None
