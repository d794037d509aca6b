"""Prototypes and answers as pictures: parts of pictures side by side, what they are of and how alike they are."""

from collections.abc import Sequence
from functools import lru_cache

from PIL import Image

from fovea.data import DataSet
from fovea.prototypes.found import Box, Likeness, LooksLike, Patch, Prototype
from fovea.results import drawing

PICTURE, PART = (240, 180), (180, 180)  # pixels that a whole picture, and a part of one, fit in
ROWS = 20  # of a sheet


def boxed(image: Image.Image, box: Box) -> Image.Image:
    """The whole picture with the box."""
    drawn = drawing.fitted(image, PICTURE)
    across, down = drawn.width / image.width, drawn.height / image.height
    drawing.draw_box(drawn, (box[0] * across, box[1] * down, box[2] * across, box[3] * down))
    return drawn


def cropped(image: Image.Image, box: Box) -> Image.Image:
    """The part in the box."""
    return drawing.fitted(image.crop(box), PART)


class Shelf:
    """Pictures of a data set by number, a few of them kept decoded."""

    def __init__(self, data: DataSet) -> None:
        self.read = lru_cache(64)(lambda number: data.samples[number].source.read())

    def whole(self, patch: Patch) -> Image.Image:
        return boxed(self.read(patch.number), patch.box)

    def part(self, patch: Patch) -> Image.Image:
        return cropped(self.read(patch.number), patch.box)


def prototype_sheet(prototypes: Sequence[Prototype], shelf: Shelf) -> Image.Image:
    """A row each: where it comes from, and what looks like it. Of many, the first of each class."""
    shown = list(prototypes)
    if len(shown) > ROWS:
        shown = list({one.label: one for one in reversed(shown)}.values())[::-1][:ROWS]
    return drawing.framed(drawing.grid([_prototype_row(one, shelf) for one in shown], 10))


def _prototype_row(one: Prototype, shelf: Shelf) -> list[Image.Image]:
    words, nothing = f"prototype {one.number}, weight {one.weight:.2f}", Image.new("RGB", (1, 1), "white")
    if one.own is None:
        row = [drawing.named(nothing, PICTURE, one.label, words), drawing.named(nothing, PART, "not projected", "")]
    else:
        row = [drawing.named(shelf.whole(one.own), PICTURE, one.label, words)]
        row.append(drawing.named(shelf.part(one.own), PART, "the prototype", one.own.name))
    for patch in one.nearest:
        row.append(drawing.named(shelf.part(patch), PART, patch.label, f"similarity {patch.similarity:.2f}"))
    return row


def answer_sheet(answer: LooksLike, shelf: Shelf) -> Image.Image:
    """A row for each reason: this part of the picture looks like that prototype."""
    image = answer.image()
    rows = [_reason_row(image, one, shelf) for one in answer.reasons]
    told = f"{answer.name.rpartition('/')[2]}: {answer.label} {answer.probability:.2f}"
    shown = sum(one.contribution for one in answer.reasons)
    below = f"logit {answer.logit:.2f}: {shown:.2f} of these prototypes, {answer.logit - shown:+.2f} of all others"
    return drawing.framed(drawing.titled(drawing.grid(rows, 10), told, below))


def _reason_row(image: Image.Image, one: Likeness, shelf: Shelf) -> list[Image.Image]:
    row = [
        drawing.named(
            boxed(image, one.box), PICTURE, f"{one.similarity:.2f} x {one.weight:.2f} = {one.contribution:.2f}", ""
        ),
        drawing.named(cropped(image, one.box), PART, "this looks like", ""),
    ]
    if one.own is not None:
        row.append(drawing.named(shelf.part(one.own), PART, "that", f"prototype {one.prototype}"))
        row.append(drawing.named(shelf.whole(one.own), PICTURE, one.label, one.own.name))
    return row
