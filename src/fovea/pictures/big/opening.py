"""Which files are big pictures, and how each is opened."""

import importlib.util
import os
from contextlib import ExitStack, suppress
from pathlib import Path

from fovea.basics import BadPicture
from fovea.pictures.big.picture import BigPicture
from fovea.pictures.big.source import Source, counted
from fovea.pictures.big.tiff import MAGIC, TiffSource, directories
from fovea.pictures.decoding import MAX_PIXELS, Stamp, as_bad_picture, open_lazily, opened

CACHE = 64 << 20  # bytes of decoded tiles that are kept


def is_big(path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> bool:
    """Whether a file is read window by window, by its header alone: tiles, stored levels, or over the size limit."""
    path = Path(path)
    with suppress(BadPicture), as_bad_picture(str(path)), counted(path) as file:
        if file.read(0, min(4, file.size)) in MAGIC:
            first = next(directories(file), None)
            return first is not None and (first.tiled or first.size[0] * first.size[1] > max_pixels)
    with suppress(BadPicture), as_bad_picture(str(path)), opened(path) as plain, open_lazily(plain) as image:
        return image.width * image.height > max_pixels
    return False


def open_big(path: str | os.PathLike[str], cache: int = CACHE, stamps: list[Stamp] | None = None) -> BigPicture:
    """A picture that is read window by window; BadPicture says why not, and what to do."""
    path = Path(path)
    if importlib.util.find_spec("imagecodecs") is None:
        raise BadPicture(f"{path} is read in tiles by packages that are not installed: pip install 'fovea[big]'")
    with ExitStack() as stack, as_bad_picture(str(path)):
        file = stack.enter_context(counted(path, stamps))
        source: Source = TiffSource(file)
        return BigPicture(str(path), source, cache, stack.pop_all())
