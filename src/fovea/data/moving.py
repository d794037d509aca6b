"""Clips of moving digits: how the digit moves is the class, which digit it is does not matter. Nothing is stored.

A motion has two legs, each right, down, left or up, so one frame alone does not tell it and neither do two: sixteen
classes. A clip follows from the settings, the seed, the split and its index alone, and is made when it is read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import SEED, BadChoice, Bound, bounded, nearest, within
from fovea.data.layouts import layout
from fovea.data.megapixel import digit_source, glyphs, ink_box, lighten
from fovea.data.options import Size, numbers, splits_asked
from fovea.data.samples import Box

WAYS = {"right": (1, 0), "down": (0, 1), "left": (-1, 0), "up": (0, -1)}
MOTIONS = tuple(f"{first}-{second}" for first in WAYS for second in WAYS)
MOST = 1_000_000  # frames of a set
SLOWEST, FASTEST = 0.75, 1.25  # a leg's length, in steps


class Frame(Protocol):
    """One picture of a clip. Frames that are equal are the same picture, so it need be looked at only once."""

    @property
    def box(self) -> Box | None: ...  # of what moves, where that is known

    def read(self) -> Image.Image: ...  # or BadPicture


@dataclass(frozen=True)
class Shot:
    """A labeled clip."""

    name: str
    label: int
    frames: tuple[Frame, ...] = field(repr=False)


@dataclass(frozen=True)
class Shots:
    """A named set of labeled clips, all of as many frames."""

    name: str
    samples: tuple[Shot, ...] = field(repr=False)
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.samples)


# the options are the text after a set's name, so this door has them all
@layout("moving", holds="clips", about="clips, made: digits that move")
@bounded
def make_moving(  # a public door: these are the options of --data moving:
    *,
    split: str | None = None,
    count: Annotated[int, Bound(1, 1_000_000)] = 1000,
    frames: Annotated[int, Bound(3, 1000)] = 3,  # a motion has two legs
    canvas: Annotated[Size, Bound(8, 4000)] = (112, 112),
    digit: Annotated[int, Bound(8, 2000)] = 40,
    step: Annotated[int, Bound(1, 2000)] = 14,
    noise: Annotated[int, Bound(0, 255)] = 0,
    motions: str = "0-15",
    seed: Annotated[int, SEED] = 0,
    source: str = "mnist",
) -> Shots:
    """`count` clips of `frames` frames. A leg is about `step` pixels long; `noise` is the brightest of the background.
    `motions` are those to make, by number or name, as 0-7 or right-up+left-left. `source` is mnist, a folder with
    MNIST's files, or digits (scikit-learn's). split= train (the default) and test take their digits from the source's
    own halves."""
    part = splits_asked("moving", split or "train", ("train", "test"))[0]
    within("moving: count= times frames=", count * frames, 3, MOST)
    if min(canvas) < digit + 2 * FASTEST * step:
        raise BadChoice(
            f"moving: a digit of {digit} pixels has no room for two steps of {step} on a canvas of "
            f"{canvas[0]} x {canvas[1]}; take a larger canvas=, or a smaller digit= or step="
        )
    scene = Scene(canvas, digit, step, noise, frames, seed, part, _source(source))
    glyphs((scene.source,), part)  # a source that is not there is said now
    wanted = _motions(motions)
    moved = (Motion(scene, i, wanted[i % len(wanted)]) for i in range(count))
    return Shots("moving", tuple(motion.shot() for motion in moved), MOTIONS)


def _source(given: str) -> str:
    try:
        return digit_source(given)
    except BadChoice as error:
        raise BadChoice(f"{error}; source=digits takes those that come with scikit-learn") from None


def _motions(given: str) -> tuple[int, ...]:
    if not re.search("[a-z]", given):
        found = sorted(numbers(given))
        if found[-1] >= len(MOTIONS):
            raise BadChoice(f"moving: motions are numbered 0 to {len(MOTIONS) - 1}; got {found[-1]}")
        return tuple(found)
    names = [name.strip() for name in given.split("+")]
    for name in names:
        if name not in MOTIONS:
            raise BadChoice(f"moving: no motion {name!r}{nearest(name, MOTIONS)} (they are {', '.join(MOTIONS)})")
    return tuple(dict.fromkeys(map(MOTIONS.index, names)))


@dataclass(frozen=True)
class Scene:
    """What all clips of a set have in common."""

    canvas: Size
    digit: int
    step: int
    noise: int
    frames: int
    seed: int
    split: str
    source: str  # "digits", or a folder of MNIST's files


@dataclass(frozen=True)
class Motion:
    """One clip, made when it is read."""

    scene: Scene
    index: int
    label: int

    def shot(self) -> Shot:
        frames = tuple(MovedFrame(self, i) for i in range(self.scene.frames))
        return Shot(f"{self.scene.split}/{self.index:06}", self.label, frames)

    @cached_property
    def glyph(self) -> Image.Image:
        images, side = glyphs((self.scene.source,), self.scene.split).images, self.scene.digit
        chosen = Image.fromarray(images[int(self.random(0).integers(len(images)))])
        return chosen.resize((side, side), Image.Resampling.BICUBIC)

    @cached_property
    def corners(self) -> NDArray[np.int64]:
        """Where the digit's picture begins in every frame (T,2); the whole path lies anywhere on the canvas."""
        scene, random = self.scene, self.random(1)
        legs = np.array([WAYS[way] for way in MOTIONS[self.label].split("-")], dtype=float)  # 2,2
        legs *= scene.step * random.uniform(SLOWEST, FASTEST, (2, 1))
        gone = np.linspace(0, 2, scene.frames)[:, None]  # T,1  in legs
        path = legs[0] * gone.clip(0, 1) + legs[1] * (gone - 1).clip(0, 1)  # T,2
        low, high = -path.min(0), np.array(scene.canvas) - scene.digit - path.max(0)
        return np.rint(path + random.uniform(low, high)).astype(np.int64)

    def random(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.scene.seed, self.scene.split == "test", self.index, what])


@dataclass(frozen=True)
class MovedFrame:
    motion: Motion
    index: int

    @property
    def box(self) -> Box:
        """Of the digit's ink, tight."""
        return ink_box(self.motion.glyph, *self.motion.corners[self.index].tolist())

    def read(self) -> Image.Image:
        scene, glyph = self.motion.scene, np.asarray(self.motion.glyph)
        (width, height), (x, y) = scene.canvas, self.motion.corners[self.index].tolist()
        pixels = self.motion.random(2 + self.index).integers(scene.noise + 1, size=(height, width), dtype=np.uint8)
        lighten(pixels, glyph, x, y)
        return Image.fromarray(pixels).convert("RGB")


def boxes_of(frames: Sequence[Frame]) -> tuple[Box, ...] | None:
    """The box of every frame, or None where one has none."""
    found = tuple(frame.box for frame in frames)
    return None if None in found else tuple(box for box in found if box is not None)
