"""Retrieval: is the nearest picture of the same class, and do the classes form clusters? (L2-CAF supplement, S2)."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from fovea.basics.errors import BadChoice, FoveaError
from fovea.data import DataSet
from fovea.measures.figures import Figures
from fovea.networks.embedding import embedding
from fovea.networks.network import Network
from fovea.networks.stream import input_of, outputs
from fovea.retrieval.recall import STARTS, lengths, nmi, ranks

NEIGHBOURS = (1, 2, 4, 8)


def measure(
    network: Network,
    data: DataSet,
    batch: int = 16,
    features: str | None = None,
    unit: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Figures:
    """One row: Recall@1, 2, 4, 8 among the pictures themselves, and NMI of K-means.

    `features`: 'output', or 'pooled' for what a classifier's last layer reads, which is the default for one.
    `unit` scales embeddings to length 1 first, so that only their directions count.
    """
    if find_spec("sklearn") is None:
        raise FoveaError("K-means comes from a package that is not installed: pip install 'fovea[train]'")
    check(data)
    own, features = embedding(network, features)
    skipped: list[tuple[str, str]] = []
    vectors: list[NDArray[np.float64]] = []
    labels: list[int] = []
    for samples, output in outputs(own, data, batch, skipped, progress):
        vectors.append(output.flatten(1).double().cpu().numpy())
        labels += [sample.label for sample in samples]
    found, classes = lengths(np.concatenate(vectors), unit), np.array(labels)  # N,D  N
    rank = ranks(found, classes)
    row = {
        "net": network.name or "network",
        "data": data.name,
        "images": len(found),
        "classes": len(np.unique(classes)),
        "dimensions": found.shape[1],
        **{f"recall_at_{k}": float((rank < k).mean()) for k in NEIGHBOURS},
        "nmi": nmi(found, classes, seed),
    }
    settings = {
        "data": data.name,
        "input": input_of(network),
        "features": features,
        "distance": distance_of(unit),
        "nmi": f"I / sqrt(H H), K-means with K the number of classes, best of {STARTS} starts, seed {seed}",
        "alone": int((np.unique(classes, return_counts=True)[1] == 1).sum()),
        "skipped": len(skipped),
    }
    return Figures("retrieval", settings, [row], skipped)


def check(data: DataSet) -> None:
    """At least two classes, one of them with two pictures."""
    count = np.unique([sample.label for sample in data.samples], return_counts=True)[1]
    if len(count) < 2 or count.max() < 2:
        raise BadChoice(
            f"retrieval needs two classes, and pictures of the same class to find; {data.name} has "
            f"{len(data)} picture(s) in {len(count)} class(es)"
        )


def distance_of(unit: bool) -> str:
    return f"Euclidean, embeddings {'of unit length' if unit else 'as they are'}; a tie is not a hit"
