"""Weakly supervised localisation: are the boxes of a network's heatmaps right? (L2-CAF 4.1; Choe et al. 2020)."""

import multiprocessing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics.boxes import THRESHOLD_RULE
from fovea.basics.errors import BadChoice, BadPicture
from fovea.data import Box, DataSet, Sample
from fovea.heatmaps.explain import METHODS, Method, find, look_at
from fovea.measures import seeds
from fovea.measures.boxes import Localised, ious_of, scores
from fovea.measures.figures import Figures
from fovea.networks.matching import Matching, match_by_trying
from fovea.networks.network import Network
from fovea.networks.stream import batches, input_of, prepared, rank_of
from fovea.pictures.placement import Placement
from fovea.pictures.shown import Shown

Job = tuple[NDArray[np.float32], Placement, tuple[Box, ...]]  # a map's cells, where they lie, the true boxes
Drawn = tuple[NDArray[np.float64], NDArray[np.float64]]  # best IoUs by threshold: of the largest segment, of any
CHUNK = 16  # jobs that are handed over at a time; fewer are not worth a process
Key = TypeVar("Key", bound=Hashable)
TOLD = ("top1", "top1_loc", "gt_known")  # the figures with an interval over seeds
THRESHOLD = f"one for the whole set, the best of 0.01, 0.02, ... 0.99; {THRESHOLD_RULE}"


def measure(
    network: Network | Sequence[Network],
    data: DataSet,
    methods: Sequence[str | Method],
    batch: int = 16,
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 0,
) -> Figures:
    """One row of figures a method, of one network or of several side by side; pictures are decoded once for all.

    Maps are of the true class, as the boxes of GT-known and of a right prediction are; the class counts for top-1/5.
    Of several networks, those called the same but for a last -seed<N> share a row: means, intervals, and what they
    change beside the first network. `workers` processes draw the boxes; a script that asks for any starts from
    `if __name__ == "__main__":`.
    """
    networks = [network] if isinstance(network, Network) else list(network)
    names, own = names_of(networks), named(methods)
    with_boxes = boxed(data)
    skipped: list[tuple[str, str]] = []
    looked = [_Looked(one) for one in networks]
    maps: dict[tuple[str, str], list[Job]] = {(name, one.name): [] for name in names for one in own}
    total = 2 * len(with_boxes)  # every picture is looked at, then its boxes are drawn
    done = 0
    for samples, images in batches(with_boxes, batch, skipped):
        ready = Prepared(samples, images)
        for name, one in zip(names, looked, strict=True):
            tensors, shown, places = ready.of(one.network)
            labels = one.labels(with_boxes, samples, tensors)
            seen, output = look_at(one.network, tensors, shown, own, labels)
            one.width = output.shape[1]
            one.ranks.append(rank_of(output, labels))
            for label, found in seen.items():
                maps[name, label] += [(found.map(i), places[i], sample.boxes) for i, sample in enumerate(samples)]
        done += len(samples)
        progress(done + len(skipped), total)
    if not done:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
    drawn = localised(maps, lambda now, of: progress(total // 2 + now * (total // 2) // of, total), workers)
    rows = []
    for name, one in zip(names, looked, strict=True):
        rank = np.concatenate(one.ranks)
        for method in own:
            figures = scores(drawn[name, method.name], rank < 1, rank < 5 if one.width >= 5 else None)
            rows.append({"net": name, "method": method.name, "images": len(rank), **figures})
    several = len(networks) > 1
    settings = {
        "data": data.name,
        "input": ", ".join(dict.fromkeys(map(input_of, networks))),
        "labels": f"matched by {looked[0].how}",
        "threshold": THRESHOLD,
        "correct": "IoU of at least 0.5 with any true box",
        "max_box_acc_v2": "mean over IoU 0.3, 0.5, 0.7, each at its best threshold; the best of all segments counts",
        **(seeds.told(names) if several else {}),
        "skipped": len(skipped),
    }
    return Figures("wsol", settings, seeds.together(rows, TOLD) if several else rows, skipped)


@dataclass
class _Looked:
    """What has been seen by one network."""

    network: Network
    ranks: list[NDArray[np.int64]] = field(default_factory=list)
    matching: Matching | None = None
    width: int = 0

    def labels(self, data: DataSet, samples: Sequence[Sample], tensors: Tensor) -> Tensor:
        self.matching = self.matching or match_by_trying(self.network, data, tensors)
        return self.matching.of(samples)

    @property
    def how(self) -> str:
        return "" if self.matching is None else self.matching.how


class Prepared:
    """A batch as networks take it, worked out once for those that take it alike."""

    def __init__(self, samples: Sequence[Sample], images: Sequence[Image.Image]) -> None:
        self.samples, self.images = samples, images
        self.ready: list[tuple[Any, tuple[Tensor, list[Shown], list[Placement]]]] = []

    def of(self, network: Network) -> tuple[Tensor, list[Shown], list[Placement]]:
        key = network.transform, network.dtype, network.device
        found = next((ready for own, ready in self.ready if own == key), None)
        if found is None:
            found = prepared(network, self.samples, self.images)
            self.ready.append((key, found))
        return found


def names_of(networks: Sequence[Network]) -> list[str]:
    """What each network is called, which tells it from the others."""
    names = [one.name or "network" for one in networks]
    if not names or len(set(names)) < len(names):
        raise BadChoice(f"name one network or several, each by another name; got {names}")
    return names


def boxed(data: DataSet) -> DataSet:
    """The pictures that have boxes; at least one."""
    found = data.with_boxes()
    if not len(found):
        raise BadChoice(f"{data.name} has no boxes to measure against (a folder takes them from boxes.csv: file,boxes)")
    return found


def named(methods: Sequence[str | Method]) -> list[Method]:
    """One method or more."""
    if not methods:
        raise BadChoice(f"no method was named (there are: {', '.join(METHODS)})")
    return [find(one) for one in methods]


def localised(
    maps: Mapping[Key, Sequence[Job]],
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 0,
) -> dict[Key, Localised]:
    """The boxes of every method's maps against the true ones, worked out here or by so many processes."""
    total, done = sum(map(len, maps.values())), 0
    found: dict[Key, Localised] = {}
    with _mapping(min(workers, total // CHUNK)) as drawn:
        for name, jobs in maps.items():
            results = []
            for one in drawn(jobs):
                results.append(one)
                done += 1
                progress(done, total)
            found[name] = Localised(np.stack([one for one, _ in results]), np.stack([two for _, two in results]))
    return found


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[[Sequence[Job]], Iterator[Drawn]]]:
    """What draws the boxes of jobs."""
    if workers < 1:
        yield lambda jobs: starmap(ious_of, jobs)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        yield lambda jobs: pool.map(ious_of, *zip(*jobs, strict=True), chunksize=CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops this does not wait for maps no longer wanted
