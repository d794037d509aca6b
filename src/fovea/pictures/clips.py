"""Clips: what the user gives, a video, GIF or animated WebP file, as frames: so many, every k-th, or all."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from fovea.basics import BadChoice, BadPicture, demand_bounds
from fovea.pictures.decoding import MAX_PIXELS, open_lazily, opened
from fovea.pictures.footage import ANIMATIONS, MEND, Footage, Frame, lost, survey
from fovea.pictures.gathering import files_of

VIDEOS = frozenset(
    f".{name}"
    for name in ("mp4", "m4v", "mov", "mkv", "webm", "avi", "mpg", "mpeg", "ts", "mts", "m2ts", "wmv", "flv", "ogv",
                 "3gp", "y4m", "h264", "h265", "hevc")
)  # fmt: skip


@dataclass(frozen=True)
class Clip:
    """Frames in memory; `rate` is the file's, in frames a second."""

    name: str
    frames: tuple[Image.Image, ...]
    times: tuple[float, ...]  # seconds from the file's first frame
    numbers: tuple[int, ...]  # in the file
    rate: float

    def __len__(self) -> int:
        return len(self.frames)

    def image(self, frame: int) -> Image.Image:
        """One of them, by its place among them."""
        return self.frames[frame]

    def read(self) -> Iterator[Frame]:
        """One after the other; those that cannot be decoded are left out."""
        yield from map(Frame, self.numbers, self.times, self.frames)


@dataclass(frozen=True)
class Taken:
    """Frames that stay in their file, too many for the memory: each is read when asked for."""

    footage: Footage
    numbers: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.footage.name

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(self.footage.times[number] for number in self.numbers)

    @property
    def rate(self) -> float:
        return self.footage.rate

    def image(self, frame: int) -> Image.Image:
        number = self.numbers[frame]
        found = next(self.footage.read([number]), None)
        if found is None:
            raise BadPicture(f"frame {number} of {self.name} cannot be decoded")
        return found.image

    def read(self) -> Iterator[Frame]:
        return self.footage.read(self.numbers)


Frames = Clip | Taken  # some frames of a clip, in memory or in their file


def is_clip_name(path: str | PathLike[str]) -> bool:
    """A video, by its name."""
    return Path(path).suffix.lower() in VIDEOS


def is_clip(path: str | PathLike[str]) -> bool:
    """A video by its name, or a GIF, WebP or APNG file that moves (of files called .png, which might, none is opened
    to see)."""
    path = Path(path)
    if path.suffix.lower() not in ANIMATIONS - {".png"}:
        return is_clip_name(path)
    try:
        with opened(path) as file, open_lazily(file) as image:
            return bool(getattr(image, "is_animated", False))
    except Exception:  # a damaged one is reported as the picture that it would be
        return False


def expand_clips(given: str | PathLike[str]) -> list[Path]:
    """The clips that a path, a folder (searched through) or a glob stands for; of what is no clip, none."""
    files, _ = files_of(given, is_clip)
    return [file for file in files if file.is_file() and is_clip(file)]


def read_clip(
    path: str | PathLike[str],
    frames: int | None = None,
    every: int | None = None,
    start: float = 0.0,
    stop: float | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Clip:
    """Frames of a clip from `start` to `stop` seconds: so many, evenly spread; every k-th; or all.

    Evenly spread are the middle frames of as many equal parts, since clips often begin and end in black. Only what is
    needed is decoded. `max_pixels` limits all the frames together."""
    demand_bounds({"frames": frames, "every": every, "start": start, "stop": stop, "max_pixels": max_pixels})
    footage = survey(path, max_pixels)
    clip, notes = take(footage, choose(footage, frames, every, start, stop), max_pixels)
    if isinstance(clip, Taken):
        (width, height), count = footage.size, len(clip.numbers)
        raise BadPicture(
            f"{footage.name}: {count:,} frames of {width:,} x {height:,} are over the limit of {max_pixels:,} pixels; "
            "ask for fewer (frames=3, every=100, start= and stop=), or raise max_pixels"
        )
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return clip


class Choice(NamedTuple):
    """The frames wanted, how many were asked for, and those they were chosen from."""

    numbers: tuple[int, ...]
    asked: int | None
    among: range


def choose(
    footage: Footage, frames: int | None = None, every: int | None = None, start: float = 0.0, stop: float | None = None
) -> Choice:
    """So many frames of a stretch, evenly spread; every k-th; or all."""
    if frames is not None and every is not None:
        raise BadChoice(f"frames={frames} and every={every}: give one of them")
    for name, value in (("frames", frames), ("every", every)):
        if value is not None and value < 1:
            raise BadChoice(f"{name} is a whole number from 1; got {value}")
    among = footage.stretch(start, stop)
    return Choice(tuple(among[:: every or 1]) if frames is None else spread(among, frames), frames, among)


def spread(among: Sequence[int], count: int) -> tuple[int, ...]:
    """The middles of so many equal parts; all where there are no more than that."""
    if count >= len(among):
        return tuple(among)
    return tuple(among[(2 * part + 1) * len(among) // (2 * count)] for part in range(count))


def take(footage: Footage, choice: Choice, max_pixels: int = MAX_PIXELS) -> tuple[Clip | Taken, list[str]]:
    """The frames chosen, in memory where they are within the limit, and what the reader should know of them.

    Where some of a number of frames cannot be decoded, that number is chosen anew among those that can."""
    notes = [footage.note] if footage.note else []
    wanted, asked, among = choice
    if asked is not None and asked > len(wanted):
        notes.append(f"{footage.name}: {asked} frames were asked for and there are {len(wanted)}: all are used")
    width, height = footage.size
    if len(wanted) * width * height > max_pixels:
        return Taken(footage, wanted), notes
    got = list(footage.read(wanted))
    if len(got) < len(wanted):
        good = [number for number, _ in footage.decode(among)]
        notes.append(lost(footage.name, len(among) - len(good), len(among)))
        if asked is not None:
            got = list(footage.read(spread(good, asked)))
    if not got:
        raise BadPicture(f"{footage.name} is damaged: none of its frames can be decoded; {MEND}")
    numbers, times, images = zip(*((frame.number, frame.time, frame.image) for frame in got), strict=True)
    return Clip(footage.name, images, times, numbers, footage.rate), notes
