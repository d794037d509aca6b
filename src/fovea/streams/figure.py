"""One strip per picture: the global stream's map, the patches, each step of each patch (thesis, Figs. 5.1 to 7.3)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fovea.basics import whole_pixels
from fovea.heatmaps import HeatMap
from fovea.pictures import on_pixels
from fovea.results import drawing, marks, spaced

if TYPE_CHECKING:
    from fovea.streams.looked import Looked, Said, SeenPatch, SeenStep

PICTURE, TILE, GAP = (400, 480), 160, 10  # pixels: that the picture fits in, of a tile's side, between things
LEAST = 24  # pixels of the shorter side of a very long patch
MOST = 6  # tiles of steps in a row
TITLE, TEXT, LINES = 19, 13, 2  # sizes of letters; in how many lines at most a label is said
RIGHT, WRONG, BAR = "#0072b2", "#d55e00", "#009e73"  # Okabe and Ito's


def draw(looked: "Looked") -> Image.Image:
    image = looked.shown.image()
    longest = max((step.weight for patch in looked.patches for step in patch.steps), default=0.0)
    blocks = [[_block(looked, image, number, patch, longest)] for number, patch in enumerate(looked.patches, 1)]
    strip = drawing.grid([[_left(looked, image), drawing.grid(blocks, 2 * GAP)]], 2 * GAP)
    title = f"{Path(looked.name).name}: {spaced(str(looked.said))}"
    if looked.truth is not None:
        title += ", right" if looked.truth == looked.label else f", wrong: it is {spaced(looked.truth)}"
    said = {"global": looked.whole_said, "local": looked.local_said}
    below = [f"{name} stream: {spaced(str(own))}" for name, own in said.items()]
    below += [_maps(looked), "bars: how much each step counts"]
    if any(len(patch.steps) > 1 for patch in looked.patches):
        below[-1] += ", thin line: if all counted alike"
        below.append(
            "the steps of a patch share a scale; below each: where it is above (orange) and below (blue) their mean"
        )
    below += [drawing.UNSEEN] * looked.whole.crops
    lines = [(line, TITLE, "black") for line in drawing.wrapped(title, TITLE, strip.width)]
    lines += [(line, TEXT, drawing.GRAY) for line in drawing.wrapped(" · ".join(below), TEXT, strip.width)]
    return drawing.headed(drawing.framed(strip, GAP, above=0), lines, edge=GAP, between=6, below=4)


def _maps(looked: "Looked") -> str:
    whole = f"{looked.whole.method}, of {spaced(looked.target)}"
    return f"maps: {whole}" if looked.whole.method == looked.method else f"maps: {looked.method}; the whole: {whole}"


def _left(looked: "Looked", image: Image.Image) -> Image.Image:
    """The picture with the global stream's map and the patches' boxes, and what that stream says."""
    drawn = drawing.fitted(looked.whole.over(box=False), PICTURE, LEAST)
    marks.number(drawn, looked.boxes, image.size)
    _tell_blank(drawn, looked.whole)
    caption = _caption(looked, "global stream", looked.whole_said, drawn.width)
    return drawing.grid([[drawn], [caption], [drawing.legend(drawn.width, 18)]], 4)


def _block(looked: "Looked", image: Image.Image, number: int, patch: "SeenPatch", longest: float) -> Image.Image:
    """A patch, and its steps beside it in rows as even as can be."""
    inside = whole_pixels(patch.box, image.size)
    crop = image.crop(inside)
    name = "patch" if len(looked.patches) == 1 else f"patch {number}"
    tile = drawing.fitted(crop, (TILE, TILE), LEAST)
    if len(looked.patches) > 1:
        marks.mark(tile, [marks.Mark((0, 0, *tile.size), ink=marks.INKS[(number - 1) % len(marks.INKS)])])
    own = drawing.grid([[_centered(tile)], [_caption(looked, name, patch.said, TILE)]], 4)
    maps = np.stack([_inside(step.map, inside) for step in patch.steps])  # T,h,w
    seen = _drawn(crop, maps)
    steps = [
        _step(looked, tiles, step, longest, len(patch.steps)) for tiles, step in zip(seen, patch.steps, strict=True)
    ]
    return drawing.grid([[own, drawing.in_rows(steps, MOST, GAP)]], GAP)


def _centered(tile: Image.Image) -> Image.Image:
    return drawing.padded(tile, (TILE, tile.height), ((TILE - tile.width) // 2, 0))


def _drawn(crop: Image.Image, maps: NDArray[np.float32]) -> list[list[Image.Image]]:
    """Of every step its map, all on one scale, and, of several steps, how it differs from their mean, likewise."""
    apart = maps - maps.mean(0)
    most, farthest = float(maps.max()), float(np.abs(apart).max())
    tiles = [[drawing.blend(crop, own, most=most)] for own in maps]
    if len(maps) > 1:
        for own, other in zip(tiles, apart, strict=True):
            own.append(drawing.differ(crop, other, farthest))
    return tiles


def _step(looked: "Looked", tiles: Sequence[Image.Image], step: "SeenStep", longest: float, count: int) -> Image.Image:
    drawn = [drawing.fitted(tile, (TILE, TILE), LEAST) for tile in tiles]
    _tell_blank(drawn[0], step.map)
    bar = _bar(step.weight, longest, 1 / count if count > 1 else None)
    caption = _caption(looked, f"step {step.number}", step.said, TILE)
    return drawing.grid([*([_centered(tile)] for tile in drawn), [bar], [caption]], 4)


def _inside(seen: HeatMap, box: tuple[int, int, int, int]) -> NDArray[np.float32]:
    """The part of a map that lies in a box of the user's pixels, without the rest being made."""
    placement = seen.shown.placement
    assert placement is not None  # a patch is of a picture
    x0, y0, x1, y1 = box
    offset = placement.offset[0] - x0, placement.offset[1] - y0
    part = replace(placement, picture=(x1 - x0, y1 - y0), offset=offset)
    return on_pixels(seen.map().clip(0), part.to_draw)


def _tell_blank(image: Image.Image, heatmap: HeatMap) -> None:
    if heatmap.diagnosis[0] is not None:
        drawing.write(image, (image.width / 2, image.height / 2), "blank", 16, anchor="mm")


def _caption(looked: "Looked", name: str, said: "Said", width: int) -> Image.Image:
    """Whose words they are, whether they are right, and the words."""
    known = looked.truth is not None
    good = said.label == (looked.truth if known else looked.label)
    word = ("right" if good else "wrong") if known else ("agrees" if good else "differs")
    lines = _lines(spaced(said.label), f" {said.probability:.2f}", width)
    canvas = Image.new("RGB", (width, 19 + len(lines) * (TEXT + 3)), "white")
    pen, ink = ImageDraw.Draw(canvas), RIGHT if good else WRONG
    pen.text((0, 1), name, fill="black", font=drawing.font(TEXT))
    begins = width - drawing.font(TEXT).getlength(word)
    pen.text((begins, 1), word, fill=ink, font=drawing.font(TEXT))
    _mark(pen, begins - 17, 4, good, ink)
    for place, line in enumerate(lines):
        pen.text((0, 19 + place * (TEXT + 3)), line, fill="black", font=drawing.font(TEXT))
    return canvas


def _mark(pen: ImageDraw.ImageDraw, x: float, y: float, good: bool, ink: str) -> None:
    """A tick or a cross, which need no color to be told apart."""
    if good:
        pen.line([(x, y + 5), (x + 4, y + 10), (x + 12, y)], fill=ink, width=3, joint="curve")
    else:
        pen.line([(x + 1, y), (x + 11, y + 10)], fill=ink, width=3)
        pen.line([(x + 1, y + 10), (x + 11, y)], fill=ink, width=3)


def _lines(label: str, after: str, width: int) -> list[str]:
    """A label with what comes after it; of one too long for its lines, the end of the last is left out."""
    lines = drawing.wrapped(label + after, TEXT, width)
    letters = drawing.font(TEXT).getlength
    if len(lines) <= LINES and all(letters(line) <= width for line in lines):
        return lines
    kept, rest = lines[: LINES - 1], " ".join(lines[LINES - 1 :]).removesuffix(after)
    return [drawing.shortened(line, TEXT, width) for line in kept] + [drawing.shortened(rest, TEXT, width, after)]


def _bar(weight: float, longest: float, even: float | None) -> Image.Image:
    """A step's weight, the longest of the figure being as long as there is room; a line where even shares would end."""
    room = TILE - 40
    canvas = Image.new("RGB", (TILE, 14), "white")
    pen = ImageDraw.Draw(canvas)
    share = room / longest if longest > 0 else 0.0
    pen.rectangle((0, 3, room, 10), fill="#e8e8e8")
    if weight * share >= 1:
        pen.rectangle((0, 3, weight * share, 10), fill=BAR)
    if even is not None and even * share <= room:
        pen.line((even * share, 0, even * share, 13), fill="black")
    pen.text((TILE, 7), f"{weight:.3f}", fill="black", font=drawing.font(12), anchor="rm")
    return canvas
