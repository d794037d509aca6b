"""Prototypes and answers as pictures: parts of pictures side by side, what they are of and how alike they are."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from PIL import Image

from fovea.basics import best_iou
from fovea.data import DataSet
from fovea.results import drawing, marks, spaced

if TYPE_CHECKING:
    from fovea.prototypes.reasons import Likeness, LooksLike, Prototype, PrototypePatch

Box = tuple[int, int, int, int]  # x0 y0 x1 y1, half open, in the picture's own pixels

PICTURE, PART = (240, 180), (180, 180)  # pixels that a whole picture, and a part of one, fit in
ROWS = 20  # of a sheet
SAME = 0.5  # IoU from which two boxes in one picture are shown as one

T = TypeVar("T")
Projected = TypeVar("Projected", "Prototype", "Likeness")


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


def grouped(items: Iterable[T], where: Callable[[T], tuple[object, Box] | None]) -> list[list[T]]:
    """Items whose boxes in one picture nearly coincide are together, in the order of the first of each group."""
    groups: list[tuple[tuple[object, Box] | None, list[T]]] = []
    for item in items:
        place = where(item)
        same = (
            members
            for other, members in groups
            if place and other and place[0] == other[0] and best_iou([place[1]], [other[1]]) >= SAME
        )
        if (members := next(same, None)) is not None:
            members.append(item)
        else:
            groups.append((place, [item]))
    return [members for _, members in groups]


def by_patch(items: Iterable[Projected]) -> list[list[Projected]]:
    """Prototypes of one class that were projected on the same patch are together, to be shown once."""
    return grouped(items, lambda item: ((item.label, item.own.number), item.own.box) if item.own else None)


def by_part(reasons: Iterable["Likeness"]) -> list[list[list["Likeness"]]]:
    """For each part of the picture what it looks like, patch by patch."""
    return [by_patch(part) for part in grouped(reasons, lambda reason: ("", reason.box))]


def numbers_of(numbers: Sequence[int]) -> str:
    """Prototypes by number, in words."""
    return f"prototype{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def prototype_sheet(prototypes: Sequence["Prototype"]) -> Image.Image:
    """A row for each patch: where it comes from, and what looks like it. Of many, the first of each class."""
    shown = by_patch(prototypes)
    if len(shown) > ROWS:
        shown = list({group[0].label: group for group in reversed(shown)}.values())[::-1][:ROWS]
    return drawing.framed(drawing.grid([_prototype_row(group) for group in shown], 10))


def _prototype_row(group: Sequence["Prototype"]) -> list[Image.Image]:
    first = group[0]
    shelf, own, nothing = first.shelf, first.own, Image.new("RGB", (1, 1), "white")
    words = f"{numbers_of([each.number for each in group])}, weight {', '.join(f'{each.weight:.2f}' for each in group)}"
    row = [drawing.named(shelf.whole(own) if own else nothing, PICTURE, spaced(first.label), words)]
    if own is None:
        row.append(drawing.named(nothing, PART, "not projected", ""))
    else:
        row.append(drawing.named(shelf.part(own), PART, "the prototype", own.name))
    for patch in first.nearest:
        row.append(drawing.named(shelf.part(patch), PART, spaced(patch.label), f"similarity {patch.similarity:.2f}"))
    return row


def answer_sheet(answer: "LooksLike") -> Image.Image:
    """A block for each part of the picture, and in it a row for each patch that it looks like."""
    image = answer.image()
    rows = [[_part(image, part, answer.shelf)] for part in by_part(answer.reasons)]
    title = f"{answer.name.rpartition('/')[2]}: {spaced(answer.label)} {answer.probability:.2f}"
    return drawing.framed(drawing.titled(drawing.grid(rows, 10), title, answer.shares()))


def _part(image: Image.Image, part: Sequence[Sequence["Likeness"]], shelf: Shelf) -> Image.Image:
    box = part[0][0].box
    whole = drawing.named(boxed(image, box), PICTURE, "this part of the picture", "")
    part_of_it = drawing.named(cropped(image, box), PART, "looks like", "")
    return drawing.grid([[whole, part_of_it, drawing.in_rows([_patch(patch, shelf) for patch in part], 2, 10)]], 10)


def _patch(patch: Sequence["Likeness"], shelf: Shelf) -> Image.Image:
    own, which = patch[0].own, numbers_of([each.prototype for each in patch])
    nothing, label = Image.new("RGB", (1, 1), "white"), spaced(patch[0].label)
    row = [drawing.named(shelf.part(own) if own else nothing, PART, which, added(patch))]
    name = own.name if own else "not projected"
    row.append(drawing.named(shelf.whole(own) if own else nothing, PICTURE, label, name))
    return drawing.grid([row], 4)


def added(patch: Sequence["Likeness"]) -> str:
    """What prototypes of one patch add to the logit, in words."""
    if len(patch) == 1:
        return str(patch[0])
    shares = [each.contribution for each in patch]
    return f"{' + '.join(f'{share:.2f}' for share in shares)} = {sum(shares):.2f}"
