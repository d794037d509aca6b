"""Which files are big pictures, and how each is opened."""

import importlib.util
import os
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path

from fovea.basics import BadPicture
from fovea.pictures.big.directories import MAGIC, Directory, Tag
from fovea.pictures.big.picture import BigPicture
from fovea.pictures.big.plain import PlainSource
from fovea.pictures.big.raster import RasterSource, driver_of
from fovea.pictures.big.slide import SUFFIXES, VENDORS, SlideSource
from fovea.pictures.big.source import CountedFile, Source, counted
from fovea.pictures.big.tiff import Packed, TiffSource, stored_levels
from fovea.pictures.decoding import MAX_PIXELS, Stamp, as_bad_picture, open_lazily, opened

CACHE = 64 << 20  # bytes of decoded tiles that are kept
HEAD, DICOM = 132, b"DICM"  # bytes that tell what a file is; the last of them in DICOM's
NEEDS = ("imagecodecs", "openslide", "rasterio", "pyvips")


def is_big(path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> bool:
    """Whether a file is read window by window, by its header alone: a slide, tiles, stored levels, or more pixels than
    are decoded whole."""
    path = Path(path)
    with suppress(BadPicture), as_bad_picture(str(path)), counted(path) as file:
        return _kind(file, max_pixels) is not None
    return False


def big_of(path: Path, max_pixels: int, stamps: list[Stamp]) -> BigPicture | None:
    """Opened, where it is read window by window; without the packages for it, only what cannot be decoded whole."""
    with ExitStack() as stack, as_bad_picture(str(path)):
        try:
            file = stack.enter_context(counted(path, stamps))
        except (BadPicture, OSError) as reason:  # whoever decodes it says why, unless it has changed meanwhile
            if getattr(reason, "passing", False):
                raise
            return None
        kind = _kind(file, max_pixels)
        return None if kind is None or (kind == "tiles" and missing()) else _opened(file, CACHE, stack)


def open_big(path: str | os.PathLike[str], cache: int = CACHE, stamps: list[Stamp] | None = None) -> BigPicture:
    """A picture that is read window by window; BadPicture says why not, and what to do."""
    path = Path(path)
    with ExitStack() as stack, as_bad_picture(str(path)):
        return _opened(stack.enter_context(counted(path, stamps)), cache, stack)


def _opened(file: CountedFile, cache: int, stack: ExitStack) -> BigPicture:
    if missing():
        raise BadPicture(f"{file.path} is read in parts by packages that are not installed: pip install 'fovea[big]'")
    source = _source(file, stack)
    return BigPicture(str(file.path), source, cache, stack.pop_all())


@lru_cache
def missing() -> bool:
    """Whether any of the packages of the extra `big` is not installed."""
    return any(importlib.util.find_spec(name) is None for name in NEEDS)


def _kind(file: CountedFile, max_pixels: int) -> str | None:
    """`large`: it cannot be decoded whole; `tiles`: it need not; None: it is an ordinary picture, or none at all."""
    path, head = file.path, file.read(0, min(HEAD, file.size))
    if path.suffix.lower() in SUFFIXES or head.endswith(DICOM):
        return "large"
    if head[:4] in MAGIC:
        with suppress(BadPicture):
            stored = stored_levels(file)
            width, height = stored[0].size
            tiles = "tiles" if len(stored) > 1 or stored[0].tiled else None
            return "large" if width * height > max_pixels else tiles
        return None
    with suppress(BadPicture), as_bad_picture(str(path)), opened(path) as plain, open_lazily(plain) as image:
        tiles = "tiles" if driver_of(head) else None  # JPEG 2000 has levels always
        return "large" if image.width * image.height > max_pixels else tiles
    return "large" if driver_of(head) else None


def _source(file: CountedFile, stack: ExitStack) -> Source:
    path, head = file.path, file.read(0, min(HEAD, file.size))
    if head[:4] in MAGIC:
        stored = stored_levels(file)
        if path.suffix.lower() in SUFFIXES - {".svs"} or _by_vendor(stored[0]):
            with suppress(BadPicture):
                return SlideSource(file, stack)
        try:
            return TiffSource(file, stored)
        except Packed:
            with suppress(Exception):
                return RasterSource(file, "GTiff", stack)
            raise
    if path.suffix.lower() in SUFFIXES or head.endswith(DICOM):
        return SlideSource(file, stack)
    if driver := driver_of(head):
        return RasterSource(file, driver, stack)
    with opened(path) as plain, open_lazily(plain) as image:
        return PlainSource(file, image)


def _by_vendor(first: Directory) -> bool:
    tags = (Tag.DESCRIPTION, Tag.MAKE, Tag.MODEL, Tag.SOFTWARE, Tag.XMP)
    return any(VENDORS.search(first.text(tag)) for tag in tags if tag in first.entries)
