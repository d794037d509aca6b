"""Pictures with their patches on one sheet, to see at a glance what a source finds."""

from collections.abc import Mapping

from PIL import Image

from fovea.data import DataSet
from fovea.patches.opening import Patches
from fovea.results import drawing, marks, spaced

COLUMNS = 6


def sheet(data: DataSet, patches: Mapping[str, Patches], count: int = 24) -> Image.Image:
    """So many pictures, spread evenly over those with patches, six in a row: patches numbered, the best is 1."""
    samples = tuple(sample for sample in data.samples if sample.name in patches)
    known = DataSet(data.name, samples, data.labels).first(count)
    drawn = []
    for sample, image in known.read():
        if isinstance(image, Image.Image):  # it was read before, but may be gone
            found = patches[sample.name]
            title = spaced(data.labels[sample.label]) if sample.label < len(data.labels) else sample.name
            picture = marks.with_boxes(image, found.boxes, found.scores, drawing.SMALLEST)
            scores = [f"{score:.3g}" for score in found.scores[: marks.MOST]]
            words = " ".join(scores + ["…"] * (len(found.scores) > marks.MOST))
            drawn.append(drawing.titled(picture, title, f"evidence {words}"))
    return drawing.in_rows(drawn, COLUMNS)
