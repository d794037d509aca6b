"""A picture of a descent: where the network looked, what it saw there, and how its answer came about."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from fovea.glimpses.answer import Answer, Glimpse, shown_box
from fovea.results import drawing

PICTURE, CROP, GAP = (720, 480), (160, 160), 8  # pixels: that a picture fits in, that a glimpse does, between things
LEAST, LEAST_CROP = 48, 24  # pixels of the shorter side of a very long one
NARROWEST = 380  # pixels for the chart, however narrow the picture
COLOURS = ("#bbbbbb", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#cc79a7")  # of the levels; Okabe and Ito's

Place = tuple[float, float, float, float]


def draw(answer: Answer) -> Image.Image:
    image = answer.shown.image()
    overview = _overview(image, answer.glimpses)
    left = drawing.grid([[overview], [_chart(answer, max(overview.width, NARROWEST))]], GAP)
    whole = drawing.grid([[left, _glimpses(image, answer.glimpses, left.height)]], GAP) if answer.glimpses else left
    count = len(answer.glimpses)
    below = [
        f"{count} glimpse{'' if count == 1 else 's'}" if count else "the overview alone",
        answer.cost.reading(),
        f"{answer.cost.macs / 1e9:.3g} GMACs",
    ]
    title = f"{Path(answer.name).name}: {answer.label} {answer.probability:.2f}"
    return _framed(drawing.titled(whole, title, " · ".join(below + [answer.note] * bool(answer.note))))


def _framed(image: Image.Image) -> Image.Image:
    canvas = Image.new("RGB", (image.width + 2 * GAP, image.height + GAP), "white")
    canvas.paste(image, (GAP, 0))
    return canvas


def _fitted(image: Image.Image, room: tuple[int, int], least: int) -> Image.Image:
    """At a size to look at, in its own proportions unless they would leave less than `least` pixels of a side."""
    zoom = min(room[0] / image.width, room[1] / image.height)
    width, height = (max(round(side * zoom), least) for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def _overview(image: Image.Image, glimpses: Sequence[Glimpse]) -> Image.Image:
    """The picture with the boxes, the deeper ones thinner; numbers where they hide no other."""
    drawn = _fitted(image, PICTURE, LEAST)
    zoom_x, zoom_y = drawn.width / image.width, drawn.height / image.height
    places = {}
    for one in glimpses:
        x0, y0, x1, y1 = shown_box(one, image.size)
        places[one.number] = (x0 * zoom_x, y0 * zoom_y, x1 * zoom_x - 1, y1 * zoom_y - 1)
    pen = ImageDraw.Draw(drawn)
    for one in glimpses:
        _box(pen, places[one.number], COLOURS[(one.level - 1) % len(COLOURS)], 3 if one.level < 3 else 2)
    tags: list[Place] = []
    for one in sorted(glimpses, key=lambda one: -one.level):  # small boxes have the least room
        tags.append(_tag_place(places[one.number], _tag_size(one), tags, drawn.size))
        _tag(drawn, one, tags[-1])
    return drawn


def _box(pen: ImageDraw.ImageDraw, place: Place, colour: str, thick: int) -> None:
    """Colour inside black: visible on any background."""
    x0, y0, x1, y1 = place
    for inset in range(thick + 2):
        if x1 - x0 >= 2 * inset and y1 - y0 >= 2 * inset:
            ink = "black" if inset in (0, thick + 1) else colour
            pen.rectangle((x0 + inset, y0 + inset, x1 - inset, y1 - inset), outline=ink)


def _tag_size(one: Glimpse) -> tuple[float, float]:
    return drawing.font(14).getlength(str(one.number)) + 8, 19


def _tag_place(box: Place, size: tuple[float, float], taken: Sequence[Place], canvas: tuple[int, int]) -> Place:
    """The first corner of a box, inside and then outside, where a tag is on the picture and on no other tag."""
    places = [(x, y, x + size[0], y + size[1]) for x, y in _corners(box, size)]
    on_it = [one for one in places if one[0] >= 0 and one[1] >= 0 and one[2] <= canvas[0] and one[3] <= canvas[1]]
    free = [one for one in on_it if not any(_overlap(one, other) for other in taken)]
    return (free or on_it or places)[0]


def _corners(box: Place, size: tuple[float, float]) -> Iterator[tuple[float, float]]:
    (x0, y0, x1, y1), (w, h) = box, size
    if x1 - x0 >= w and y1 - y0 >= h:
        yield from ((x0, y0), (x1 - w, y0), (x0, y1 - h), (x1 - w, y1 - h))
        step = w + 2
        yield from ((x0 + step * i, y) for y in (y0, y1 - h) for i in range(1, int((x1 - x0) // step)))
    yield from ((x0, y0 - h), (x1 - w, y0 - h), (x0, y1 + 1), (x1 - w, y1 + 1), (x1 + 1, y0), (x0 - w, y0))
    yield from ((max(x0, 0), max(y0, 0)), (x1 - w, y1 - h))


def _overlap(one: Place, other: Place) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _tag(canvas: Image.Image, one: Glimpse, place: Place) -> None:
    pen = ImageDraw.Draw(canvas)
    pen.rectangle(place, fill=COLOURS[(one.level - 1) % len(COLOURS)], outline="black")
    pen.text((place[0] + 4, place[1] + 1), str(one.number), fill="black", font=drawing.font(14))


def _glimpses(image: Image.Image, glimpses: Sequence[Glimpse], height: int) -> Image.Image:
    """In order, column by column, in as many columns as their height allows."""
    cells = [_cell(image.crop(shown_box(one, image.size)), one) for one in glimpses]
    rows = max((height + GAP) // (max(one.height for one in cells) + GAP), 1)
    rows = -(-len(cells) // -(-len(cells) // rows))  # as even as can be
    return drawing.grid([cells[row::rows] for row in range(rows)], GAP)


def _cell(crop: Image.Image, one: Glimpse) -> Image.Image:
    """A glimpse with its number, level and parent, and what it says alone."""
    drawn = _fitted(crop, CROP, LEAST_CROP)
    canvas = Image.new("RGB", (CROP[0], drawn.height + 42), "white")
    canvas.paste(drawn, (0, 0))
    width, height = _tag_size(one)
    _tag(canvas, one, (0, drawn.height + 3, width, drawn.height + 3 + height))
    pen, grey = ImageDraw.Draw(canvas), "#555555"
    inside = f", in {one.parent}" if one.parent else ""
    pen.text((width + 6, drawn.height + 5), f"level {one.level}{inside}", fill=grey, font=drawing.font(12))
    said = f" {one.probability:.2f}"
    pen.text((0, drawn.height + 24), _short(one.label, 13, CROP[0], said) + said, fill="black", font=drawing.font(13))
    return canvas


def _short(text: str, size: int, width: float, after: str = "") -> str:
    """As much of a text as there is room for, with what comes after it."""
    if drawing.font(size).getlength(text + after) <= width:
        return text
    while text and drawing.font(size).getlength(f"{text}…{after}") > width:
        text = text[:-1]
    return f"{text}…"


def _chart(answer: Answer, width: int) -> Image.Image:
    """The probability of the answer after each thing read, as bars; below, what was ahead where that was another."""
    high, top, left = 84, 40, 30
    canvas = Image.new("RGB", (width, top + high + 36), "white")
    pen, grey = ImageDraw.Draw(canvas), "#555555"
    title = f"probability of {answer.label} after each"
    step = min((width - left) / len(answer.after), 90.0)
    room = step >= 40  # for labels below the bars
    if room and any(one.label != answer.label for one in answer.after):
        title += "; in grey what was ahead"
    pen.text((0, 2), _short(title, 12, width), fill="black", font=drawing.font(12))
    for share in (0.0, 0.5, 1.0):
        y = top + high * (1 - share)
        pen.line((left, y, width, y), fill="#dddddd")
        pen.text((left - 6, y), f"{share:g}", fill=grey, font=drawing.font(11), anchor="rm")
    levels = {one.number: one.level for one in answer.glimpses}
    for place, one in enumerate(answer.after):
        x0, middle = left + step * (place + 0.12), left + step * (place + 0.5)
        y = top + high * (1 - one.answer)
        colour = COLOURS[(levels.get(one.number, 1) - 1) % len(COLOURS)]
        pen.rectangle((x0, y, left + step * (place + 0.88), top + high), fill=colour, outline="black")
        if step >= 26:
            said = f"{one.answer:.2f}"
            at, small = (middle, y - 3), drawing.font(11)
            pen.text(at, said, fill="black", font=small, anchor="mb", stroke_width=2, stroke_fill="white")
        name = "overview" if one.number == 0 else str(one.number)
        if drawing.font(12).getlength(name) > step:
            every = math.ceil(drawing.font(12).getlength("000") / step)
            name = "0" if one.number == 0 else name if one.number % every == 0 else ""
        pen.text((middle, top + high + 4), name, fill="black", font=drawing.font(12), anchor="mt")
        if room and one.label != answer.label:
            ahead = _short(one.label, 11, step - 4)
            pen.text((middle, top + high + 20), ahead, fill=grey, font=drawing.font(11), anchor="mt")
    return canvas
