"""Localization of retrieval networks: are the boxes right that embeddings' heatmaps give? (L2-CAF 4.2, Table 3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fovea.data import Sample
from fovea.measures import Figures, Run, measure, seeds
from fovea.measures.boxes import APART, THRESHOLDS, max_box_acc, right_apart
from fovea.measures.localized import THRESHOLD, look, named
from fovea.measures.localized import draw as draw  # the figure of both measures
from fovea.measures.retrieval import check, distance_of
from fovea.networks import Network
from fovea.networks.heads import embedding
from fovea.retrieval import lengths, nmi, ranks

GAINS = ("gain", "gain_apart")
SURE = ("recall_at_1", "nmi", "loc", "loc_apart", *GAINS, "gt_known")  # the figures with an interval over seeds


@measure(
    "retrieval-loc",
    title="Localization by retrieval networks",
    chosen="threshold",
    about="Whether an embedding finds pictures of the same class, and whether the boxes of its heatmaps are right. "
    "Several --net make L2-CAF's Table 3: networks, methods, NMI, recall and localization. Networks whose names "
    "differ only in a last -seed0, -seed1, … share a row, with an interval.",
    example="--data cub100:labels=50-99 --net embedding-cub100",
    nets="several",
    needs=("boxes",),
    fit="squash",
    spread=True,
    figure="draw",
    columns=(
        "net", "seeds", "method", "images", "nmi", "recall_at_1", "loc", "loc_change", "loc_apart", "gain",
        "gain_apart", "gt_known", "threshold",
    ),
)  # fmt: skip
def retrieval_loc(
    run: Run,
    *,
    method: Sequence[str] = ("gradcam", "gradcam-abs", "l2caf-oblivious"),  # Eqs. 6, 7 and 1
    features: str | None = None,
    raw: bool = False,
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """One row per network and method; pictures are decoded once for all. `loc`: the nearest picture is of the same
    class, and the box is right; `gain` is over Grad-CAM's where that is among the methods. Maps are of the whole
    embedding as the network gives it, whatever its length; no class is asked for."""
    methods = named(method)
    check(run.data)
    kinds = {name: embedding(network, features) for name, network in run.networks.items()}
    embedders = {name: _Embedder(network) for name, (network, _) in kinds.items()}
    drawn, examples = look(run, embedders, methods, batch)
    rows: list[dict[str, Any]] = []
    for name, embedder in embedders.items():
        classes, units = np.array(embedder.labels), lengths(np.concatenate(embedder.vectors), not raw)
        hits, clusters = ranks(units, classes) < 1, nmi(units, classes, seed) if find_spec("sklearn") else None
        of_net: list[dict[str, Any]] = []
        for one in (one for one in methods if (name, one.name) in drawn):
            boxes = drawn[name, one.name]
            gt_known, best = max_box_acc(boxes.largest)
            of_net.append(
                {
                    "net": name,
                    "method": one.name,
                    "data": run.data.name,
                    "images": len(hits),
                    "nmi": clusters,
                    "recall_at_1": float(hits.mean()),
                    "loc": float((hits & (boxes.largest[:, best] >= 0.5)).mean()),
                    "gt_known": gt_known,
                    "threshold": float(THRESHOLDS[best]),
                    "loc_apart": float((hits & right_apart(boxes.largest)).mean()),
                }
            )
        base = next((row for row in of_net if row["method"] == "gradcam"), None)
        rows += [row | _gains(row, base) for row in of_net]
    several = len(embedders) > 1
    settings = {
        "features": ", ".join(dict.fromkeys(kind for _, kind in kinds.values())),
        "distance": distance_of(not raw),
        "threshold": THRESHOLD,
        "apart": APART,
        "correct": "the nearest picture is of the same class, and IoU of at least 0.5 with any true box",
        "gain": "of loc over that of gradcam on the same network",
        **(seeds.told(list(embedders)) if several else {}),
    }
    found = seeds.together(rows, SURE, GAINS) if several else rows
    return run.figures(found, settings, notes=[f"threshold: {THRESHOLD}"], extra=examples)


def _gains(row: dict[str, Any], base: dict[str, Any] | None) -> dict[str, float]:
    return {} if base is None else {f"gain{rule}": row[f"loc{rule}"] - base[f"loc{rule}"] for rule in ("", "_apart")}


@dataclass
class _Embedder:
    """Maps of the whole embedding, which is kept."""

    network: Network
    vectors: list[NDArray[np.float64]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def target(self, samples: Sequence[Sample], batch: Tensor) -> str:
        return "output"

    def keep(self, samples: Sequence[Sample], output: Tensor) -> None:
        self.vectors.append(output.flatten(1).double().cpu().numpy())
        self.labels += [sample.label for sample in samples]
