"""A look drawn: maps over the photograph, what is enough shown alone, what is needed taken away, and the words."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fovea.basics import whole_pixels
from fovea.evidence.words import GROUNDS, percent
from fovea.pictures import on_pixels
from fovea.results import Overlay, Panel, View, drawing, marks, spaced

if TYPE_CHECKING:
    from fovea.evidence.enough import Sufficient
    from fovea.evidence.evidence import Evidence

GRAY = (140, 140, 140)  # of what is not shown
SIDE = 360  # pixels of a tile's longer side


def draw(found: "Evidence") -> Image.Image:
    tiles = [drawing.titled(found.heatmap.over(size=SIDE), found.heatmap.title(), "where")]
    if found.contrast is not None:
        tiles.append(
            drawing.titled(_contrast(found), f"rather than {spaced(found.runner_up)}", "what tells them apart")
        )
    for part, kept, title in ((found.enough, True, "enough"), (found.needed, False, "needed")):
        if part is not None:
            tiles.append(drawing.titled(_part(found, part, kept), f"{title}: {percent(part.share)}", _said(part, kept)))
    sheet = drawing.grid([tiles])
    lines = [(line, 14, "black") for line in drawing.wrapped(found.words, 14, sheet.width - 8)]
    return drawing.framed(drawing.headed(sheet, lines, edge=4, between=6, below=6))


def _contrast(found: "Evidence") -> Image.Image:
    contrast, placement = found.contrast, found.shown.placement
    assert contrast is not None
    image = found.shown.image()
    values = contrast.map(2).clip(0)
    placed = on_pixels(values, placement.to_draw) if placement is not None else values
    return drawing.blend(image, placed, size=SIDE)


def _part(found: "Evidence", part: "Sufficient", kept: bool, size: drawing.Size = SIDE) -> Image.Image:
    """The picture with the part alone, or without it."""
    image = drawing.enlarged(found.shown.image(), size)
    whole = found.shown.placement.picture if found.shown.placement else image.size
    other = Image.new("RGB", image.size, GRAY)
    below, above = (other, image) if kept else (image, other)
    for box in part.boxes:
        sides = whole_pixels(marks.scaled(box, whole, image.size), image.size)
        below.paste(above.crop(sides), sides[:2])
    return below


def _said(part: "Sufficient", kept: bool) -> str:
    rows = [(GROUNDS[ground], said) for ground, said in part.said.items()]
    if kept:
        return "still so: " + ", ".join(f"{said.answer:.2f} with the rest {ground}" for ground, said in rows)
    if len({said.label for _, said in rows}) == 1:
        return f"without it: {spaced(rows[0][1].label)}"
    return "without it: " + ", ".join(f"{spaced(said.label)} ({ground})" for ground, said in rows)


def view(found: "Evidence") -> View:
    """The photograph with its maps, then what is enough, what is needed and what else was looked at, as figures."""
    panels, placement = [Panel(found.shown.photograph)], found.shown.placement
    for part, kept, title in ((found.enough, True, "Enough"), (found.needed, False, "Needed")):
        if part is not None:
            words = f"{title}: {percent(part.share)} of the picture; {_said(part, kept)}"
            panels.append(Panel(partial(_part, found, part, kept, 480), words))
    if found.closer is not None:
        boxes = [window.box for window in found.closer.windows]
        said = ", ".join(f"{spaced(one.label)} {one.probability:.2f}" for one in found.closer.windows)
        panels.append(Panel(partial(_windows, found, boxes), f"Closer: {said}"))
    for other, title in (
        (found.longer, "Longer: what each step makes of each patch"),
        (found.like, "Like: the nearest"),
    ):
        if other is not None:
            panels.append(Panel(other.draw, title))
    overlays = list(_overlays(found)) if placement is not None else []
    return View(tuple(panels), tuple(overlays), found.shown.predictions, words=found.words, table=_table(found))


def _windows(found: "Evidence", boxes: Sequence[Sequence[float]]) -> Image.Image:
    whole = found.shown.placement.picture if found.shown.placement else found.shown.image().size
    drawn = drawing.enlarged(found.shown.image(), 480)
    marks.number(drawn, boxes, whole)
    return drawn


def _overlays(found: "Evidence") -> list[Overlay]:
    heatmap, placement = found.heatmap, found.heatmap.shown.placement
    assert placement is not None
    made = list[Overlay]()
    for target, box in enumerate(heatmap.boxes[:2]):
        cells, sides = heatmap.maps.smoothed(heatmap.place, target), box.tolist() if box.any() else ()
        note = heatmap.diagnosis[target] or ""
        made.append(Overlay(heatmap.method, heatmap.title(target), cells, placement, sides, note))
    if found.contrast is not None:
        names = found.label, found.runner_up
        place = found.contrast.shown.placement
        assert place is not None
        for sign, (one, other) in ((1, names), (-1, names[::-1])):
            cells = np.clip(sign * found.contrast.map(2), 0, None)
            made.append(Overlay(found.contrast.solver, f"{spaced(one)} rather than {spaced(other)}", cells, place))
    return made


def _table(found: "Evidence") -> tuple[tuple[str, ...], ...]:
    """What was checked, and what it cost."""
    rows = [("check", "result")]
    if found.trust is not None:
        rows.append(("with a random last layer", f"rank correlation {found.trust.random:.2f}"))
        rows += [(f"by {name}", f"rank correlation {alike:.2f}") for name, alike in found.trust.methods.items()]
        for change, held in found.trust.changes.items():
            same = "the same answer" if held.same else f"taken for {spaced(held.label)}"
            rows.append((change, f"rank correlation {held.correlation:.2f}, {same}"))
    cost = found.cost
    each = "" if cost.macs is None else f" of {cost.macs / 1e9:.2f} G multiplications"
    rows.append(
        ("cost", f"{cost.forwards} passes{each}, {cost.ms:,.0f} ms, {cost.pixels:,} of {cost.picture:,} pixels")
    )
    return tuple(rows)
