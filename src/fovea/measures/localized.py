"""The boxes of heatmaps beside the true ones: what every measure of localization does with its networks."""

import multiprocessing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics import THRESHOLD_RULE, BadChoice, Engine, Progress, box_of, in_order, iou, quiet
from fovea.data import Box, DataSet, Sample
from fovea.heatmaps import HeatMaps, Method, Target, chosen, look_at, names
from fovea.measures.boxes import Best, Localized, ious_of
from fovea.measures.figures import Figures
from fovea.measures.runner import Input, Run
from fovea.networks import Network, blank, device_of, groups_for, parts_of, placed
from fovea.pictures import Placement, on_pixels
from fovea.results import drawing, marks

Job = tuple[NDArray[np.float32], Placement, tuple[Box, ...]]  # a map's cells, where they lie, the true boxes

EXAMPLES, DRAWN = 12, 320  # pictures that are drawn, and their longer side
CHUNK = 16  # jobs that are handed over at a time; fewer are not worth a process
Key = TypeVar("Key", bound=Hashable)
Pair = tuple[str, str]  # names of a network and of a method
THRESHOLD = f"one for the whole set, the best of 0.01, 0.02, ... 0.99; {THRESHOLD_RULE}"


class Looker(Protocol):
    """A network whose heatmaps are drawn: what they are of, and what is kept of its outputs."""

    network: Network

    def target(self, samples: Sequence[Sample], batch: Tensor) -> Target: ...

    def keep(self, samples: Sequence[Sample], output: Tensor) -> None: ...


def look(
    run: Run, lookers: Mapping[str, Looker], methods: Sequence[Method], batch: int, clip: bool = True
) -> tuple[dict[Pair, Localized], "Examples"]:
    """How the boxes of every method's heatmaps agree with the true ones, by names of network and method, and a few
    pictures to draw; methods that do not apply are told in `run.refused`. Every picture is looked at by all networks,
    then its boxes are drawn: half of the progress each."""
    maps: dict[Pair, list[Job]] = {}
    samples: list[Sample] = []
    looking = Looking(lookers, [replace(method, optional=True) for method in methods], batch, clip)
    half, some = len(run.data), False
    run.progress(0, 2 * half)  # from here on it is timed
    for part in looking.spread(run.data, run.engine):
        run.skipped += part.skipped
        run.progress(part.done, 2 * half)
        samples += part.samples
        for name, (output, by_method, refused) in part.looks.items():
            some = True
            lookers[name].keep(part.samples, output)
            run.refused |= {f"{method} of {name}": why for method, why in refused.items()}
            for method, jobs in by_method.items():
                maps.setdefault((name, method), []).extend(jobs)
    if not some:
        run.refuse_empty()
    found = localized(maps, lambda done, total: run.progress(half + done * half // total, 2 * half), run.workers)
    few = np.linspace(0, len(samples) - 1, min(EXAMPLES, len(samples))).round().astype(int).tolist()
    chosen = {pair: [jobs[i] for i in few] for pair, jobs in maps.items() if len(jobs) == len(samples)}
    return found, Examples([samples[i] for i in few], chosen, {pair: found[pair].threshold for pair in chosen})


@dataclass(frozen=True)
class Examples:
    """A few pictures, spread over the set, with their maps by names of network and method, and the thresholds of their
    boxes."""

    samples: list[Sample]
    maps: Mapping[Pair, list[Job]]
    thresholds: Mapping[Pair, float]

    def rows(self) -> Iterator[list[Image.Image]]:
        """Each picture with its true boxes in white, then its maps with the box that was found in orange."""
        for place, sample in enumerate(self.samples):
            image = sample.read()
            plain = drawing.enlarged(image, DRAWN)
            tiles = [_titled(plain, sample, image.size, Path(sample.name).name)]
            for pair, jobs in self.maps.items():
                cells, placement, truth = jobs[place]
                values = on_pixels(cells.clip(0), placement)
                box, drawn = box_of(values, self.thresholds[pair]).tolist(), drawing.blend(image, values, size=DRAWN)
                marks.outline(drawn, marks.scaled(box, image.size, drawn.size), marks.INKS[0], 3, 1)
                tiles.append(_titled(drawn, sample, image.size, " ".join(pair), f"IoU {iou([box], truth).max():.2f}"))
            yield tiles


def draw(found: Figures) -> Image.Image:
    """One row per picture: true boxes, then those of each network and method (L2-CAF, Fig. 7)."""
    return drawing.grid(list(found.extra.rows()))


def _titled(drawn: Image.Image, sample: Sample, size: tuple[int, int], title: str, words: str = "") -> Image.Image:
    for box in sample.boxes:
        marks.draw_box(drawn, box, size)
    return drawing.titled(drawn, title, words)


Seen = tuple[Tensor, dict[str, list[Job]], dict[str, str]]  # outputs, maps by method, methods that were refused


@dataclass(frozen=True)
class Part:
    """Some pictures, and what every looker makes of them."""

    samples: list[Sample]
    looks: dict[str, Seen]
    skipped: list[tuple[str, str]]
    done: int


@dataclass(frozen=True)
class Looking:
    """What looks at pictures, here or wherever a worker is."""

    lookers: Mapping[str, Looker]
    methods: Sequence[Method]
    batch: int
    clip: bool  # what is below 0 has no box; else a map begins at its least value

    def spread(self, data: DataSet, engine: Engine) -> Iterator[Part]:
        if engine.here:
            yield from self.parts(data)
            return
        for looker in self.lookers.values():  # which then know the data's classes, and so do those of the workers
            looker.target(data.samples[:1], blank(looker.network))
        done = 0
        for parts in in_order(engine.map(self.make, list(enumerate(parts_of(data))))):
            yield from (replace(part, done=done + part.done) for part in parts)
            done += parts[-1].done

    def make(self) -> Callable[[tuple[int, DataSet]], tuple[int, list[Part]]]:
        for looker in self.lookers.values():
            placed(looker.network, device_of("auto"))
        return lambda part: (part[0], list(self.parts(part[1])))

    def parts(self, data: DataSet) -> Iterator[Part]:
        networks = [looker.network for looker in self.lookers.values()]
        for groups in groups_for(networks, data, self.batch):
            first, looks = groups[0], dict[str, Seen]()
            samples = first.of(data.samples)
            for (name, looker), group in zip(self.lookers.items(), groups, strict=True):
                if group.batch is not None:
                    looks[name] = self._look(looker, Input.of(group), samples)
            yield Part(samples, looks, first.skipped, first.done)

    def _look(self, looker: Looker, given: Input, samples: Sequence[Sample]) -> Seen:
        target = looker.target(samples, given.tensors)
        heatmaps, output = look_at(looker.network, given.tensors, given.shown, self.methods, target, clip=self.clip)
        maps = {
            method: [
                (heatmap.smoothed(i, clip=self.clip), given.places[i], sample.boxes) for i, sample in enumerate(samples)
            ]
            for method, heatmap in heatmaps.items()
        }
        return output.detach().cpu(), maps, dict(heatmaps.refused)


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
