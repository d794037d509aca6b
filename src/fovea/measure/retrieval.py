"""Retrieval: is the nearest picture of the same class, and do the classes form clusters? (L2-CAF supplement, S2)."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from fovea.data import DataSet
from fovea.errors import BadChoice, BadNetwork, FoveaError
from fovea.measure.embedding import embedding
from fovea.measure.figures import Figures
from fovea.measure.stream import input_of, outputs
from fovea.network import Network

NEIGHBOURS = (1, 2, 4, 8)
STARTS = 10  # of K-means, the best of which counts
TIE = 1e-12  # of both squared lengths: what rounding makes of equal distances
CHUNK = 2**24  # distances held at a time


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


def lengths(embeddings: NDArray[np.float64], unit: bool) -> NDArray[np.float64]:
    """Embeddings as they are compared: of length 1, or as they are."""
    lost = len(embeddings) - int(np.isfinite(embeddings).all(axis=1).sum())
    if lost:
        raise BadNetwork(f"the embeddings of {lost} of {len(embeddings)} pictures hold values that are not numbers")
    size = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.where(size > 0, size, 1) if unit else embeddings


def distance_of(unit: bool) -> str:
    return f"Euclidean, embeddings {'of unit length' if unit else 'as they are'}; a tie is not a hit"


def ranks(embeddings: NDArray[np.float64], labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many pictures of other classes lie no farther away than the nearest of the same class: Recall@k is rank < k.

    No picture is its own neighbour. One that is alone in its class has nothing to be found, so it never is a hit.
    """
    count, squared = len(embeddings), (embeddings**2).sum(1)
    found = np.zeros(count, dtype=np.int64)
    step = max(CHUNK // count, 1)
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        both = squared[rows, None] + squared  # R,N
        apart = both - 2 * embeddings[rows] @ embeddings.T  # R,N  squared distances
        slack = TIE * both  # a pair's own, so that a far picture does not blur the near ones
        same = labels[rows, None] == labels
        apart[np.arange(len(rows)), rows] = np.inf
        nearest = np.where(same, apart + slack, np.inf).min(1, keepdims=True)
        closer = (~same & (apart - slack <= nearest)).sum(1)
        found[rows] = np.where(np.isinf(nearest[:, 0]), np.iinfo(np.int64).max, closer)
    return found


def nmi(embeddings: NDArray[np.float64], labels: NDArray[np.integer], seed: int = 0) -> float:
    """I(Ω, C) / sqrt(H(Ω) H(C)) of the classes Ω and as many clusters C that K-means finds."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    means = KMeans(len(np.unique(labels)), n_init=STARTS, random_state=seed)
    clusters = means.fit_predict(embeddings.astype(np.float32))
    return float(normalized_mutual_info_score(labels, clusters, average_method="geometric"))
