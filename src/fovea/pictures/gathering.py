"""What the user gives (paths, folders, globs, pictures in memory) as a list of pictures, decoded when asked for."""

import glob
import os
import threading
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadChoice, BadPicture, nearest
from fovea.pictures.big import SUFFIXES, BigPicture, Counts, big_of
from fovea.pictures.decoding import FORMATS, MAX_PIXELS, Stamp, as_bad_picture, decode, from_array, opened, upright

Box: TypeAlias = tuple[int, int, int, int]  # x0 y0 x1 y1, half open
SMALL = 64 << 20  # bytes of a file that is read before it is decoded: decoders hide what goes wrong in reading
RECENT = 32_000_000  # pixels of all those decoded last that are kept: 128 MB at most
NEAR = 200  # names in a folder that a wrong one is compared with


class Kept:
    """A decoded picture that may be let go of at any time."""

    image: Image.Image | None = None

    def __reduce__(self) -> tuple[type["Kept"], tuple[()]]:
        return Kept, ()


class Recent:
    """The pictures decoded last that somebody still holds, as pages show them: whoever draws them soon need not decode
    them again."""

    def __init__(self) -> None:
        self._places, self._pixels, self._lock = deque[tuple[weakref.ref[Kept], int]](), 0, threading.Lock()

    def keep(self, place: Kept, image: Image.Image) -> None:
        with self._lock:
            place.image, pixels = image, image.width * image.height
            self._places.append((weakref.ref(place), pixels))
            self._pixels += pixels
            while self._pixels > RECENT:
                oldest, pixels = self._places.popleft()
                self._pixels -= pixels
                if (kept := oldest()) is not None:
                    kept.image = None


recent = Recent()


class Windows(Protocol):
    """A picture that windows are read from: one in memory, or a file too large to load."""

    @property
    def size(self) -> tuple[int, int]: ...  # width, height

    @property
    def counts(self) -> Counts | None: ...  # of what was read so far, where that is not all

    @property
    def file_bytes(self) -> int | None: ...  # of the file, where that is not all

    def read(self, box: Box, size: tuple[int, int], resample: Image.Resampling = ...) -> Image.Image: ...


@dataclass(frozen=True)
class Decoded:
    """A picture in memory, upright and RGB."""

    image: Image.Image
    counts: None = None
    file_bytes: None = None

    @property
    def size(self) -> tuple[int, int]:
        return self.image.size

    def read(
        self, box: Box, size: tuple[int, int], resample: Image.Resampling = Image.Resampling.BILINEAR
    ) -> Image.Image:
        part = self.image if box == (0, 0, *self.size) else self.image.crop(box)  # no copy of all of it
        return part.resize(size, resample)


@dataclass(frozen=True)
class Picture:
    """Where a picture comes from, or why there is none. It is decoded when asked for and not kept for long."""

    name: str
    source: Path | Image.Image | NDArray[np.generic] | BadPicture | Callable[[], Image.Image]
    limit: int = MAX_PIXELS  # pixels from which on it is not decoded whole
    stamps: list[Stamp] = field(default_factory=list, repr=False, compare=False)  # of the file when it was first read
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)

    def read(self, max_pixels: int = MAX_PIXELS) -> Image.Image:
        """Decoded now, or BadPicture: also where the file is no longer what it was when it was read before."""
        if isinstance(self.source, BadPicture):
            raise self.source
        with as_bad_picture(str(self.source) if isinstance(self.source, Path) else self.name):
            if isinstance(self.source, Path):
                with opened(self.source, stamps=self.stamps) as file:
                    size = os.fstat(file.fileno()).st_size
                    return decode(BytesIO(file.read(size)) if size <= SMALL else file, str(self.source), max_pixels)
            if isinstance(self.source, Image.Image):
                return upright(self.source, self.name)
            return self.source() if callable(self.source) else from_array(self.source, self.name)

    def big(self, max_pixels: int = MAX_PIXELS) -> BigPicture | None:
        """Opened to be read window by window, where that is how its file is read; None: it is decoded whole."""
        return big_of(self.source, max_pixels, self.stamps) if isinstance(self.source, Path) else None

    @contextmanager
    def windows(self, max_pixels: int | None = None) -> Iterator[Windows]:
        """Opened to be read window by window, or decoded where that is how its file is read."""
        big = self.big(self.limit)
        if big is None:
            yield Decoded(self.read(self.limit if max_pixels is None else max_pixels))
            return
        with big:
            yield big

    def again(self) -> Image.Image | None:
        """As a page shows it, where it is kept and its file is what it was; BadPicture where that is not."""
        kept = self.kept.image
        if kept is not None and isinstance(self.source, Path):
            with as_bad_picture(str(self.source)), opened(self.source, stamps=self.stamps):
                pass
        return kept


Given: TypeAlias = str | os.PathLike[str] | Image.Image | NDArray[np.generic] | Picture


def read(path: Path, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode one file, upright and RGB; a file over the size limit is refused before its pixels are decoded."""
    return Picture(str(path), path).read(max_pixels)


def gather(given: Given | Iterable[Given]) -> list[Picture]:
    """Paths, folders (recursive), globs, PIL pictures, arrays and what was gathered before, which keeps its names, one
    or many, as a flat list in a fixed order.

    A path that leads nowhere is a picture that cannot be read, so that it does not stop the others.
    """
    if isinstance(given, (str, os.PathLike)):
        try:
            return [Picture(str(path), path) for path in expand(given)]
        except BadPicture as reason:
            return [Picture(str(given), reason)]
    if isinstance(given, Picture):
        return [given]
    if isinstance(given, Image.Image):
        return [Picture(Path(getattr(given, "filename", "") or "picture").name, given)]
    if isinstance(given, np.ndarray):
        if given.ndim == 4:
            return [Picture(f"picture-{i}", values) for i, values in enumerate(given)]
        return [Picture("picture", given)]
    if isinstance(given, Iterable) and not isinstance(given, bytes) and not hasattr(type(given), "shape"):
        items = list(given)
        pictures = [picture for item in items for picture in gather(item)]
        return pictures if all(isinstance(item, Picture) for item in items) else _named_apart(pictures)
    raise BadChoice(
        "a picture is a path, a folder, a glob, a PIL image or an array, or all of them are one N,C,H,W tensor; "
        f"got {type(given).__name__}"
    )


def _named_apart(pictures: list[Picture]) -> list[Picture]:
    """Pictures of equal names are numbered by their places."""
    count = Counter(picture.name for picture in pictures)
    apart = []
    for place, picture in enumerate(pictures):
        name = picture.name
        while count[name] > 1 or (name != picture.name and count[name]):
            name = f"{name}-{place}"
        apart.append(picture if name == picture.name else Picture(name, picture.source))
    return apart


def expand(given: str | os.PathLike[str]) -> list[Path]:
    """The picture files that a path, a folder or a glob stands for; at least one."""
    files, missing = files_of(given, is_picture_name)
    if not files:
        raise BadPicture(missing)
    return files


def files_of(given: str | os.PathLike[str], wanted: Callable[[Path], bool]) -> tuple[list[Path], str]:
    """The files that a path stands for, those below a folder and those that match a glob if they are `wanted`; and
    what to say where there are none. Links to folders are not followed, so that none leads around in circles."""
    try:
        path = Path(os.path.expanduser(given))  # of a user that is not known, as it is
        if path.is_dir():
            return sorted(filter(wanted, _below(path))), f"no pictures in the folder {str(given)!r}"
        if path.exists() or path.is_symlink():
            return [path], ""
        if glob.has_magic(str(path)):
            hits = (hit for hit in _matches(path) if hit.is_file() and wanted(hit))
            return sorted(hits), f"no pictures match {str(given)!r}"
        with os.scandir(path.parent) if path.parent.is_dir() else nullcontext(()) as entries:
            some = (entry.name for entry in entries if wanted(Path(entry.name)) or entry.is_dir())
            near = nearest(path.name, list(islice(some, NEAR)))
        return [], f"no file or folder {str(given)!r}{near}"
    except OSError as error:
        raise BadPicture(f"{str(given)!r} cannot be opened: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise BadPicture(f"{str(given)!r} is no path: {error}") from None


def _below(folder: Path) -> Iterator[Path]:
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_symlink() or not os.path.isdir(entry.path):
                    yield Path(entry.path)


def _matches(path: Path) -> Iterator[Path]:
    if "**" not in path.parts:
        yield from map(Path, glob.glob(str(path)))
        return
    deep = path.parts.index("**")
    for root in map(Path, glob.glob(str(Path(*path.parts[:deep])))) if deep else [Path()]:
        yield from (file for file in _below(root) if _fits(file.relative_to(root).parts, path.parts[deep:]))


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern or not names:
        return not names and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _fits(names, pattern[1:]) or _fits(names[1:], pattern)
    return fnmatchcase(names[0], pattern[0]) and _fits(names[1:], pattern[1:])


def is_picture_name(path: Path) -> bool:
    return path.suffix.lower() in _suffixes()


@lru_cache
def _suffixes() -> frozenset[str]:
    return SUFFIXES.union(suffix for suffix, name in Image.registered_extensions().items() if name in FORMATS)


def tell_skipped(any_read: bool, skipped: Sequence[tuple[str, str]], stacklevel: int = 3) -> None:
    """An error where nothing could be read, and a warning, to whoever called what calls this, where some could not."""
    if not any_read:
        reasons = "; ".join(reason for _, reason in skipped[:3])
        raise BadPicture(reasons or "no pictures were given (an empty folder, or a pattern that matches none)")
    if skipped:
        warnings.warn(f"{len(skipped)} picture(s) skipped: {skipped[0][1]}", stacklevel=stacklevel)
