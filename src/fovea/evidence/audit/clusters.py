"""The patches that speak for a class (AnchorNet, Fig. 8, for any network), in clusters of what looks alike to it, and
the signs by which a shortcut stands out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import binom

from fovea.evidence.audit.table import PatchTable

ALIKE = 0.65  # cosine distance, on average, up to which clusters are joined
AT_MOST = 1500  # patches of a class that are joined pair by pair; others are put to the nearest cluster
PICTURES = 5  # of a cluster, at least
SHARE = 0.05  # of the class's pictures, at least
EDGE = 10  # percentile of a cluster's own patches, by how near they are to its middle: beyond it lies no other


@dataclass(frozen=True)
class Cluster:
    """Patches that look alike to the network, in pictures that it takes for one class."""

    label: int
    patches: NDArray[np.int64]  # of the table, those nearest to the middle first
    pictures: int
    share: float  # of the pictures that are taken for the class
    carries: float  # of the patches, that keep the answer alone
    needed: float  # of the patches, without which it changes
    place: tuple[float, float]  # the median of their middles, in shares of the input
    there: float  # of its pictures, that have one at that place
    by_chance: float  # of all other pictures, that have any patch there
    surprise: float  # log10 of the probability that so many are there by chance
    outside: float | None  # of the patches, that lie outside the boxes
    elsewhere: float  # how often a picture of another class has such a patch

    @property
    def same_place(self) -> bool:
        return self.there >= THERE and self.by_chance <= RARE_PLACE and self.surprise <= SURPRISE

    @property
    def off_object(self) -> bool:
        return self.outside is not None and self.outside >= OUTSIDE


THERE, RARE_PLACE, SURPRISE = 0.7, 0.25, -4.0  # a place that is the cluster's own
OUTSIDE = 0.7  # of its patches, outside the boxes
OFF = 0.1  # of a patch in the boxes: less is outside


def clusters_of(table: PatchTable, label: int) -> list[Cluster]:
    """Those of a class that are in enough of its pictures, those that carry the answer in most pictures first."""
    own = table.of_class(label)
    if len(own) < PICTURES:
        return []
    pictures = len(np.unique(table.picture[own]))
    numbers = _joined(table.vectors[own].astype(np.float32))
    others = np.flatnonzero(table.answer[table.picture] != label)
    found = []
    for number in np.unique(numbers[numbers > 0]):
        patches = own[numbers == number]
        count = len(np.unique(table.picture[patches]))
        if count >= max(PICTURES, SHARE * pictures):
            found.append(_cluster(table, label, patches, count, pictures, others))
    return sorted(found, key=lambda cluster: -cluster.share * (0.1 + cluster.carries))


def _joined(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """The number of every patch's cluster; 0 of one that is in none, as one that has nothing of its own."""
    found = np.zeros(len(vectors), np.int64)
    known = np.flatnonzero(vectors.any(1))
    if len(known) < PICTURES:
        return found
    some = known[np.linspace(0, len(known) - 1, min(len(known), AT_MOST)).round().astype(int)]
    numbers: NDArray[np.int64] = fcluster(linkage(vectors[some], "average", metric="cosine"), ALIKE, "distance")
    if len(some) == len(known):
        found[known] = numbers
        return found
    middles = np.stack([_unit(vectors[some][numbers == number].mean(0)) for number in np.unique(numbers)])
    nearest = vectors @ middles.T
    return np.where(nearest.max(1) >= 1 - ALIKE, nearest.argmax(1) + 1, 0)


def _cluster(
    table: PatchTable, label: int, patches: NDArray[np.int64], count: int, pictures: int, others: NDArray[np.int64]
) -> Cluster:
    vectors = table.vectors[patches].astype(np.float32)
    middle = _unit(vectors.mean(0))
    near = vectors @ middle
    order = np.argsort(-near, kind="stable")
    place = np.median(table.centers[patches], axis=0)
    own, at_place = np.unique(table.picture[patches]), table.near(place)
    there = len(np.unique(table.picture[patches[at_place[patches]]]))
    chance = len(np.setdiff1d(table.picture[at_place], own)) / max(len(table) - len(own), 1)
    alike = others[table.vectors[others].astype(np.float32) @ middle >= np.percentile(near, EDGE)]
    rest = len(np.unique(table.picture[others])) or 1
    inside = table.inside[patches]
    return Cluster(
        label=label,
        patches=patches[order],
        pictures=count,
        share=count / pictures,
        carries=float(table.carries[patches].mean()),
        needed=float(table.needed[patches].mean()),
        place=(float(place[0]), float(place[1])),
        there=there / len(own),
        by_chance=chance,
        surprise=float(binom.logsf(there - 1, len(own), max(chance, 1e-9)) / np.log(10)),
        outside=None if np.isnan(inside).all() else float((inside[~np.isnan(inside)] < OFF).mean()),
        elsewhere=len(np.unique(table.picture[alike])) / rest,
    )


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = vector / max(float(np.linalg.norm(vector)), 1e-9)
    return scaled
