"""Segments of a video: consecutive stretches are the classes, and clips of a few frames are drawn from each.

Of every three frames the middle one is for the test, so that no frame is in both splits. `open_clips` opens any clips.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import SEED, BadChoice, BadPicture, Bound, bounded, nearest, within
from fovea.data.layouts import layout, opened
from fovea.data.moving import MOST, Shot, Shots
from fovea.data.options import splits_asked
from fovea.data.places import at_home, home
from fovea.pictures import survey

HELD = 4 << 30  # bytes of frames that are kept in memory
EVERY = 3  # frames, of which one is for the test
SHORTEST = 0.5  # of a stretch: a last one that is shorter is left out


def open_clips(given: str | Path) -> Shots:
    """'moving:count=1000,split=test' or 'segments:file=clip.mp4,seconds=1': see `make_moving` and `make_segments`."""
    return opened(given, "clips")


@layout("segments", holds="clips", about="clips: stretches of a video, `file=`")
@bounded
def make_segments(
    *,
    file: str | None = None,
    seconds: Annotated[float, Bound(0.001, 1e6, real=True)] = 1,
    frames: Annotated[int, Bound(1, 1000)] = 3,
    split: str | None = None,
    count: Annotated[int, Bound(1, 1_000_000)] = 300,
    side: Annotated[int, Bound(8, 4096)] = 256,
    seed: Annotated[int, SEED] = 0,
) -> Shots:
    """Clips of `frames` frames from every stretch of `seconds` of a video, a path or below FOVEA_DATA. split=train (the
    default): `count` clips, each frame drawn at random from a part of its own of the stretch. split=test: as many as
    there are frames for, spread evenly, no frame twice. The frames kept have a shorter side of at most `side`
    pixels."""
    part = splits_asked("segments", split or "train", ("train", "test"))[0]
    if file is None:
        raise BadChoice("segments are of a video: segments:file=clip.mp4")
    within("segments: count= times frames=", count * frames, 1, MOST)
    path = _found(file)
    video = Video.read(path, side)
    stretches = _stretches(video.times, seconds)
    few = min(len(own) for own in stretches)
    if len(stretches) < 2 or few // EVERY < 2 * frames:
        raise BadChoice(
            f"segments: {path.name} has {len(video.times)} frames in {len(stretches)} stretch(es) of {seconds:g} s, "
            f"the shortest of {few}: two stretches are needed, and {2 * EVERY * frames} frames in each for test clips "
            f"of {frames}; take other seconds=, or fewer frames="
        )
    drawn = [(label, rows) for label, own in enumerate(stretches) for rows in _spread(own, frames)]
    drawn = _drawn(stretches, frames, count, seed) if part == "train" else drawn
    shots = ((label, tuple(VideoFrame(video, row) for row in rows)) for label, rows in drawn)
    samples = tuple(Shot(f"{part}/{i:06}", *shot) for i, shot in enumerate(shots))
    labels = tuple(f"{i * seconds:g} s to {(i + 1) * seconds:g} s" for i in range(len(stretches)))
    return Shots(path.stem, samples, labels)


@dataclass(frozen=True)
class Video:
    """Every frame of a file, small."""

    path: str
    side: int
    times: tuple[float, ...] = field(compare=False, repr=False)
    images: tuple[Image.Image, ...] = field(compare=False, repr=False)

    @staticmethod
    def read(path: Path, side: int) -> "Video":
        footage = survey(path)
        width, height = (round(length * min(1, side / min(footage.size))) for length in footage.size)
        within(f"bytes of the frames of {path} at side={side}", 3 * width * height * len(footage.times), 0, HELD)
        read = [(frame.time, _shrunk(frame.image, side)) for frame in footage.read(range(len(footage.times)))]
        if not read:
            raise BadPicture(f"{path} is damaged: none of its {len(footage.times)} frames can be decoded")
        return Video(str(path), side, tuple(time for time, _ in read), tuple(image for _, image in read))


@dataclass(frozen=True)
class VideoFrame:
    video: Video
    row: int  # among the video's frames

    @property
    def box(self) -> None:
        """Nothing is known of what is in it."""
        return None

    def read(self) -> Image.Image:
        return self.video.images[self.row]


def _shrunk(image: Image.Image, side: int) -> Image.Image:
    scale = side / min(image.size)
    if scale >= 1:
        return image
    return image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)


def _found(given: str) -> Path:
    path, root = at_home(given), home()
    places = [path] if root is None or path.is_absolute() else [path, root / path]
    for place in places:
        if place.is_file():
            return place
    beside = [path.name for place in places if place.parent.is_dir() for path in place.parent.iterdir()]
    where = ", ".join(str(place.absolute()) for place in places)
    raise BadChoice(f"segments: no video {given!r}{nearest(path.name, beside)} (looked for {where})")


def _stretches(times: tuple[float, ...], seconds: float) -> list[NDArray[np.intp]]:
    """The frames of every stretch; a last one that is too short is left out."""
    since = np.array(times) - times[0]
    within("stretches of a video", since.max() / seconds, 0, 10_000)
    number = np.floor(since / seconds + 1e-9).astype(int)  # a frame at the very end of a stretch begins the next
    found = [np.flatnonzero(number == i) for i in range(number[-1] + 1)]
    if len(found) > 1 and len(found[-1]) < SHORTEST * len(found[0]):
        found.pop()
    return found


def _drawn(stretches: list[NDArray[np.intp]], frames: int, count: int, seed: int) -> list[tuple[int, tuple[int, ...]]]:
    """Stretches in turn. Each is divided evenly, and one frame drawn of every part: in order, and spread."""
    found = []
    for i in range(count):
        label, random = i % len(stretches), np.random.default_rng([seed, i])
        own = stretches[label]
        parts = np.array_split(own[np.arange(len(own)) % EVERY != EVERY // 2], frames)
        found.append((label, tuple(int(random.choice(part)) for part in parts)))
    return found


def _spread(own: NDArray[np.intp], frames: int) -> list[tuple[int, ...]]:
    """The stretch's test frames, dealt out to as many clips as there are whole ones."""
    held = own[EVERY // 2 :: EVERY]
    clips = len(held) // frames
    return [tuple(held[i : clips * frames : clips].tolist()) for i in range(clips)]
