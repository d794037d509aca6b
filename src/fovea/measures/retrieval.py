"""Retrieval: is the nearest picture of the same class, and do the classes form clusters? (L2-CAF supplement, S2)."""

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BadChoice, FoveaError
from fovea.data import DataSet
from fovea.measures import Figures, Run, measure
from fovea.networks import outputs
from fovea.networks.heads import embedding
from fovea.retrieval import STARTS, lengths, nmi, ranks

NEIGHBORS = (1, 2, 4, 8)


@measure(
    "retrieval",
    title="Retrieval",
    about="Whether the nearest picture is of the same class (recall at 1, 2, 4, 8), and whether classes form clusters "
    "(NMI).",
    example="--data cub100:labels=50-99 --net embedding-cub100",
    fit="crop",
    any_size=True,
    spread=True,
    columns=("net", "images", "classes", "dimensions", "recall_at_*", "nmi"),
)
def retrieval(run: Run, *, features: str | None = None, raw: bool = False, batch: int = 16, seed: int = 0) -> Figures:
    """One row: Recall@1, 2, 4, 8 among the pictures themselves, and NMI of K-means. `features`: 'output', or 'pooled'
    for what a classifier's last layer reads, which is the default for one. Embeddings are scaled to length 1 first, so
    that only their directions count, unless `raw`."""
    if find_spec("sklearn") is None:
        raise FoveaError("K-means comes from a package that is not installed: pip install 'fovea[train]'")
    check(run.data)
    own, features = embedding(run.network, features)
    vectors: list[NDArray[np.float64]] = []
    labels: list[int] = []
    for samples, output in outputs(own, run.data, batch, run.skipped, run.progress, engine=run.engine):
        vectors.append(output.flatten(1).double().cpu().numpy())
        labels += [sample.label for sample in samples]
    found, classes = lengths(np.concatenate(vectors), not raw), np.array(labels)  # N,D  N
    rank = ranks(found, classes)
    row = {
        **run.about(len(found)),
        "classes": len(np.unique(classes)),
        "dimensions": found.shape[1],
        **{f"recall_at_{k}": float((rank < k).mean()) for k in NEIGHBORS},
        "nmi": nmi(found, classes, seed),
    }
    settings = {
        "features": features,
        "distance": distance_of(not raw),
        "nmi": f"I / sqrt(H H), K-means with K the number of classes, best of {STARTS} starts, seed {seed}",
        "alone": int((np.unique(classes, return_counts=True)[1] == 1).sum()),
    }
    return run.figures([row], settings, notes=[f"{key}: {settings[key]}" for key in ("features", "distance", "nmi")])


def check(data: DataSet) -> None:
    """At least two classes, one of them with two pictures."""
    count = np.unique([sample.label for sample in data.samples], return_counts=True)[1]
    if len(count) < 2 or count.max() < 2:
        why = f"{data.name} has {len(data)} picture(s) in {len(count)} class(es)"
        raise BadChoice(f"retrieval needs two classes, and pictures of the same class to find; {why}")


def distance_of(unit: bool) -> str:
    return f"Euclidean, embeddings {'of unit length' if unit else 'as they are'}; a tie is not a hit"
