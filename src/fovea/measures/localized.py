"""The boxes of heatmaps beside the true ones: what every measure of localization does with its networks."""

import multiprocessing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import starmap
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import THRESHOLD_RULE, BadChoice, Progress, quiet
from fovea.data import Box, Sample
from fovea.heatmaps import HeatMaps, Method, Target, chosen, look_at, names
from fovea.measures.boxes import Best, Localized, ious_of
from fovea.measures.runner import Run
from fovea.networks import Network
from fovea.pictures import Placement

Job = tuple[NDArray[np.float32], Placement, tuple[Box, ...]]  # a map's cells, where they lie, the true boxes

CHUNK = 16  # jobs that are handed over at a time; fewer are not worth a process
Key = TypeVar("Key", bound=Hashable)
Pair = tuple[str, str]  # names of a network and of a method
THRESHOLD = f"one for the whole set, the best of 0.01, 0.02, ... 0.99; {THRESHOLD_RULE}"


class Looker(Protocol):
    """A network whose heatmaps are drawn: what they are of, and what is kept of its outputs."""

    network: Network

    def target(self, samples: Sequence[Sample], batch: Tensor) -> Target: ...

    def keep(self, samples: Sequence[Sample], output: Tensor) -> None: ...


def look(run: Run, lookers: Mapping[str, Looker], methods: Sequence[Method], batch: int) -> dict[Pair, Localized]:
    """How the boxes of every method's heatmaps agree with the true ones, by names of network and method; methods that
    do not apply are told in `run.refused`. Every picture is looked at by all networks, then its boxes are drawn: half
    of the progress each."""
    maps: dict[Pair, list[Job]] = {}
    methods = [replace(method, optional=True) for method in methods]
    half = len(run.data)
    for samples, inputs in run.inputs(batch, [looker.network for looker in lookers.values()], parts=2):
        for (name, looker), (tensors, shown, places) in zip(lookers.items(), inputs, strict=True):
            heatmaps, output = look_at(looker.network, tensors, shown, methods, looker.target(samples, tensors))
            looker.keep(samples, output)
            run.refused |= {f"{method} of {name}": why for method, why in heatmaps.refused.items()}
            for method, heatmap in heatmaps.items():
                own = maps.setdefault((name, method), [])
                own += [(heatmap.smoothed(i), places[i], sample.boxes) for i, sample in enumerate(samples)]
    return localized(maps, lambda done, total: run.progress(half + done * half // total, 2 * half), run.workers)


def cells_of(maps: HeatMaps) -> Tensor:
    """Those of the one target that there is, N,h,w; refused where they cannot be laid over a picture."""
    if len(maps.grid) != 2 or maps.frames:
        raise BadChoice(f"maps must have rows and columns to be laid over a picture; {maps.layer} has {maps.grid}")
    return maps.values[:, 0].detach()


def named(methods: Sequence[str | Method]) -> list[Method]:
    """One method or more."""
    if not methods:
        raise BadChoice(f"no method was named (there are: {', '.join(names())})")
    return chosen([*methods])


def localized(maps: Mapping[Key, Sequence[Job]], progress: Progress = quiet, workers: int = 0) -> dict[Key, Localized]:
    """The boxes of every method's maps against the true ones, worked out here or by so many processes."""
    total, done = sum(map(len, maps.values())), 0
    found: dict[Key, Localized] = {}
    with _mapping(min(workers, total // CHUNK)) as drawn:
        for name, jobs in maps.items():
            results = []
            for one in drawn(jobs):
                results.append(one)
                done += 1
                progress(done, total)
            found[name] = Localized(np.stack([one for one, _ in results]), np.stack([two for _, two in results]))
    return found


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[[Sequence[Job]], Iterator[Best]]]:
    """What draws the boxes of jobs."""
    if workers < 1:
        yield lambda jobs: starmap(ious_of, jobs)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        yield lambda jobs: pool.map(ious_of, *zip(*jobs, strict=True), chunksize=CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops this does not wait for maps no longer wanted
