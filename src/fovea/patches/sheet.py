"""Pictures with their patches on one sheet, to see at a glance what a source finds."""

import math
from collections.abc import Mapping

from PIL import Image

from fovea.data import DataSet
from fovea.patches.opening import Patches
from fovea.results import drawing

COLUMNS = 6


def sheet(data: DataSet, patches: Mapping[str, Patches], count: int = 24) -> Image.Image:
    """So many pictures, spread evenly over those with patches, six in a row: patches numbered, the best is 1."""
    known = DataSet(data.name, tuple(sample for sample in data.samples if sample.name in patches), data.labels).first(
        count
    )
    drawn = []
    for sample, image in known.read():
        if isinstance(image, Image.Image):  # it was read before, but may be gone
            title = data.labels[sample.label] if sample.label < len(data.labels) else sample.name
            scores = " ".join(f"{score:.3g}" for score in patches[sample.name].scores)
            drawn.append(drawing.titled(_picture(image, patches[sample.name]), title, scores))
    columns = min(COLUMNS, len(drawn))
    return drawing.grid([drawn[row * columns : (row + 1) * columns] for row in range(math.ceil(len(drawn) / columns))])


def _picture(image: Image.Image, patches: Patches) -> Image.Image:
    small = image.copy()
    small.thumbnail((drawing.SMALLEST, drawing.SMALLEST))
    across, down = small.width / image.width, small.height / image.height
    return drawing.with_boxes(
        small, [(x0 * across, y0 * down, x1 * across, y1 * down) for x0, y0, x1, y1 in patches.boxes]
    )
