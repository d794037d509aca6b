"""Localisation of retrieval networks: are the boxes right that embeddings' heatmaps give? (L2-CAF 4.2, Table 3)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fovea.data import DataSet
from fovea.errors import BadChoice, BadPicture
from fovea.explaining import Method, look_at
from fovea.measure.boxes import THRESHOLDS, max_box_acc
from fovea.measure.embedding import embedding
from fovea.measure.figures import Figures
from fovea.measure.retrieval import check, distance_of, lengths, ranks
from fovea.measure.stream import batches, input_of, prepared
from fovea.measure.wsol import THRESHOLD, Job, localised, named
from fovea.network import Network

METHODS = ("gradcam", "gradcam-abs", "l2caf-oblivious")  # Eqs. 6, 7 and 1


def measure(
    network: Network,
    data: DataSet,
    methods: Sequence[str | Method] = METHODS,
    batch: int = 16,
    features: str | None = None,
    unit: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 0,
) -> Figures:
    """One row of figures a method. `loc`: the nearest picture is of the same class, and the box is right.

    Maps are of the whole embedding as the network gives it, whatever its length; no class is asked for.
    `workers` processes draw the boxes; a script that asks for any starts from `if __name__ == "__main__":`.
    """
    own_methods = named(methods)
    with_boxes = data.with_boxes()
    if not len(with_boxes):
        raise BadChoice(f"{data.name} has no boxes to measure against (a folder takes them from boxes.csv: file,boxes)")
    check(with_boxes)
    own, features = embedding(network, features)
    total = 2 * len(with_boxes)  # every picture is looked at, then its boxes are drawn
    skipped: list[tuple[str, str]] = []
    vectors: list[NDArray[np.float64]] = []
    labels: list[int] = []
    maps: dict[str, list[Job]] = {one.name: [] for one in own_methods}
    for samples, images in batches(with_boxes, batch, skipped):
        tensors, shown, places = prepared(own, samples, images)
        seen, output = look_at(own, tensors, shown, own_methods, "output")
        vectors.append(output.flatten(1).double().cpu().numpy())
        labels += [sample.label for sample in samples]
        for name, found in seen.items():
            maps[name] += [(found.map(i), places[i], sample.boxes) for i, sample in enumerate(samples)]
        progress(len(labels) + len(skipped), total)
    if not labels:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
    hits = ranks(lengths(np.concatenate(vectors), unit), np.array(labels)) < 1
    rows = []
    drawn = localised(maps, lambda done, of: progress(total // 2 + done * (total // 2) // of, total), workers)
    for name, boxes in drawn.items():
        gt_known, best = max_box_acc(boxes.largest)
        rows.append(
            {
                "net": network.name or "network",
                "method": name,
                "data": data.name,
                "images": len(hits),
                "recall_at_1": float(hits.mean()),
                "loc": float((hits & (boxes.largest[:, best] >= 0.5)).mean()),
                "gt_known": gt_known,
                "threshold": float(THRESHOLDS[best]),
            }
        )
    settings = {
        "data": data.name,
        "input": input_of(network),
        "features": features,
        "distance": distance_of(unit),
        "threshold": THRESHOLD,
        "correct": "the nearest picture is of the same class, and IoU of at least 0.5 with any true box",
        "skipped": len(skipped),
    }
    return Figures("retrieval-loc", settings, rows, skipped)
