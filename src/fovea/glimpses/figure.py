"""A picture of a descent: where the network looked, what it saw there, and how its answer came about."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from fovea.basics import whole_pixels
from fovea.results import drawing

if TYPE_CHECKING:
    from fovea.glimpses.answer import Glimpse, ZoomAnswer

PICTURE, CROP, GAP = (720, 480), (160, 160), 8  # pixels: that a picture fits in, that a glimpse does, between things
LEAST, LEAST_CROP = 48, 24  # pixels of the shorter side of a very long glimpse
NARROWEST = 380  # pixels for the chart, however narrow the picture
COLORS = ("#bbbbbb", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#cc79a7")  # of the levels; Okabe and Ito's

Place = tuple[float, float, float, float]


def draw(answer: "ZoomAnswer") -> Image.Image:
    overview = _overview(answer.shown.image(), answer.glimpses)
    left = drawing.grid([[overview], [_chart(answer, max(overview.width, NARROWEST))]], GAP)
    whole = drawing.grid([[left, _glimpses(answer, left.height)]], GAP) if answer.glimpses else left
    count = len(answer.glimpses)
    below = [
        f"{count} glimpse{'' if count == 1 else 's'}" if count else "the overview alone",
        answer.cost.reading(),
        f"{answer.cost.macs / 1e9:.3g} GMACs",
    ]
    title = f"{Path(answer.name).name}: {answer.label} {answer.probability:.2f}"
    words = " · ".join(below + [answer.note] * bool(answer.note))
    return drawing.framed(drawing.titled(whole, title, words), GAP, above=0)


def _overview(image: Image.Image, glimpses: Sequence["Glimpse"]) -> Image.Image:
    """The picture with the boxes, the deeper ones thinner; numbers where they hide no other."""
    drawn = drawing.fitted(image, PICTURE, LEAST)
    zoom_x, zoom_y = drawn.width / image.width, drawn.height / image.height
    places = {}
    for glimpse in glimpses:
        x0, y0, x1, y1 = whole_pixels(glimpse.visible, image.size)
        places[glimpse.number] = (x0 * zoom_x, y0 * zoom_y, x1 * zoom_x - 1, y1 * zoom_y - 1)
    pen = ImageDraw.Draw(drawn)
    for glimpse in glimpses:
        _box(pen, places[glimpse.number], COLORS[(glimpse.level - 1) % len(COLORS)], 3 if glimpse.level < 3 else 2)
    tags: list[Place] = []
    for glimpse in sorted(glimpses, key=lambda glimpse: -glimpse.level):  # small boxes have the least room
        tags.append(_tag_place(places[glimpse.number], _tag_size(glimpse), tags, drawn.size))
        _tag(drawn, glimpse, tags[-1])
    return drawn


def _box(pen: ImageDraw.ImageDraw, place: Place, color: str, thick: int) -> None:
    """Color inside black: visible on any background."""
    x0, y0, x1, y1 = place
    for inset in range(thick + 2):
        if x1 - x0 >= 2 * inset and y1 - y0 >= 2 * inset:
            ink = "black" if inset in (0, thick + 1) else color
            pen.rectangle((x0 + inset, y0 + inset, x1 - inset, y1 - inset), outline=ink)


def _tag_size(glimpse: "Glimpse") -> tuple[float, float]:
    return drawing.font(14).getlength(str(glimpse.number)) + 8, 19


def _tag_place(box: Place, size: tuple[float, float], taken: Sequence[Place], canvas: tuple[int, int]) -> Place:
    """The first corner of a box, inside and then outside, where a tag is on the picture and on no other tag."""
    places = [(x, y, x + size[0], y + size[1]) for x, y in _corners(box, size)]
    on_it = [
        (x0, y0, x1, y1) for x0, y0, x1, y1 in places if x0 >= 0 and y0 >= 0 and x1 <= canvas[0] and y1 <= canvas[1]
    ]
    free = [place for place in on_it if not any(_overlap(place, other) for other in taken)]
    return (free or on_it or places)[0]


def _corners(box: Place, size: tuple[float, float]) -> Iterator[tuple[float, float]]:
    (x0, y0, x1, y1), (w, h) = box, size
    if x1 - x0 >= w and y1 - y0 >= h:
        yield from ((x0, y0), (x1 - w, y0), (x0, y1 - h), (x1 - w, y1 - h))
        step = w + 2
        yield from ((x0 + step * i, y) for y in (y0, y1 - h) for i in range(1, int((x1 - x0) // step)))
    yield from ((x0, y0 - h), (x1 - w, y0 - h), (x0, y1 + 1), (x1 - w, y1 + 1), (x1 + 1, y0), (x0 - w, y0))
    yield from ((max(x0, 0), max(y0, 0)), (x1 - w, y1 - h))


def _overlap(place: Place, other: Place) -> bool:
    return place[0] < other[2] and other[0] < place[2] and place[1] < other[3] and other[1] < place[3]


def _tag(canvas: Image.Image, glimpse: "Glimpse", place: Place) -> None:
    pen = ImageDraw.Draw(canvas)
    pen.rectangle(place, fill=COLORS[(glimpse.level - 1) % len(COLORS)], outline="black")
    pen.text((place[0] + 4, place[1] + 1), str(glimpse.number), fill="black", font=drawing.font(14))


def _glimpses(answer: "ZoomAnswer", height: int) -> Image.Image:
    """In order, column by column, in as many columns as their height allows."""
    cells = list(map(_cell, answer.crops(), answer.glimpses))
    rows = max((height + GAP) // (max(cell.height for cell in cells) + GAP), 1)
    rows = -(-len(cells) // -(-len(cells) // rows))  # as even as can be
    return drawing.grid([cells[row::rows] for row in range(rows)], GAP)


def _cell(crop: Image.Image, glimpse: "Glimpse") -> Image.Image:
    """A glimpse with its number, level and parent, and what it says alone."""
    drawn = drawing.fitted(crop, CROP, LEAST_CROP)
    canvas = drawing.padded(drawn, (CROP[0], drawn.height + 42))
    width, height = _tag_size(glimpse)
    _tag(canvas, glimpse, (0, drawn.height + 3, width, drawn.height + 3 + height))
    pen, inside = ImageDraw.Draw(canvas), f", in {glimpse.parent}" if glimpse.parent else ""
    pen.text((width + 6, drawn.height + 5), f"level {glimpse.level}{inside}", fill=drawing.GRAY, font=drawing.font(12))
    words = drawing.shortened(glimpse.label, 13, CROP[0], f" {glimpse.probability:.2f}")
    pen.text((0, drawn.height + 24), words, fill="black", font=drawing.font(13))
    return canvas


def _chart(answer: "ZoomAnswer", width: int) -> Image.Image:
    """The probability of the answer after each thing read, as bars; below, what was ahead where that was another."""
    high, top, left = 84, 40, 30
    canvas = Image.new("RGB", (width, top + high + 36), "white")
    pen, gray = ImageDraw.Draw(canvas), drawing.GRAY
    title = f"probability of {answer.label} after each"
    step = min((width - left) / len(answer.after), 90.0)
    room = step >= 40  # for labels below the bars
    if room and any(after.label != answer.label for after in answer.after):
        title += "; in gray what was ahead"
    pen.text((0, 2), drawing.shortened(title, 12, width), fill="black", font=drawing.font(12))
    for share in (0.0, 0.5, 1.0):
        y = top + high * (1 - share)
        pen.line((left, y, width, y), fill="#dddddd")
        pen.text((left - 6, y), f"{share:g}", fill=gray, font=drawing.font(11), anchor="rm")
    levels = {glimpse.number: glimpse.level for glimpse in answer.glimpses}
    for place, after in enumerate(answer.after):
        x0, middle = left + step * (place + 0.12), left + step * (place + 0.5)
        y = top + high * (1 - after.answer)
        color = COLORS[(levels.get(after.number, 1) - 1) % len(COLORS)]
        pen.rectangle((x0, y, left + step * (place + 0.88), top + high), fill=color, outline="black")
        if step >= 26:
            said = f"{after.answer:.2f}"
            at, small = (middle, y - 3), drawing.font(11)
            pen.text(at, said, fill="black", font=small, anchor="mb", stroke_width=2, stroke_fill="white")
        name = "overview" if after.number == 0 else str(after.number)
        if drawing.font(12).getlength(name) > step:
            every = math.ceil(drawing.font(12).getlength("000") / step)
            name = "0" if after.number == 0 else name if after.number % every == 0 else ""
        pen.text((middle, top + high + 4), name, fill="black", font=drawing.font(12), anchor="mt")
        if room and after.label != answer.label:
            ahead = drawing.shortened(after.label, 11, step - 4)
            pen.text((middle, top + high + 20), ahead, fill=gray, font=drawing.font(11), anchor="mt")
    return canvas
