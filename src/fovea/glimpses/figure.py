"""A picture of a descent: where the network looked, what it saw there, and how its answer came about."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from fovea.basics import whole_pixels
from fovea.glimpses.reading import Box
from fovea.pictures import Windows
from fovea.results import Part, View, drawing, marks, spaced, windows_of

if TYPE_CHECKING:
    from fovea.glimpses.answer import After, Glimpse, ZoomAnswer

PICTURE, CROP, GAP = (720, 480), (160, 160), 8  # pixels: that a picture fits in, that a glimpse does, between things
LEAST, LEAST_CROP = 48, 24  # pixels of the shorter side of a very long glimpse
NARROWEST = 380  # pixels for the chart, however narrow the picture
COLORS = ("#bbbbbb", *marks.INKS)  # of the levels


def draw(answer: "ZoomAnswer") -> Image.Image:
    with answer.shown.windows() as source:
        overview = _overview(answer, _fitted(source, (0, 0, *source.size), PICTURE, LEAST))
        crops = [_fitted(source, whole_pixels(box, source.size), CROP, LEAST_CROP) for box in answer.boxes]
    left = drawing.grid([[overview], [_chart(answer, max(overview.width, NARROWEST))]], GAP)
    whole = drawing.grid([[left, _glimpses(answer, crops, left.height)]], GAP) if answer.glimpses else left
    count = len(answer.glimpses)
    below = [
        f"{count} glimpse{'' if count == 1 else 's'}" if count else "the overview alone",
        answer.cost.reading(),
        f"{answer.cost.macs / 1e9:.3g} GMACs",
    ]
    title = f"{Path(answer.name).name}: {spaced(answer.label)} {answer.probability:.2f}"
    words = " · ".join(below + [answer.note] * bool(answer.note))
    return drawing.framed(drawing.titled(whole, title, words), GAP, above=0)


def view(answer: "ZoomAnswer", words: str) -> View:
    """The same for a page: the picture, and each thing read of it as it was read."""
    read = (*([answer.overview] if answer.overview else []), *answer.glimpses)
    windows = [(glimpse.visible, glimpse.pixels) for glimpse in read]
    panels = windows_of(answer.shown, windows, list(map(_about, read, answer.after)))
    parts = [
        Part(
            str(glimpse.number) if glimpse.number else "overview",
            whole_pixels(glimpse.visible, answer.size),
            place,
            glimpse.level,
            _ink(glimpse.level),
            after.answer,
            spaced(after.label) if after.label != answer.label else "",
        )
        for place, (glimpse, after) in enumerate(zip(read, answer.after, strict=True), 1)
    ]
    return View(
        panels,
        predictions=answer.shown.predictions,
        size=answer.size,
        parts=tuple(parts),
        table=_costs(answer),
        deep=answer.cost.tiles is not None,
        words=words,
    )


def _costs(answer: "ZoomAnswer") -> tuple[tuple[str, ...], ...]:
    """What was read, beside what reading all would have cost."""
    cost = answer.cost
    pixels, how = (
        (round(cost.share * cost.pixels), f"at {cost.resolution:.2g} of full resolution" * (cost.resolution < 1))
        if cost.tiles is None
        else (cost.pixels_read, "decoded")
    )
    part = f"{pixels:,} ({100 * pixels / cost.pixels:.3g} %)"
    rows = [("", "read", "reading all"), (f"pixels {how}".strip(), part, f"{cost.pixels:,}")]
    rows += [("tiles", f"{cost.tiles:,}", "")] if cost.tiles is not None else []
    rows += [("bytes", f"{cost.bytes_read:,}", f"{cost.bytes:,}")] if cost.bytes_read is not None else []
    rows += [("multiplications", _short(cost.macs), _all_macs(answer))]
    rows += [("milliseconds", f"{answer.ms:,.0f}", "")] if answer.ms is not None else []
    return *rows, *((name, words, "") for name, words in (("stopped", answer.why), ("note", answer.note)) if words)


def _all_macs(answer: "ZoomAnswer") -> str:
    """About those of as many windows as cover the picture at full resolution, where there is an overview to go by."""
    if answer.overview is None:
        return ""
    windows = math.prod(
        math.ceil(side / window) for side, window in zip(answer.size, answer.overview.pixels, strict=True)
    )
    return f"about {_short(windows * answer.cost.macs / len(answer.after))}"


def _short(count: float) -> str:
    unit, name = next((row for row in ((1e12, " T"), (1e9, " G"), (1e6, " M")) if count >= row[0]), (1, ""))
    return f"{count / unit:,.3g}{name}"


def _about(glimpse: "Glimpse", after: "After") -> str:
    """Where it is, how it was read, what it says alone, and what all so far say together."""
    (x0, y0, x1, y1), (width, height) = glimpse.visible, glimpse.pixels
    where = f"glimpse {glimpse.number}, level {glimpse.level}" if glimpse.number else "overview"
    inside = f", in {glimpse.parent}" if glimpse.parent else ""
    chosen = "" if glimpse.chosen is None else f", chosen with probability {glimpse.chosen:.2f}"
    certain = "" if after.certainty is None else f", {after.certainty:.2f} certain"
    return (
        f"{where}{inside}{chosen}: {x1 - x0:,} x {y1 - y0:,} pixels at {x0:,}, {y0:,}, read at {width} x {height}. "
        f"Alone it says {spaced(glimpse.label)} {glimpse.probability:.2f}; after it the answer is "
        f"{spaced(after.label)} {after.probability:.2f}{certain}."
    )


def _fitted(source: Windows, box: Box, room: tuple[int, int], least: int) -> Image.Image:
    size = drawing.fitted_size((box[2] - box[0], box[3] - box[1]), room, least)
    return source.read(box, size, Image.Resampling.LANCZOS)


def _overview(answer: "ZoomAnswer", drawn: Image.Image) -> Image.Image:
    """The picture with the boxes, the deeper ones thinner and on top, and their numbers."""
    glimpses = sorted(answer.glimpses, key=lambda glimpse: -glimpse.level)
    boxes = [marks.scaled(whole_pixels(glimpse.visible, answer.size), answer.size, drawn.size) for glimpse in glimpses]
    marks.mark(
        drawn,
        [
            marks.Mark(box, str(glimpse.number), _ink(glimpse.level), 3 if glimpse.level < 3 else 2)
            for box, glimpse in zip(boxes, glimpses, strict=True)
        ],
    )
    return drawn


def _ink(level: int) -> str:
    return COLORS[(level - 1) % len(COLORS)]


def _glimpses(answer: "ZoomAnswer", crops: Sequence[Image.Image], height: int) -> Image.Image:
    """In order, column by column, in as many columns as their height allows."""
    cells = list(map(_cell, crops, answer.glimpses))
    rows = max((height + GAP) // (max(cell.height for cell in cells) + GAP), 1)
    rows = -(-len(cells) // -(-len(cells) // rows))  # as even as can be
    return drawing.grid([cells[row::rows] for row in range(rows)], GAP)


def _cell(drawn: Image.Image, glimpse: "Glimpse") -> Image.Image:
    """A glimpse with its number, level and parent, and what it says alone."""
    canvas = drawing.padded(drawn, (CROP[0], drawn.height + 42))
    width, height = marks.tag_size(str(glimpse.number), 14)
    place = (0, drawn.height + 3, width, drawn.height + 3 + height)
    marks.tag(canvas, place, str(glimpse.number), _ink(glimpse.level), 14)
    pen, inside = ImageDraw.Draw(canvas), f", in {glimpse.parent}" if glimpse.parent else ""
    pen.text((width + 6, drawn.height + 5), f"level {glimpse.level}{inside}", fill=drawing.GRAY, font=drawing.font(12))
    words = drawing.shortened(spaced(glimpse.label), 13, CROP[0], f" {glimpse.probability:.2f}")
    pen.text((0, drawn.height + 24), words, fill="black", font=drawing.font(13))
    return canvas


def _chart(answer: "ZoomAnswer", width: int) -> Image.Image:
    """The probability of the answer after each thing read, as bars; below, what was ahead where that was another."""
    high, top, left = 84, 40, 30
    canvas = Image.new("RGB", (width, top + high + 36), "white")
    pen, gray = ImageDraw.Draw(canvas), drawing.GRAY
    title = f"probability of {spaced(answer.label)} after each"
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
        ink = _ink(levels.get(after.number, 1))
        pen.rectangle((x0, y, left + step * (place + 0.88), top + high), fill=ink, outline="black")
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
            ahead = drawing.shortened(spaced(after.label), 11, step - 4)
            pen.text((middle, top + high + 20), ahead, fill=gray, font=drawing.font(11), anchor="mt")
    return canvas
