"""A heatmap over its picture."""

from typing import TYPE_CHECKING

from PIL import Image

from fovea.basics import boxes as regions
from fovea.results.drawing import blend, draw_box, titled, with_bar

if TYPE_CHECKING:
    from fovea.heatmaps.heatmap import HeatMap


def overlay(seen: "HeatMap", picture: int, target: int, frame: int, box: bool) -> Image.Image:
    shown = seen.shown[picture]
    image = shown.image(frame)
    values = seen.evidence(picture, target, frame)
    drawn = blend(image, values, shown.placement.window if shown.placement else None)
    zoom = drawn.width / image.width
    if box:
        found = regions.box_of(values)
        if found.any():
            draw_box(drawn, tuple(float(side) * zoom for side in found))
    subtitle = f"{seen.method} · {seen.solver}" if seen.solver else seen.method
    reason = seen.diagnosis[picture][target] if seen.diagnosis else None
    return titled(with_bar(drawn, values), seen.title(picture, target), reason or subtitle)
