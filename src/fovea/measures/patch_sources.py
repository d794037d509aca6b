"""Sources of patches compared: do their patches lie where the data's true boxes say that the thing is?

Drawn, they are AnchorNet's Fig. 13: the same pictures with the patches of every source side by side."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadChoice, area, best_iou, by_bootstrap, processors, union, whole_pixels
from fovea.data import Box, Sample
from fovea.measures import Figures, Run, ends, measure
from fovea.measures.patch_parts import inside_any
from fovea.measures.runner import chosen_on
from fovea.measures.timing import timed
from fovea.patches import Opened, Patches, open_source, without_folders
from fovea.pictures import batched, decoded
from fovea.results import drawing, marks

EXAMPLES = 8  # pictures that are drawn
KEYS = ("patches", "centre_in_box", "centre_in_box_all", "chance", "mean_area", "iou")
HIT = KEYS.index("centre_in_box")


@measure(
    "patch-sources",
    title="Patches of several sources",
    about="How many patches of each source lie on the data's true boxes, how large they are, and what they cost.",
    example="--data cub100:split=test --source l2caf:efficientnet_lite0-cub100 --source random:seed=0",
    nets="none",
    needs=("boxes",),
    columns=("source", "images", "patches", "centre_in_box", "centre_in_box_all", "chance", "mean_area", "iou", "ms*"),
    interval="centre_in_box",
    figure="draw",
)
def patch_sources(run: Run, *, source: Sequence[str | Opened] | None = None, batch: int = 16, seed: int = 0) -> Figures:
    """One row per source, all on the same pictures: those with boxes. No file of patches is read or written."""
    if not source:
        raise BadChoice("no patch source was named; give one or several, as l2caf:efficientnet_lite0 or whole")
    sources = [open_source(given, run.device) if isinstance(given, str) else given for given in source]
    figures: list[list[tuple[float, ...]]] = [[] for _ in sources]
    spent, examples, wanted = [0.0] * len(sources), list[list[Image.Image]](), run.examples(EXAMPLES)
    for pictures in batched(decoded(run.data.samples, lambda image: image, run.skipped, processors()), batch):
        samples, images = [run.data.samples[i] for i, _ in pictures], [image for _, image in pictures]
        shown = {place: list[Image.Image]() for place, (number, _) in enumerate(pictures) if number in wanted}
        for i, find in enumerate(sources):
            if not figures[i]:
                find(images[:1])  # the first picture takes longer than all later ones
            seconds, patches = timed(partial(find, images))
            spent[i] += seconds
            figures[i] += [figures_of(*each) for each in zip(patches, samples, images, strict=True)]
            for place, row in shown.items():
                row.append(_with_patches(images[place], samples[place], patches[place], find))
        examples += shown.values()
        run.progress(len(figures[0]) + len(run.skipped), len(run.data))
    if not figures[0]:
        run.refuse_empty()
    run.progress(len(run.data), len(run.data))
    rows = [
        {
            "kind": find.kind,
            "source": without_folders(find.text),
            "net": None if find.network is None else find.network.name,
            "data": run.data.name,
            "images": len(each),
            **dict(zip(KEYS, np.array(each, dtype=np.float64).mean(0).tolist(), strict=True)),
            **ends(np.array(each)[:, HIT] > 0, seed),
            "ms_per_picture": 1000 * seconds / len(each),
        }
        for find, each, seconds in zip(sources, figures, spent, strict=True)
    ]
    networks = [find.network for find in sources if find.network is not None]
    devices = dict.fromkeys(network.device.type for network in networks)
    settings = {
        "data": run.data.name,
        "batch": batch,
        "centre_in_box": "the first patch's center lies in any true box; _all: the share of all patches of a picture",
        "interval": by_bootstrap("centre_in_box", seed),
        "chance": "the share of the picture in true boxes, which a center anywhere has",
        "mean_area": "of all patches, as a share of the picture",
        "iou": "of the first patch with the true box that it fits best",
        "ms_per_picture": "from decoded pictures to patches",
        "device": "+".join(devices) or "cpu",
        "skipped": len(run.skipped),
        **chosen_on(networks),
    }
    return Figures("patch-sources", settings, rows, run.skipped, extra=examples)


def draw(found: Figures) -> Image.Image:
    """One row per picture, one column per source."""
    return drawing.grid(found.extra)


def _with_patches(image: Image.Image, sample: Sample, patches: Patches, find: Opened) -> Image.Image:
    """Numbered, the best is 1; true boxes are white."""
    drawn = marks.with_boxes(image, patches.boxes, patches.scores, drawing.SMALLEST)
    for box in sample.boxes:
        marks.draw_box(drawn, box, image.size)
    return drawing.titled(drawn, without_folders(find.text))


def figures_of(patches: Patches, sample: Sample, image: Image.Image) -> tuple[float, ...]:
    """Of one picture: patches, is the first one's center in a box, of which share of all, chance, area, IoU."""
    inside, size = centers_inside(patches, sample.boxes), image.width * image.height
    true = union([whole_pixels(box, image.size) for box in sample.boxes])
    large, fits = float(area(patches.boxes).mean()) / size, best_iou(patches.boxes[:1], sample.boxes)
    return len(patches.boxes), float(inside[0]), float(inside.mean()), true / size, large, fits


def centers_inside(patches: Patches, boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Whether the center of each patch lies in any of the boxes."""
    corners = np.array(patches.boxes)
    return inside_any((corners[:, :2] + corners[:, 2:]) / 2, boxes)
