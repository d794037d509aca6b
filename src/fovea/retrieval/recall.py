"""How well embeddings retrieve: ranks, recall, and clusters."""

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BadNetwork

STARTS = 10  # of K-means, the best of which counts
TIE = 1e-12  # of both squared lengths: what rounding makes of equal distances
CHUNK = 2**24  # distances held at a time


def lengths(embeddings: NDArray[np.float64], unit: bool) -> NDArray[np.float64]:
    """Embeddings as they are compared: of length 1, or as they are."""
    lost = len(embeddings) - int(np.isfinite(embeddings).all(axis=1).sum())
    if lost:
        raise BadNetwork(f"the embeddings of {lost} of {len(embeddings)} pictures hold values that are not numbers")
    size = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.where(size > 0, size, 1) if unit else embeddings


def ranks(embeddings: NDArray[np.float64], labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many pictures of other classes lie no farther away than the nearest of the same class: Recall@k is rank < k.
    No picture is its own neighbor. One that is alone in its class has nothing to be found, so it never is a hit."""
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
