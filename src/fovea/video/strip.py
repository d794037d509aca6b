"""The strip of a clip: its frames beside each other, under each the same frame with the map and the box."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import boxes as regions
from fovea.pictures import on_pixels, spread
from fovea.results import drawing, marks

if TYPE_CHECKING:
    from fovea.video.watched import Watched

TILE, GAP = (320, 240), 6  # pixels: that a frame fits in, between things
COLUMNS, MOST = 6, 18  # frames in a row, and in a strip
COARSE = 4  # pixels of a frame to one of the map that is colored


def draw(watched: "Watched", target: int) -> Image.Image:
    places = spread(range(len(watched)), MOST)
    strip = drawing.in_rows([_block(watched, place, target) for place in places], COLUMNS, 2 * GAP)
    strip = drawing.grid([[strip], [drawing.legend(strip.width, 16)]], GAP)
    words = [watched.net, watched.map.method]
    words += [f"{len(places)} of {len(watched)} explained frames"] if len(places) < len(watched) else []
    words += [reason] if (reason := watched.map.diagnosis[0][target]) else []
    words += [drawing.UNSEEN] if watched.map[0].crops else []
    return drawing.titled(strip, f"{Path(watched.name).name}: {watched.title(target)}", " · ".join(filter(None, words)))


def _block(watched: "Watched", place: int, target: int) -> Image.Image:
    """A frame and its map under when it is, which it is and what is said of it."""
    image = drawing.fitted(watched.map.shown[0].image(place), TILE, 2)
    shown = annotated(watched, image, watched.values[place, target])
    when = f"{watched.times[place]:.2f} s · frame {watched.numbers[place]}"
    words = [(when, 13, "black"), (watched.said(place, target), 12, drawing.GRAY)]
    lines = [(drawing.shortened(line, size, image.width), size, ink) for line, size, ink in words if line]
    return drawing.headed(drawing.grid([[image], [shown]], GAP), lines, 0, 4, 2)


def annotated(watched: "Watched", image: Image.Image, cells: NDArray[np.float32]) -> Image.Image:
    """A frame, at any size, under a map of it, with the map's box."""
    placement = watched.map.shown[0].placement
    assert placement is not None  # frames have pixels
    size = image.size
    small = placement.at_size((max(size[0] // COARSE, 2), max(size[1] // COARSE, 2)))
    drawn = drawing.blend(image, on_pixels(cells.clip(0), small), placement.at_size(size).window, size=max(size))
    box = regions.box_of(on_pixels(cells.clip(0), placement.at_size(size)))
    if box.any():
        marks.draw_box(drawn, box.tolist(), size)
    return drawn
