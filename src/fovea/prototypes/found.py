"""Prototypes with their patches, and answers with their reasons."""

import sys
from dataclasses import dataclass

from PIL import Image

from fovea.pictures import Picture

Box = tuple[int, int, int, int]  # x0 y0 x1 y1, half open, in the picture's own pixels


@dataclass(frozen=True)
class Patch:
    """A part of a picture of a data set: the box of the top 5 percent of a prototype's map."""

    name: str  # the picture's
    number: int  # of the picture in the data set
    label: str  # the picture's class
    box: Box
    similarity: float


@dataclass(frozen=True)
class Prototype:
    number: int  # among all of the network's
    label: str  # the class that it stands for
    weight: float  # of the last layer, for that class
    own: Patch | None  # what it was projected on; None before the projection
    nearest: tuple[Patch, ...]  # of other pictures, the most similar first


@dataclass(frozen=True)
class Nearest:
    prototypes: tuple[Prototype, ...]
    skipped: tuple[tuple[str, str], ...] = ()  # pictures that cannot be read, and why


@dataclass(frozen=True)
class Likeness:
    """One reason for an answer: this part of the picture looks like that prototype."""

    prototype: int
    label: str  # the prototype's class
    box: Box  # in the picture
    similarity: float
    weight: float  # of the last layer, for the class that was answered
    own: Patch | None  # what the prototype was projected on

    @property
    def contribution(self) -> float:
        """To the answer's logit."""
        return self.similarity * self.weight


@dataclass(frozen=True)
class LooksLike:
    """A picture's answer with its best reasons, the most contributing first. The logit is the sum of all of them."""

    picture: Picture
    label: str
    probability: float
    logit: float
    reasons: tuple[Likeness, ...]

    @property
    def name(self) -> str:
        return self.picture.name

    def image(self) -> Image.Image:
        return self.picture.read(sys.maxsize)  # its size was accepted when it was looked at

    def line(self) -> str:
        told = [f"{one.label} {one.similarity:.2f} x {one.weight:.2f} = {one.contribution:.2f}" for one in self.reasons]
        return f"{self.label} {self.probability:.2f} (logit {self.logit:.2f}: {', '.join(told)}, …)"


@dataclass(frozen=True)
class Answers:
    pictures: tuple[LooksLike, ...]
    skipped: tuple[tuple[str, str], ...] = ()
