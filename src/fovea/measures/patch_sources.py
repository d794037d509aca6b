"""Sources of patches compared: do their patches lie where the data's true boxes say that the thing is?"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics.boxes import area, best_iou
from fovea.basics.errors import BadChoice, BadPicture
from fovea.data import Box, DataSet, Sample
from fovea.glimpses.reading import union
from fovea.measures.figures import Figures
from fovea.measures.patch_parts import inside_any
from fovea.networks.stream import batches
from fovea.patches.found import whole
from fovea.patches.sources import Opened, Patches, told

Progress = Callable[[int, int], None]


def measure(
    sources: Sequence[Opened], data: DataSet, batch: int = 16, progress: Progress = lambda done, total: None
) -> Figures:
    """A row a source, all on the same pictures: those with boxes. No file of patches is read or written."""
    if not sources:
        raise BadChoice("no patch source was named")
    boxed = data.with_boxes()
    if not any(sample.boxes for sample in boxed.samples):
        raise BadChoice(f"{data.name} has no boxes to compare patches with")
    rows: list[dict[str, Any]] = []
    skipped: list[tuple[str, str]] = []
    total = len(boxed) * len(sources)
    for number, source in enumerate(sources):
        skipped = []
        tally: list[tuple[float, ...]] = []
        seconds = 0.0
        for samples, images in batches(boxed, batch, skipped):
            if not tally:
                source(images[:1])  # the first picture takes longer than all later ones
            begun = time.perf_counter()
            found = source(images)
            seconds += time.perf_counter() - begun
            tally += [figures_of(*one) for one in zip(found, samples, images, strict=True)]
            progress(number * len(boxed) + len(tally) + len(skipped), total)
        progress((number + 1) * len(boxed), total)
        if not tally:
            raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
        count, first, every, chance, extent, overlap = np.array(tally, dtype=np.float64).mean(0).tolist()
        rows.append(
            {
                "kind": source.kind,
                "source": told(source.text),
                "net": None if source.network is None else source.network.name,
                "data": data.name,
                "images": len(tally),
                "patches": count,
                "centre_in_box": first,
                "centre_in_box_all": every,
                "chance": chance,
                "mean_area": extent,
                "iou": overlap,
                "ms_per_picture": 1000 * seconds / len(tally),
            }
        )
    settings = {
        "data": data.name,
        "batch": batch,
        "centre_in_box": "the first patch's centre lies in any true box; _all: the share of all patches of a picture",
        "chance": "the share of the picture in true boxes, which a centre anywhere has",
        "mean_area": "of all patches, as a share of the picture",
        "iou": "of the first patch with the true box that it fits best",
        "ms_per_picture": "from decoded pictures to patches",
        "device": _device(sources),
        "skipped": len(skipped),
    }
    return Figures("patch-sources", settings, rows, skipped)


def figures_of(patches: Patches, sample: Sample, image: Image.Image) -> tuple[float, ...]:
    """Of one picture: patches, is the first one's centre in a box, of which share of all, chance, area, IoU."""
    inside, size = centres_inside(patches, sample.boxes), image.width * image.height
    true = union([whole(box, image.size) for box in sample.boxes])
    return (
        len(patches.boxes),
        float(inside[0]),
        float(inside.mean()),
        true / size,
        float(area(patches.boxes).mean()) / size,
        best_iou(patches.boxes[:1], sample.boxes),
    )


def centres_inside(patches: Patches, boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Whether the centre of each patch lies in any of the boxes."""
    corners = np.array(patches.boxes)
    return inside_any((corners[:, :2] + corners[:, 2:]) / 2, boxes)


def _device(sources: Sequence[Opened]) -> str:
    devices = dict.fromkeys(one.network.device.type for one in sources if one.network is not None)
    return "+".join(devices) or "cpu"
