"""Prototypes and answers as pictures: parts of pictures side by side, what they are of and how alike they are."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from PIL import Image

from fovea.data import DataSet
from fovea.results import drawing, marks

if TYPE_CHECKING:
    from fovea.prototypes.reasons import Likeness, LooksLike, Prototype, PrototypePatch

Box = tuple[int, int, int, int]  # x0 y0 x1 y1, half open, in the picture's own pixels

PICTURE, PART = (240, 180), (180, 180)  # pixels that a whole picture, and a part of one, fit in
ROWS = 20  # of a sheet


def boxed(image: Image.Image, box: Box) -> Image.Image:
    """The whole picture with the box."""
    drawn = drawing.fitted(image, PICTURE)
    marks.draw_box(drawn, box, image.size)
    return drawn


def cropped(image: Image.Image, box: Box) -> Image.Image:
    """The part in the box."""
    return drawing.fitted(image.crop(box), PART)


class Shelf:
    """Pictures of a data set by number, a few of them kept decoded."""

    def __init__(self, data: DataSet) -> None:
        self.read = lru_cache(64)(lambda number: data.samples[number].source.read())

    def whole(self, patch: "PrototypePatch") -> Image.Image:
        return boxed(self.read(patch.number), patch.box)

    def part(self, patch: "PrototypePatch") -> Image.Image:
        return cropped(self.read(patch.number), patch.box)


def prototype_sheet(prototypes: Sequence["Prototype"]) -> Image.Image:
    """A row each: where it comes from, and what looks like it. Of many, the first of each class."""
    shown = list(prototypes)
    if len(shown) > ROWS:
        shown = list({prototype.label: prototype for prototype in reversed(shown)}.values())[::-1][:ROWS]
    return drawing.framed(drawing.grid([_prototype_row(prototype) for prototype in shown], 10))


def _prototype_row(prototype: "Prototype") -> list[Image.Image]:
    shelf = prototype.shelf
    words, nothing = f"prototype {prototype.number}, weight {prototype.weight:.2f}", Image.new("RGB", (1, 1), "white")
    own = prototype.own
    row = [drawing.named(shelf.whole(own) if own else nothing, PICTURE, prototype.label, words)]
    if own is None:
        row.append(drawing.named(nothing, PART, "not projected", ""))
    else:
        row.append(drawing.named(shelf.part(own), PART, "the prototype", own.name))
    for patch in prototype.nearest:
        row.append(drawing.named(shelf.part(patch), PART, patch.label, f"similarity {patch.similarity:.2f}"))
    return row


def answer_sheet(answer: "LooksLike") -> Image.Image:
    """A row for each reason: this part of the picture looks like that prototype."""
    image = answer.image()
    rows = [_reason_row(image, reason, answer.shelf) for reason in answer.reasons]
    title = f"{answer.name.rpartition('/')[2]}: {answer.label} {answer.probability:.2f}"
    return drawing.framed(drawing.titled(drawing.grid(rows, 10), title, answer.shares()))


def _reason_row(image: Image.Image, reason: "Likeness", shelf: Shelf) -> list[Image.Image]:
    row = [drawing.named(boxed(image, reason.box), PICTURE, str(reason), "")]
    row.append(drawing.named(cropped(image, reason.box), PART, "this looks like", ""))
    if reason.own is not None:
        row.append(drawing.named(shelf.part(reason.own), PART, "that", f"prototype {reason.prototype}"))
        row.append(drawing.named(shelf.whole(reason.own), PICTURE, reason.label, reason.own.name))
    return row
