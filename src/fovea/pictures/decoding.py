"""Every decode of a picture file happens here: what is in the file goes in, an upright RGB picture comes out, once."""

import errno
import os
import stat
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fovea.basics import BadPicture, GivenUp

MAX_PIXELS = 200_000_000  # 14,000 x 14,000; decoded, that is 800 MB
# those that Pillow decodes itself: none starts a program, and none opens a picture of any format inside
FORMATS = frozenset(
    ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "PSD", "QOI", "SGI", "SUN",
     "TGA", "TIFF", "WEBP")
)  # fmt: skip
HEAVY = {"AVIF": 1.25, "WEBP": 2.0, "JPEG2000": 2.5}  # whose decoders take more than 8 bytes a pixel: times that
BLOCK = 64 << 20  # bytes of a picture's memory; from 32 MB on, what is let go of goes back to the system at once
WHOLE, STRIP = 16_000_000, 1_000_000  # pixels of a picture that is converted at once, and of a part of a larger one
SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
ORIENTATION, T = 0x0112, Image.Transpose  # the EXIF tag, and what each of its values asks for
TURNS = {2: T.FLIP_LEFT_RIGHT, 3: T.ROTATE_180, 4: T.FLIP_TOP_BOTTOM, 5: T.TRANSPOSE, 6: T.ROTATE_270,
         7: T.TRANSVERSE, 8: T.ROTATE_90}  # fmt: skip
SIDEWAYS = {T.TRANSPOSE, T.TRANSVERSE, T.ROTATE_90, T.ROTATE_270}
LAST_ROW_FIRST = {T.FLIP_TOP_BOTTOM, T.ROTATE_180, T.ROTATE_270, T.TRANSVERSE}

_lock, _lifted = threading.Lock(), list[int | None]()  # Pillow's limit as it was, for every picture that is decoded
Stamp = tuple[int, int, int, int]  # device, inode, size, time of the last change
Convert = Callable[[Image.Image], Image.Image]
Scale = Callable[[NDArray[np.generic]], NDArray[np.uint8]]


class _Room:
    """How many pixels are decoded at a time by all threads together: whoever wants more waits until others are done."""

    def __init__(self) -> None:
        self.changed, self.taken, self.mine = threading.Condition(), 0, threading.local()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """What is decoded in this block is in memory until it ends."""
        if hasattr(self.mine, "pixels"):
            yield
            return
        self.mine.pixels = 0
        try:
            yield
        finally:
            with self.changed:
                self.taken -= self.mine.pixels
                self.changed.notify_all()
            del self.mine.pixels

    def take(self, pixels: int) -> None:
        mine = getattr(self.mine, "pixels", None)
        if mine is not None:
            with self.changed:
                if not mine:  # who holds some never waits, so that no two wait for each other
                    self.changed.wait_for(lambda: not self.taken or self.taken + pixels <= MAX_PIXELS)
                self.taken += pixels
                self.mine.pixels += pixels


room = _Room()


@contextmanager
def as_bad_picture(name: str, broken: str = "is damaged or cut short", remedy: str = "") -> Iterator[None]:
    """Decoders fail in many ways on a damaged file; none of them may stop the pictures after it."""
    try:
        yield
    except (BadPicture, GivenUp):
        raise
    except UnidentifiedImageError:
        raise BadPicture(f"{name} is not a picture in a format that can be read") from None
    except FileNotFoundError:
        raise BadPicture(f"{name} does not exist, or is a link to what does not", passing=True) from None
    except PermissionError:
        raise BadPicture(f"{name} may not be read (permission denied)", passing=True) from None
    except Exception as error:
        if isinstance(error, MemoryError) or "out of memory" in str(error) or _number(error) == errno.ENOMEM:
            raise BadPicture(f"{name} does not fit into the memory that is left", passing=True) from None
        if isinstance(error, OSError) and _number(error) in errno.errorcode:  # the system's, not a decoder's
            raise BadPicture(f"{name} cannot be read now: {error.strerror}", passing=True) from None
        unsure = "create decoder" in str(error)  # which WebP's says of damage and of too little memory alike
        raise BadPicture(f"{name} {broken}: {error}{remedy}", passing=unsure) from None


def _number(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None


@contextmanager
def opened(path: Path, what: str = "picture", stamps: list[Stamp] | None = None) -> Iterator[BinaryIO]:
    """A file that holds something; anything else is said to be what it is, and nobody waits at a pipe.

    `stamps` remembers the file: one that changes while it is read, or before it is read again, is refused.
    """
    stamp(path, path.stat(), what)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        known = {stamp(path, os.fstat(handle), what), *(stamps or ())}
        if len(known) == 1:
            with open(handle, "rb", closefd=False) as file:  # decoders close it when they like
                yield file
        if known != {stamp(path, os.fstat(handle), what)}:
            raise BadPicture(f"{path} changed after it was first read: run again on what it is now", passing=True)
        if stamps is not None:
            stamps[:] = known
    finally:
        os.close(handle)


def stamp(path: Path, status: os.stat_result, what: str = "picture") -> Stamp:
    """What tells a file that holds something from what it is once it has changed; anything else is refused."""
    if not stat.S_ISREG(status.st_mode):
        raise BadPicture(f"{path} is {SPECIAL.get(stat.S_IFMT(status.st_mode), 'no file')}, not a {what}")
    if status.st_size == 0:
        raise BadPicture(f"{path} is empty (0 bytes)")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_bytes(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode a file that is in memory, upright and RGB."""
    with as_bad_picture(name):
        return decode(BytesIO(data), name, max_pixels)


def decode(source: BinaryIO, name: str, max_pixels: int) -> Image.Image:
    """A file over the size limit is refused before its pixels are decoded."""
    with open_lazily(source) as image:
        kind = image.format if image.format in HEAVY else None
        refuse_over(image.size, name, int(max_pixels / HEAVY.get(kind or "", 1)), kind)
        room.take(round(image.width * image.height * HEAVY.get(kind or "", 1)))
        with _without_pillows_limit():
            image.load()
        return upright(image, name, ours=True)


def refuse_over(size: tuple[int, int], name: str, most: int, kind: str | None = None) -> None:
    if size[0] * size[1] > most:
        whose = f" of a {kind} picture" if kind else ""
        raise BadPicture(
            f"{name} is {size[0]:,} x {size[1]:,} pixels, over the limit{whose} of {most:,}; "
            "raise max_pixels (--max-pixels) to read it"
        )


def open_lazily(source: BinaryIO) -> Image.Image:
    """A file is given open, not by name: Pillow would map some formats into memory, and whoever cuts the file then ends
    the process."""
    with _without_pillows_limit():
        return Image.open(source, formats=_formats())


@lru_cache
def _formats() -> list[str]:
    Image.core.set_block_size(max(Image.core.get_block_size(), BLOCK))  # type: ignore[attr-defined]
    Image.init()
    return [name for name in Image.ID if name in FORMATS]


@contextmanager
def _without_pillows_limit() -> Iterator[None]:
    """It is a module-wide setting, below ours: lifted while any thread opens or decodes a picture within ours."""
    with _lock:
        _lifted.append(_lifted[0] if _lifted else Image.MAX_IMAGE_PIXELS)
        Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        with _lock:
            before = _lifted.pop()
            if not _lifted:
                Image.MAX_IMAGE_PIXELS = before


def upright(image: Image.Image, name: str = "picture", ours: bool = False) -> Image.Image:
    """The frame it stands at, EXIF rotation applied, transparency on white, any depth or color space as 8-bit RGB.

    What is `ours`, nobody else's, is given back as it is where it can be, and let go of as soon as it is converted.
    """
    image.load()
    if min(image.size) < 2:
        raise BadPicture(f"{name} is {image.width} x {image.height} pixels: at least 2 x 2 are needed to look anywhere")
    turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    as_it_is = image.mode == "RGB" and not image.has_transparency_data and turn is None
    if as_it_is and image.format not in HEAVY:  # those hold on to what their decoders took
        return image if ours else image.copy()
    convert = _conversion(image, name)
    if image.width * image.height <= WHOLE:
        whole = convert(image) if turn is None else convert(image).transpose(turn)
        return whole if whole.mode == "RGB" else whole.convert("RGB")
    return _in_strips(image, convert, turn, ours)


def _in_strips(image: Image.Image, convert: Convert, turn: Image.Transpose | None, ours: bool) -> Image.Image:
    """Strip by strip, packed until the picture that they came from is gone, so that it is never in memory twice."""
    packed = []
    for box in _strips(image.size):
        strip = convert(image.crop(box))
        strip = strip if turn is None else strip.transpose(turn)
        packed.append((strip.mode, strip.size, zlib.compress(strip.tobytes(), 1)))
    sideways, size = turn in SIDEWAYS, image.size
    if ours:
        image.close()
    whole, at = Image.new("RGB", size[::-1] if sideways else size), 0
    if turn not in LAST_ROW_FIRST:
        packed.reverse()
    while packed:
        mode, size, data = packed.pop()
        whole.paste(Image.frombytes(mode, size, zlib.decompress(data)), (at, 0) if sideways else (0, at))
        at += size[0] if sideways else size[1]
    return whole


def _strips(size: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    width, height = size
    rows = max(STRIP // width, 1)
    for top in range(0, height, rows):
        yield 0, top, width, min(top + rows, height)


def _conversion(image: Image.Image, name: str) -> Convert:
    """How any part of this picture becomes 8-bit gray or RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        scale = _scale((np.asarray(image.crop(box)) for box in _strips(image.size)), name)
        return lambda part: Image.fromarray(_scaled(np.asarray(part), scale))
    if image.has_transparency_data:
        return _on_white
    return lambda part: part.convert("L" if part.mode in ("1", "L") else "RGB")


def _on_white(part: Image.Image) -> Image.Image:
    part = part.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", part.size, "white"), part).convert("RGB")


def from_array(values: NDArray[np.generic], name: str = "picture") -> Image.Image:
    """H,W or H,W,1/2/3/4 (2 and 4: the last is alpha) of any numbers or bools as an RGB picture."""
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (2, 3, 4)):
        hint = "; move the channels last" if values.ndim == 3 and values.shape[0] in (1, 3, 4) else ""
        raise BadPicture(f"{name}: an array picture is H,W or H,W,3; got shape {tuple(values.shape)}{hint}")
    if values.dtype.kind not in "buif":
        raise BadPicture(f"{name}: an array picture holds numbers; got {values.dtype}")
    if min(values.shape[:2]) == 0:
        raise BadPicture(f"{name}: an array of shape {tuple(values.shape)} has no pixels")
    if values.dtype == np.bool_:
        values = values.astype(np.uint8) * 255
    return upright(Image.fromarray(_eight_bits(values, name)), name, ours=True)


def _eight_bits(values: NDArray[np.generic], name: str) -> NDArray[np.uint8]:
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values, dtype=np.uint8)
    return _scaled(values, _scale(map(values.__getitem__, _rows(values)), name))


def _scaled(values: NDArray[np.generic], scale: Scale) -> NDArray[np.uint8]:
    eight = np.empty(values.shape, np.uint8)
    for rows in _rows(values):
        eight[rows] = scale(values[rows])
    return eight


def _rows(values: NDArray[np.generic]) -> Iterator[slice]:
    return (slice(top, bottom) for _, top, _, bottom in _strips((values[0].size, len(values))))


def _scale(parts: Iterable[NDArray[np.generic]], name: str) -> Scale:
    """How a picture's values become 8 bits, from all of its parts.

    16-bit values over 257; floats as 0 to 1 when none is well above 1, as 0 to 255 otherwise.
    """
    low, top = np.inf, -np.inf
    kind: np.dtype[np.generic] = np.dtype(np.uint8)
    for part in parts:
        kind = part.dtype
        if kind.kind == "u" and kind.itemsize == 2:  # either byte order
            return np.rint(np.arange(65536) / 257).astype(np.uint8).__getitem__
        exact = part.astype(np.float64)
        if not np.isfinite(exact).all():
            raise BadPicture(f"{name}: the picture holds values that are not numbers (NaN or infinite)")
        low, top = min(low, float(exact.min())), max(top, float(exact.max()))
    floats = np.issubdtype(kind, np.floating)
    if floats and low < -0.05 * max(top, 1.0):
        raise BadPicture(f"{name}: pixels below zero; give 0 to 1 or 0 to 255, or a tensor if it is already normalized")

    def scale(values: NDArray[np.generic]) -> NDArray[np.uint8]:
        exact = values.astype(np.float64)
        if top > 255:
            exact = exact / 257 if top <= 65535 else exact / top * 255
        elif floats and top <= 1.5:  # resizing overshoots 1 a little
            exact = exact * 255
        eight: NDArray[np.uint8] = np.rint(exact.clip(0, 255)).astype(np.uint8)
        return eight

    return scale
