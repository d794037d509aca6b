"""What zooming gives: the label, what the network read to get there, in the picture's own pixels, and what it cost."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from fovea.basics.files import finite
from fovea.glimpses.reading import Box, clipped
from fovea.pictures.shown import Shown, about


@dataclass(frozen=True)
class Glimpse:
    """A window of the picture that was read, and what it says alone."""

    number: int  # the overview is 0
    level: int  # the overview's is 1
    box: Box  # as read: over the edge of the picture, maybe
    visible: Box  # the part of it that is in the picture
    parent: int | None  # the number of what it was chosen in
    chosen: float | None  # the probability that it was chosen with
    label: str
    probability: float

    def row(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "level": self.level,
            "box": list(self.box),
            "visible": list(self.visible),
            "parent": self.parent,
            "chosen": None if self.chosen is None else finite(self.chosen),
            "label": self.label,
            "probability": finite(self.probability),
        }


@dataclass(frozen=True)
class After:
    """What the network would have answered after one of the things that it read."""

    number: int  # of the glimpse; 0 is the overview
    label: str
    probability: float
    answer: float  # the probability, at that time, of the label that was given in the end


@dataclass(frozen=True)
class Cost:
    macs: int
    pixels_read: int  # of the picture, in all windows together
    pixels: int  # of the picture
    share: float  # of them, that was read at the finest resolution
    resolution: float  # which is that; 1 is the picture's own

    def reading(self) -> str:
        how = "at full resolution" if self.resolution == 1 else f"at {self.resolution:.2g} of full resolution"
        return f"{100 * self.share:.3g} % of the picture's pixels read {how}"


@dataclass(frozen=True)
class Answer:
    """One picture: what it is taken for, and the descent that led there."""

    shown: Shown
    label: str
    probability: float
    after: tuple[After, ...]  # in the order of reading
    overview: Glimpse | None
    glimpses: tuple[Glimpse, ...]
    cost: Cost
    note: str = ""

    @property
    def name(self) -> str:
        return self.shown.name

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        assert self.shown.placement is not None  # windows are read of pictures only
        return self.shown.placement.picture

    def crops(self) -> list[Image.Image]:
        """The glimpses, cut out of the user's own picture."""
        image = self.shown.image()
        return [image.crop(shown_box(one, image.size)) for one in self.glimpses]

    def figure(self) -> Image.Image:
        """The descent: the picture with numbered boxes, the glimpses, and the answer's probability after each."""
        from fovea.glimpses.figure import draw

        return draw(self)

    def line(self) -> str:
        """In a line: the label, how many glimpses it took, and how much was read."""
        number = f"{len(self.glimpses)} {'glimpse' if len(self.glimpses) == 1 else 'glimpses'}"
        return f"{self.label} {self.probability:.2f}, {number}, {self.cost.reading()}"

    def row(self) -> dict[str, Any]:
        return {
            **about(self.shown),
            "label": self.label,
            "probability": finite(self.probability),
            "after": [
                {
                    "number": one.number,
                    "label": one.label,
                    "probability": finite(one.probability),
                    "answer": finite(one.answer),
                }
                for one in self.after
            ],
            "overview": None if self.overview is None else self.overview.row(),
            "glimpses": [one.row() for one in self.glimpses],
            "macs": self.cost.macs,
            "pixels_read": self.cost.pixels_read,
            "pixels": self.cost.pixels,
            "share": self.cost.share,
            "resolution": self.cost.resolution,
            "note": self.note or None,
        }

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        buffer = BytesIO()
        self.figure().save(buffer, "png")
        return buffer.getvalue()


@dataclass(frozen=True)
class Answers:
    """An answer for every picture; `skipped` are those that could not be read, and why."""

    answers: tuple[Answer, ...]
    skipped: tuple[tuple[str, str], ...] = field(default=())

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> Answer:
        return self.answers[index]

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def save(self, folder: str | Path) -> list[dict[str, Any]]:
        """Pictures of the descents and zoom.json into a folder; the JSON's rows come back."""
        from fovea.glimpses.writing import Writer

        with Writer(Path(folder), {}) as writer:
            writer.add(self.answers, self.skipped)
        return writer.rows


def shown_box(glimpse: Glimpse, size: tuple[int, int]) -> Box:
    """What is in the picture of a glimpse, with at least one pixel to show."""
    width, height = size
    x0, y0 = min(glimpse.visible[0], width - 1), min(glimpse.visible[1], height - 1)
    return clipped((x0, y0, max(glimpse.visible[2], x0 + 1), max(glimpse.visible[3], y0 + 1)), (height, width))
