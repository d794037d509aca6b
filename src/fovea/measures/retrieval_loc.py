"""Localisation of retrieval networks: are the boxes right that embeddings' heatmaps give? (L2-CAF 4.2, Table 3)."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.basics.errors import BadPicture
from fovea.data import DataSet
from fovea.heatmaps.explain import Method, look_at
from fovea.measures import seeds
from fovea.measures.boxes import THRESHOLDS, max_box_acc
from fovea.measures.figures import Figures
from fovea.measures.retrieval import check, distance_of
from fovea.measures.wsol import THRESHOLD, Job, Prepared, boxed, localised, named, names_of
from fovea.networks.embedding import embedding
from fovea.networks.network import Network
from fovea.networks.stream import batches, input_of
from fovea.retrieval.recall import lengths, nmi, ranks

TOLD = ("recall_at_1", "nmi", "loc", "gt_known")  # the figures with an interval over seeds
METHODS = ("gradcam", "gradcam-abs", "l2caf-oblivious")  # Eqs. 6, 7 and 1


def measure(
    network: Network | Sequence[Network],
    data: DataSet,
    methods: Sequence[str | Method] = METHODS,
    batch: int = 16,
    features: str | None = None,
    unit: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 0,
) -> Figures:
    """One row of figures a method, of one network or of several side by side; pictures are decoded once for all.

    `loc`: the nearest picture is of the same class, and the box is right; `gain` is over Grad-CAM's where that is
    among the methods. Maps are of the whole embedding as the network gives it, whatever its length; no class is asked
    for. Networks called the same but for a last -seed<N> share a row. `workers` processes draw the boxes; a script
    that asks for any starts from `if __name__ == "__main__":`.
    """
    networks = [network] if isinstance(network, Network) else list(network)
    own_methods, names = named(methods), names_of(networks)
    with_boxes = boxed(data)
    check(with_boxes)
    own = [embedding(one, features) for one in networks]
    total = 2 * len(with_boxes)  # every picture is looked at, then its boxes are drawn
    skipped: list[tuple[str, str]] = []
    vectors: list[list[NDArray[np.float64]]] = [[] for _ in networks]
    labels: list[int] = []
    maps: dict[tuple[str, str], list[Job]] = {(name, one.name): [] for name in names for one in own_methods}
    for samples, images in batches(with_boxes, batch, skipped):
        ready = Prepared(samples, images)
        for name, (one, _), found in zip(names, own, vectors, strict=True):
            tensors, shown, places = ready.of(one)
            seen, output = look_at(one, tensors, shown, own_methods, "output")
            found.append(output.flatten(1).double().cpu().numpy())
            for label, maps_of in seen.items():
                maps[name, label] += [(maps_of.map(i), places[i], sample.boxes) for i, sample in enumerate(samples)]
        labels += [sample.label for sample in samples]
        progress(len(labels) + len(skipped), total)
    if not labels:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
    drawn = localised(maps, lambda done, of: progress(total // 2 + done * (total // 2) // of, total), workers)
    classes, rows = np.array(labels), []
    for name, found in zip(names, vectors, strict=True):
        units = lengths(np.concatenate(found), unit)
        hits, clusters = ranks(units, classes) < 1, nmi(units, classes, seed) if find_spec("sklearn") else None
        of_net: list[dict[str, Any]] = []
        for method in own_methods:
            boxes = drawn[name, method.name]
            gt_known, best = max_box_acc(boxes.largest)
            of_net.append(
                {
                    "net": name,
                    "method": method.name,
                    "data": data.name,
                    "images": len(hits),
                    "nmi": clusters,
                    "recall_at_1": float(hits.mean()),
                    "loc": float((hits & (boxes.largest[:, best] >= 0.5)).mean()),
                    "gt_known": gt_known,
                    "threshold": float(THRESHOLDS[best]),
                }
            )
        base = next((row["loc"] for row in of_net if row["method"] == "gradcam"), None)
        rows += [row | ({} if base is None else {"gain": row["loc"] - base}) for row in of_net]
    several = len(networks) > 1
    settings = {
        "data": data.name,
        "input": ", ".join(dict.fromkeys(map(input_of, networks))),
        "features": ", ".join(dict.fromkeys(kind for _, kind in own)),
        "distance": distance_of(unit),
        "threshold": THRESHOLD,
        "correct": "the nearest picture is of the same class, and IoU of at least 0.5 with any true box",
        "gain": "of loc over that of gradcam on the same network",
        **(seeds.told(names) if several else {}),
        "skipped": len(skipped),
    }
    return Figures("retrieval-loc", settings, seeds.together(rows, TOLD) if several else rows, skipped)
