"""Weakly supervised localisation: are the boxes of a network's heatmaps right? (L2-CAF 4.1; Choe et al. 2020)."""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from fovea.data import Box, DataSet
from fovea.errors import BadChoice, BadPicture
from fovea.explaining import METHODS, Method, find, look_at
from fovea.measure.boxes import Localised, ious_of, scores
from fovea.measure.figures import Figures
from fovea.measure.matching import Matching, match_by_trying
from fovea.measure.stream import batches, input_of, prepared, rank_of
from fovea.network import Network
from fovea.placement import Placement
from fovea.regions import THRESHOLD_RULE

Job = tuple[NDArray[np.float32], Placement, tuple[Box, ...]]  # a map's cells, where they lie, the true boxes
Drawn = tuple[NDArray[np.float64], NDArray[np.float64]]  # best IoUs by threshold: of the largest segment, of any
CHUNK = 16  # jobs that are handed over at a time; fewer are not worth a process
THRESHOLD = f"one for the whole set, the best of 0.01, 0.02, ... 0.99; {THRESHOLD_RULE}"


def measure(
    network: Network,
    data: DataSet,
    methods: Sequence[str | Method],
    batch: int = 16,
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 0,
) -> Figures:
    """One row of figures a method.

    Maps are of the true class, as the boxes of GT-known and of a right prediction are; the class counts for top-1/5.
    `workers` processes draw the boxes; a script that asks for any starts from `if __name__ == "__main__":`.
    """
    own = named(methods)
    with_boxes = data.with_boxes()
    if not len(with_boxes):
        raise BadChoice(f"{data.name} has no boxes to measure against (a folder takes them from boxes.csv: file,boxes)")
    total = 2 * len(with_boxes)  # every picture is looked at, then its boxes are drawn
    skipped: list[tuple[str, str]] = []
    ranks: list[NDArray[np.int64]] = []
    maps: dict[str, list[Job]] = {one.name: [] for one in own}
    matching: Matching | None = None
    width = 0
    for samples, images in batches(with_boxes, batch, skipped):
        tensors, shown, places = prepared(network, samples, images)
        matching = matching or match_by_trying(network, with_boxes, tensors)
        labels = matching.of(samples)
        seen, output = look_at(network, tensors, shown, own, labels)
        width = output.shape[1]
        ranks.append(rank_of(output, labels))
        for name, found in seen.items():
            maps[name] += [(found.map(i), places[i], sample.boxes) for i, sample in enumerate(samples)]
        progress(sum(map(len, ranks)) + len(skipped), total)
    if matching is None:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
    rank, rows = np.concatenate(ranks), []
    drawn = localised(maps, lambda done, of: progress(total // 2 + done * (total // 2) // of, total), workers)
    for name, boxes in drawn.items():
        figures = scores(boxes, rank < 1, rank < 5 if width >= 5 else None)
        rows.append({"net": network.name or "network", "method": name, "images": len(rank), **figures})
    settings = {
        "data": data.name,
        "input": input_of(network),
        "labels": f"matched by {matching.how}",
        "threshold": THRESHOLD,
        "correct": "IoU of at least 0.5 with any true box",
        "max_box_acc_v2": "mean over IoU 0.3, 0.5, 0.7, each at its best threshold; the best of all segments counts",
        "skipped": len(skipped),
    }
    return Figures("wsol", settings, rows, skipped)


def named(methods: Sequence[str | Method]) -> list[Method]:
    """One method or more."""
    if not methods:
        raise BadChoice(f"no method was named (there are: {', '.join(METHODS)})")
    return [find(one) for one in methods]


def localised(
    maps: Mapping[str, Sequence[Job]],
    progress: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 0,
) -> dict[str, Localised]:
    """The boxes of every method's maps against the true ones, worked out here or by so many processes."""
    total, done = sum(map(len, maps.values())), 0
    found: dict[str, Localised] = {}
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
