"""Every decode of a picture file happens here: what the user gives goes in, an upright RGB picture comes out."""

import glob
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fovea.basics import BadChoice, BadPicture, nearest

MAX_PIXELS = 200_000_000  # 14,000 x 14,000; decoded, that is 600 MB
Given: TypeAlias = str | os.PathLike[str] | Image.Image | NDArray[np.generic]

_bomb_lock = threading.Lock()


@dataclass(frozen=True)
class Picture:
    """Where a picture comes from, or why there is none. It is decoded when asked for and not kept."""

    name: str
    source: Path | Image.Image | NDArray[np.generic] | BadPicture

    def read(self, max_pixels: int = MAX_PIXELS) -> Image.Image:
        if isinstance(self.source, BadPicture):
            raise self.source
        if isinstance(self.source, Path):
            return read(self.source, max_pixels)
        if isinstance(self.source, Image.Image):
            with _as_bad_picture(self.name):
                return upright(self.source, self.name)
        return from_array(self.source, self.name)


def gather(given: Given | Iterable[Given]) -> list[Picture]:
    """Paths, folders (recursive), globs, PIL pictures and arrays, one or many, as a flat list in a fixed order.

    A path that leads nowhere is a picture that cannot be read, so that it does not stop the others.
    """
    if isinstance(given, (str, os.PathLike)):
        try:
            return [Picture(str(path), path) for path in expand(given)]
        except BadPicture as reason:
            return [Picture(str(given), reason)]
    if isinstance(given, Image.Image):
        return [Picture(Path(getattr(given, "filename", "") or "picture").name, given)]
    if isinstance(given, np.ndarray):
        if given.ndim == 4:
            return [Picture(f"picture-{i}", one) for i, one in enumerate(given)]
        return [Picture("picture", given)]
    if isinstance(given, Iterable) and not isinstance(given, bytes) and not hasattr(given, "shape"):
        found = [picture for one in given for picture in gather(one)]
        count = Counter(picture.name for picture in found)
        return [Picture(f"{p.name}-{i}", p.source) if count[p.name] > 1 else p for i, p in enumerate(found)]
    raise BadChoice(
        "a picture is a path, a folder, a glob, a PIL image or an array, or all of them are one N,C,H,W tensor; "
        f"got {type(given).__name__}"
    )


def expand(given: str | os.PathLike[str]) -> list[Path]:
    """The picture files that a path, a folder or a glob stands for; at least one."""
    path = Path(given).expanduser()
    try:
        if path.is_dir():
            found = sorted(_pictures_below(path))
            missing = f"no pictures in the folder {str(given)!r}"
        elif path.exists() or path.is_symlink():
            return [path]
        elif glob.has_magic(str(given)):
            hits = (Path(hit) for hit in glob.glob(str(path), recursive=True))
            found = sorted(hit for hit in hits if hit.is_file() and is_picture_name(hit))
            missing = f"no pictures match {str(given)!r}"
        else:
            neighbors = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            found, missing = [], f"no file or folder {str(given)!r}{nearest(path.name, neighbors)}"
    except OSError as error:
        raise BadPicture(f"{str(given)!r} cannot be opened: {error.strerror}") from None
    if not found:
        raise BadPicture(missing)
    return found


def _pictures_below(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(root, name) for name in files if is_picture_name(Path(name)) and not name.startswith("."))


def is_picture_name(path: Path) -> bool:
    suffix = path.suffix.lower()
    return suffix in Image.registered_extensions() and suffix not in {".pdf", ".mpg", ".mpeg", ".h5", ".hdf"}


def read(path: Path, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode one file, upright and RGB; a file over the size limit is refused before its pixels are decoded."""
    with _as_bad_picture(str(path)):
        if path.is_dir():
            raise BadPicture(f"{path} is a folder, not a picture")
        if path.stat().st_size == 0:
            raise BadPicture(f"{path} is empty (0 bytes)")
        return _decoded(path, str(path), max_pixels)


def read_bytes(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The same for a file that is already in memory."""
    with _as_bad_picture(name):
        return _decoded(BytesIO(data), name, max_pixels)


def _decoded(source: Path | BytesIO, name: str, max_pixels: int) -> Image.Image:
    with open_lazily(source) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise BadPicture(
                f"{name} is {width:,} x {height:,} pixels, over the limit of {max_pixels:,}; "
                "raise max_pixels (--max-pixels) to read it"
            )
        return upright(image, name)


@contextmanager
def _as_bad_picture(name: str) -> Iterator[None]:
    """Decoders fail in many ways on a damaged file; none of them may stop the pictures after it."""
    try:
        yield
    except BadPicture:
        raise
    except UnidentifiedImageError:
        raise BadPicture(f"{name} is not a picture in a format that can be read") from None
    except FileNotFoundError:
        raise BadPicture(f"{name} does not exist, or is a link to what does not", passing=True) from None
    except PermissionError:
        raise BadPicture(f"{name} may not be read (permission denied)", passing=True) from None
    except Exception as error:
        if isinstance(error, MemoryError) or "out of memory" in str(error):
            raise BadPicture(f"{name} does not fit into the memory that is left", passing=True) from None
        if isinstance(error, OSError) and error.errno is not None:  # the system's: those of decoders have no number
            raise BadPicture(f"{name} cannot be read now: {error.strerror}", passing=True) from None
        raise BadPicture(f"{name} is damaged or cut short: {error}") from None


def open_lazily(source: Path | BytesIO) -> Image.Image:
    """Pillow's own limit is a module-wide setting below ours, checked as a file is opened: lift it for that moment."""
    with _bomb_lock:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(source)
        finally:
            Image.MAX_IMAGE_PIXELS = before


def upright(image: Image.Image, name: str = "picture") -> Image.Image:
    """The frame it stands at, EXIF rotation applied, transparency on white, any depth or color space as 8-bit RGB."""
    image.load()
    image = ImageOps.exif_transpose(image)
    if min(image.size) < 2:
        raise BadPicture(f"{name} is {image.width} x {image.height} pixels: at least 2 x 2 are needed to look anywhere")
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_eight_bits(np.asarray(image), name)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


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
    return upright(Image.fromarray(_eight_bits(values, name)), name)


def _eight_bits(values: NDArray[np.generic], name: str) -> NDArray[np.uint8]:
    """16-bit values over 257; floats as 0 to 1 when none is well above 1, as 0 to 255 otherwise."""
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values, dtype=np.uint8)
    exact = values.astype(np.float64)
    if not np.isfinite(exact).all():
        raise BadPicture(f"{name}: the picture holds values that are not numbers (NaN or infinite)")
    top = float(exact.max())
    if np.issubdtype(values.dtype, np.floating) and float(exact.min()) < -0.05 * max(top, 1.0):
        raise BadPicture(f"{name}: pixels below zero; give 0 to 1 or 0 to 255, or a tensor if it is already normalized")
    if (values.dtype.kind, values.dtype.itemsize) == ("u", 2) or top > 255:  # either byte order
        exact = exact / 257 if top <= 65535 else exact / top * 255
    elif np.issubdtype(values.dtype, np.floating) and top <= 1.5:  # resizing overshoots 1 a little
        exact = exact * 255
    eight: NDArray[np.uint8] = np.rint(exact.clip(0, 255)).astype(np.uint8)
    return eight


def tell_skipped(any_read: bool, skipped: Sequence[tuple[str, str]], stacklevel: int = 3) -> None:
    """An error where nothing could be read, and a warning, to whoever called what calls this, where some could not."""
    if not any_read:
        reasons = "; ".join(reason for _, reason in skipped[:3])
        raise BadPicture(reasons or "no pictures were given (an empty folder, or a pattern that matches none)")
    if skipped:
        warnings.warn(f"{len(skipped)} picture(s) skipped: {skipped[0][1]}", stacklevel=stacklevel)
