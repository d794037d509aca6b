"""Prototypes with their patches, and answers with their reasons."""

import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from PIL import Image

from fovea.basics import finite
from fovea.pictures import Picture
from fovea.prototypes import figure
from fovea.prototypes.figure import Box, Shelf
from fovea.results import Shows


@dataclass(frozen=True)
class PrototypePatch:
    """A part of a picture of a data set: the box of the top 5 percent of a prototype's map."""

    name: str  # the picture's
    number: int  # of the picture in the data set
    label: str  # the picture's class
    box: Box
    similarity: float


@dataclass(frozen=True, repr=False)
class Prototype(Shows):
    number: int  # among all of the network's
    label: str  # the class that it stands for
    weight: float  # of the last layer, for that class
    own: PrototypePatch | None  # what it was projected on; None before the projection
    nearest: tuple[PrototypePatch, ...]  # of other pictures, the most similar first
    shelf: Shelf = field(compare=False)

    saved_as = ("sheet", "jpg")
    probability = None

    @property
    def name(self) -> str:
        return f"prototype-{self.number}"

    @property
    def boxes(self) -> list[Box]:
        return [patch.box for patch in ([self.own] if self.own else []) + list(self.nearest)]

    def draw(self) -> Image.Image:
        """Where it comes from, and what looks like it."""
        return figure.prototype_sheet([self])

    def to_dict(self) -> dict[str, Any]:
        known = {"number": self.number, "label": self.label, "weight": finite(self.weight)}
        nearest = [asdict(patch) for patch in self.nearest]
        return {**known, "own": None if self.own is None else asdict(self.own), "nearest": nearest}


@dataclass(frozen=True)
class Likeness:
    """One reason for an answer: this part of the picture looks like that prototype."""

    prototype: int
    label: str  # the prototype's class
    box: Box  # in the picture
    similarity: float
    weight: float  # of the last layer, for the class that was answered
    own: PrototypePatch | None  # what the prototype was projected on

    @property
    def contribution(self) -> float:
        """To the answer's logit."""
        return self.similarity * self.weight

    def __str__(self) -> str:
        return f"{self.similarity:.2f} x {self.weight:.2f} = {self.contribution:.2f}"


@dataclass(frozen=True, repr=False)
class LooksLike(Shows):
    """A picture's answer with its best reasons, the most contributing first. The logit is the sum of all of them."""

    picture: Picture
    label: str
    probability: float
    logit: float
    reasons: tuple[Likeness, ...]
    shelf: Shelf = field(compare=False)

    saved_as = ("sheet", "jpg")

    @property
    def name(self) -> str:
        return self.picture.name

    @property
    def boxes(self) -> list[Box]:
        return [reason.box for reason in self.reasons]

    def image(self) -> Image.Image:
        return self.picture.read(sys.maxsize)  # its size was accepted when it was looked at

    def draw(self) -> Image.Image:
        """One row per reason: this part of the picture looks like that prototype."""
        return figure.answer_sheet(self)

    def line(self) -> str:
        words = ", ".join(f"{reason.label} {reason}" for reason in self.reasons)
        return f"{self.label} {self.probability:.2f} (logit {self.logit:.2f}: {words}, …)"

    def shares(self) -> str:
        """What the reasons have of the logit, in words."""
        shown = sum(reason.contribution for reason in self.reasons)
        return f"logit {self.logit:.2f}: {shown:.2f} of these prototypes, {self.logit - shown:+.2f} of all others"

    def to_dict(self) -> dict[str, Any]:
        reasons = [asdict(reason) | {"contribution": finite(reason.contribution)} for reason in self.reasons]
        share, logit = finite(self.probability), finite(self.logit)
        return {"picture": self.name, "label": self.label, "probability": share, "logit": logit, "reasons": reasons}
