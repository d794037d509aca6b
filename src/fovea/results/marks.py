"""Boxes on pictures: few, in colors that the color-blind tell apart, with numbers that hide no line and no other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fovea.basics import boxes as regions
from fovea.results.drawing import Place, Size, enlarged, font, scale_of

INKS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#cc79a7", "#d55e00")  # Okabe and Ito's
MOST = len(INKS)  # boxes drawn on one picture: of more, the first


def with_boxes(
    image: Image.Image, boxes: Sequence[Sequence[float]], evidence: Sequence[float] = (), size: Size = None
) -> Image.Image:
    """A picture at a size to look at with its first boxes, numbered; what no box shows is paler."""
    drawn = enlarged(image, size)
    drawn = faded(drawn, [scaled(box, image.size, drawn.size) for box in boxes[:MOST]])
    number(drawn, boxes, image.size, evidence)
    return drawn


def number(
    drawn: Image.Image, boxes: Sequence[Sequence[float]], of: tuple[int, int], evidence: Sequence[float] = ()
) -> None:
    """The first boxes of a picture of another size, in colors, numbered from 1 where there are several; the line of one
    with more evidence is thicker."""
    shares = np.clip(evidence[:MOST], 0, None) if len(evidence) else np.ones(len(boxes[:MOST]))
    widths = scale_of(drawn) * (1.5 + 2.5 * shares / (shares.max(initial=0) or 1))
    names = [str(place + 1) if len(boxes) > 1 else "" for place in range(len(boxes))]
    places = [scaled(box, of, drawn.size) for box in boxes]
    mark(drawn, [Mark(*row) for row in zip(places, names, INKS, widths.round().astype(int).tolist(), strict=False)])


def draw_box(drawn: Image.Image, box: Sequence[float], of: tuple[int, int]) -> None:
    """A box of a picture of another size, white inside black: visible on any background."""
    mark(drawn, [Mark(scaled(box, of, drawn.size), thick=2 * round(scale_of(drawn)))])


def scaled(box: Sequence[float], old: tuple[int, int], new: tuple[int, int]) -> Place:
    """A box of a picture where that is drawn at another size."""
    across, down = new[0] / old[0], new[1] / old[1]
    return box[0] * across, box[1] * down, box[2] * across, box[3] * down


def counted(count: int, side: int, most: int = MOST) -> str:
    """So many patches in words, of which at most so many are drawn."""
    number = f"the best {most} of {count}" if count > most else str(count)
    return f"{number} patch{'es' if count != 1 else ''} of {side} x {side}"


def faded(image: Image.Image, boxes: Sequence[Sequence[float]]) -> Image.Image:
    """Paler outside the boxes."""
    pale = Image.blend(image, Image.new("RGB", image.size, "white"), 0.45)
    for box in boxes:
        sides = regions.whole_pixels(box, image.size)
        pale.paste(image.crop(sides), sides[:2])
    return pale


@dataclass(frozen=True)
class Mark:
    """A box to draw, half open, in the pixels of what is drawn on."""

    box: Sequence[float]
    name: str = ""
    ink: str = "white"
    thick: int = 2

    @property
    def rim(self) -> int:
        """Of the black lines on either side."""
        return max(1, self.thick // 2)

    @property
    def lines(self) -> list[Place]:
        """What its four sides cover."""
        (x0, y0, x1, y1), wide = self.box, self.thick + 2 * self.rim
        return [(x0, y0, x1, y0 + wide), (x0, y1 - wide, x1, y1), (x0, y0, x0 + wide, y1), (x1 - wide, y0, x1, y1)]


def mark(image: Image.Image, marks: Sequence[Mark]) -> None:
    """The boxes, the first on top; then their names, each on its own color where it hides no other and no line."""
    for one in reversed(marks):
        outline(image, one.box, one.ink, one.thick, one.rim)
    named = [one for one in marks if one.name]
    size = round(14 * scale_of(image))
    for one, place in zip(named, tag_places(named, size, image.size), strict=True):
        tag(image, place, one.name, one.ink, size)


def tag(image: Image.Image, place: Place, name: str, ink: str, size: int) -> None:
    pen = ImageDraw.Draw(image)
    pen.rectangle((place[0], place[1], place[2] - 1, place[3] - 1), fill=ink, outline="black")
    pen.text(((place[0] + place[2]) / 2, (place[1] + place[3]) / 2), name, fill="black", font=font(size), anchor="mm")


def tag_size(name: str, size: int) -> tuple[int, int]:
    return round(font(size).getlength(name) + 0.6 * size), round(1.3 * size)


def tag_places(marks: Sequence[Mark], size: int, canvas: tuple[int, int]) -> list[Place]:
    """Of each name, the place nearest to its box on the canvas that hides no other name and no line, where there is
    one: inside along the box's sides, outside along them, anywhere. Small boxes have the least room: they are first."""
    lines = np.array([line for one in marks for line in one.lines]).reshape(-1, 4)
    places = np.zeros((len(marks), 4))
    done: list[int] = []
    for i in sorted(range(len(marks)), key=lambda i: regions.area(marks[i].box)[0]):
        starts, away = _candidates(marks[i], tag_size(marks[i].name, size), canvas)
        options = np.hstack([starts, starts + tag_size(marks[i].name, size)])
        cost = away + 10 * _overlaps(options, lines) + 1e6 * _overlaps(options, places[done])
        places[i] = options[cost.argmin()]
        done.append(i)
    return [(x0, y0, x1, y1) for x0, y0, x1, y1 in places.tolist()]


def _candidates(
    one: Mark, size: tuple[int, int], canvas: tuple[int, int]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Where a name may begin (M,2), and how far from its box that is (M), in the order of preference."""
    (x0, y0, x1, y1), (w, h), wide = one.box, size, one.thick + 2 * one.rim
    inner = x0 + wide, y0 + wide, x1 - wide - w, y1 - wide - h
    places: list[tuple[float, float]] = []
    for left, top, right, bottom in ((inner, (x0, y0 - h, x1 - w, y1))[outside] for outside in (0, 1)):
        xs = np.linspace(left, max(left, right), 1 + max(0, int((right - left) // w)))
        ys = np.linspace(top, max(top, bottom), 1 + max(0, int((bottom - top) // h)))
        places += [(x, y) for y in (top, bottom) for x in xs] + [(x, y) for x in (left, right) for y in ys[1:-1]]
    places += [(x, y) for y in range(0, canvas[1], h) for x in range(0, canvas[0], w)]
    starts = np.array(places).clip(0, np.maximum(np.subtract(canvas, size), 0))
    middles = starts + np.divide(size, 2)
    beyond = np.maximum(np.array([x0, y0]) - middles, middles - np.array([x1, y1])).clip(0)
    return starts, np.hypot(*beyond.T)


def _overlaps(places: NDArray[np.floating], others: NDArray[np.floating]) -> NDArray[np.floating]:
    """Pixels of each place (M,4) that others (N,4) cover: M."""
    low = np.maximum(places[:, None, :2], others[None, :, :2])
    high = np.minimum(places[:, None, 2:], others[None, :, 2:])
    covered: NDArray[np.floating] = (high - low).clip(0).prod(2).sum(1)
    return covered


def outline(image: Image.Image, box: Sequence[float], ink: str, thick: int, rim: int) -> None:
    """A half-open box in a color between two black lines: visible on any background."""
    pen = ImageDraw.Draw(image)
    x0, y0, x1, y1 = box[0], box[1], max(box[2] - 1, box[0]), max(box[3] - 1, box[1])
    for inset, color, width in ((0, "black", thick + 2 * rim), (rim, ink, thick)):
        if x1 - x0 > 2 * inset and y1 - y0 > 2 * inset:
            pen.rectangle((x0 + inset, y0 + inset, x1 - inset, y1 - inset), outline=color, width=width)
