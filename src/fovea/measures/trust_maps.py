"""The maps of every method that a network allows, from one pass through its trunk, and why it does not allow others."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice, FoveaError, Progress
from fovea.data import DataSet, Sample
from fovea.heatmaps import COPIES, HeatMaps, Method, last_to_run, look_at, randomized_copy, rank_correlation
from fovea.heatmaps.explain import explain
from fovea.measures.curves import KINDS, area_under, best, places, under_masks
from fovea.measures.localized import Job, cells_of
from fovea.measures.random_control import RANDOM
from fovea.measures.runner import Input, Run
from fovea.measures.timing import Call, compare, forward, seconds
from fovea.networks import Matching, Network, filling, groups
from fovea.pictures import Shown

BATCH = {"cpu": 4, "cuda": 64}  # masked pictures at a time: what a processor's memory is quickest with
CURVES = ("insertion", "deletion")
Key = tuple[str, str]  # a method and a kind of curve
Jobs = dict[str, list[Job]]  # by method
Skipped = dict[str, str]  # names of pictures, and why
SLOW = 20.0  # bare forwards from which on one measurement of a time is enough
ROUNDS = 7


@dataclass
class Looking:
    """A network, the methods that give maps of it, and why the others do not."""

    network: Network
    methods: list[Method]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [method.name for method in self.methods]

    @property
    def target(self) -> str:
        return "output" if self.network.labels is None else "top1"

    def __call__(self, tensors: Tensor, shown: Sequence[Shown], target: Any) -> tuple[dict[str, HeatMaps], Tensor]:
        """All methods from one pass through the trunk; one that refuses is left out from then on."""
        maps, output = look_at(self.network, tensors, shown, self.methods, target)
        self.refused |= maps.refused
        self.methods = [method for method in self.methods if method.name not in self.refused]
        if self.names == [RANDOM]:
            raise BadChoice("; ".join(dict.fromkeys(self.refused.values())))
        return maps, output


def mapped(looking: Looking, run: Run, batch: int, skipped: Skipped, progress: Progress) -> tuple[Jobs, str]:
    """Every method's maps with the true boxes, and how the data's classes were matched: of the true class, or of the
    one that the network predicts where it does not know that."""
    matching: Matching | None = None
    data = run.data.with_boxes()
    maps: dict[str, list[Job]] = {name: [] for name in looking.names}
    done = 0
    for samples, (tensors, shown, where) in _inputs(looking, data, batch, skipped):
        target: Any = looking.target
        if looking.network.labels is not None and (matching := matching or run.known_classes(tensors)) is not None:
            target = matching.of(samples)
        seen, _ = looking(tensors, shown, target)
        for name, found in seen.items():
            cells_of(found)  # which refuses those that have no rows and columns
            maps[name] += [(found.smoothed(i), where[i], sample.boxes) for i, sample in enumerate(samples)]
        done += len(samples)
        progress(done + len(skipped), len(data))
    return (maps, matching.how if matching else "") if done else ({}, "")


def _inputs(looking: Looking, data: DataSet, batch: int, skipped: Skipped) -> Iterator[tuple[list[Sample], Input]]:
    for group in groups(looking.network, data, batch):
        skipped.update(group.skipped)
        if group.batch is not None:
            yield group.of(data.samples), Input.of(group)


@dataclass(frozen=True)
class Part:
    """A batch of pictures with the maps of every method, and what their copies are asked about."""

    tensors: Tensor  # N,C,H,W
    shown: list[Shown]
    target: Any  # the classes explained, or "output"
    output: Tensor  # N,D
    maps: dict[str, Tensor]  # N,h,w a method

    def __len__(self) -> int:
        return len(self.shown)

    def scores(self, network: Network, masks: Tensor, fill: Tensor) -> NDArray[np.float64]:
        """Of every picture under every mask (N,S,H,W): the class's probability, or how like an embedding is to the
        whole picture's (N,S)."""
        batch, found = BATCH.get(masks.device.type, BATCH["cpu"]), []
        for output, own in under_masks(network, self.tensors, masks, fill, batch):
            if isinstance(self.target, Tensor):
                score = output.float().softmax(1).gather(1, self.target[own].unsqueeze(1)).squeeze(1)
            else:
                score = F.cosine_similarity(output.flatten(1).float(), self.output[own].flatten(1).float())
            found.append(score.double().cpu().numpy())
        return np.concatenate(found).reshape(masks.shape[:2])


def parts_of(looking: Looking, data: DataSet, batch: int, skipped: dict[str, str]) -> Iterator[Part]:
    for samples, (tensors, shown, _) in _inputs(looking, data, batch, skipped):
        if tensors.ndim != 4:
            raise BadChoice(f"trust is measured on inputs N,C,H,W; this network takes {tuple(tensors.shape)}")
        seen, output = looking(tensors, shown, looking.target)
        cells = {name: cells_of(found) for name, found in seen.items()}
        good = output.flatten(1).isfinite().all(1)
        for i in (~good).nonzero()[:, 0].tolist():
            skipped[samples[i].name] = "the network's output is not a number"
        if good.any():
            target = output[good].argmax(1) if looking.target == "top1" else "output"
            kept = [one for one, is_good in zip(shown, good.tolist(), strict=True) if is_good]
            maps = {name: values[good] for name, values in cells.items()}
            yield Part(tensors[good], kept, target, output[good], maps)


def same_maps(looking: Looking, parts: Sequence[Part]) -> dict[str, str | None]:
    """For every method the first before it whose maps are the same, as those of one whole output are."""
    whole = {name: torch.cat([part.maps[name].flatten(1) for part in parts]) for name in looking.names}
    unit = {name: maps / maps.abs().amax(1, keepdim=True).clamp(min=1e-12) for name, maps in whole.items()}

    def alike(name: str, other: str) -> bool:
        return unit[name].shape == unit[other].shape and torch.allclose(unit[other], unit[name], atol=1e-4)

    names = looking.names
    return {name: next((other for other in names[:i] if alike(name, other)), None) for i, name in enumerate(names)}


def areas(looking: Looking, parts: Sequence[Part], steps: int, progress: Progress) -> dict[Key, NDArray[np.float64]]:
    """The area under every picture's curve, by method and kind."""
    shares = np.linspace(0, 1, steps + 1)
    found: dict[Key, list[NDArray[np.float64]]] = {(name, kind): [] for name in looking.names for kind in CURVES}
    done, total = 0, sum(map(len, parts)) * len(found)
    for part in parts:
        empty = torch.zeros_like(part.tensors[:, :1], dtype=torch.bool)  # N,1,H,W
        orders = {name: places(part.maps[name], *part.tensors.shape[2:]) for name in looking.names}
        everything = part.scores(looking.network, ~empty, torch.zeros(()))
        for kind in CURVES:
            keeps, fill = KINDS[kind].keeps, filling(KINDS[kind].fill, looking.network, part.tensors)
            nothing = part.scores(looking.network, empty, fill)
            first, last = (nothing, everything) if keeps else (everything, nothing)
            for name, order in orders.items():
                top = best(order, shares[1:-1])
                inner = part.scores(looking.network, top if keeps else ~top, fill)
                curves = np.concatenate([first, inner, last], 1)  # N,S
                found[name, kind].append(area_under(curves, shares))
                done += len(part)
                progress(done, total)
    return {key: np.concatenate(each) for key, each in found.items()}


def resemblance(looking: Looking, parts: Sequence[Part], progress: Progress) -> dict[tuple[str, str], list[float]]:
    """How alike every method's maps are to those of copies with random weights, by method and what was randomized."""
    network = looking.network
    last = last_to_run(network, parts[0].tensors[:1])
    found: dict[tuple[str, str], list[float]] = {(name, what): [] for name in looking.names for what, _ in COPIES}
    done, total = 0, sum(map(len, parts)) * len(COPIES)
    for what, seed in COPIES:
        copied = Looking(randomized_copy(network, what, seed, last), looking.methods)
        for part in parts:
            try:
                seen, _ = copied(part.tensors, part.shown, part.target)
            except FoveaError:  # random weights give nothing to look at
                seen = {}
            for name, maps in seen.items():
                true = part.maps[name].float().cpu().numpy()
                found[name, what] += [rank_correlation(true[i], maps.map(i)) for i in range(len(part))]
            done += len(part)
            progress(done, total)
    return found


def times_of(looking: Looking, picture: Tensor, progress: Progress) -> dict[str, float]:
    """Every method's time for one picture, in bare forwards of the same minute."""
    total, done = len(looking.methods) * ROUNDS * 2, itertools.count(1)

    def waited(call: Call) -> None:
        seconds(call, picture.device)  # what a GPU was asked for is done
        progress(min(next(done), total), total)

    bare_call: Call = partial(waited, forward(looking.network, picture))
    explained = partial(explain, looking.network, picture, target=looking.target)
    calls: dict[Key, Call] = {}
    for method in looking.methods:
        calls["", method.name] = partial(waited, partial(explained, method=method))
    bare = min(seconds(bare_call) for _ in range(3))
    once = {key: seconds(call) / bare for key, call in calls.items()}
    quick = {key: call for key, call in calls.items() if once[key] <= SLOW}  # one that iterates is known well enough
    often = {key: ratio for key, (ratio, _) in compare(bare_call, quick, ROUNDS).items()}
    progress(total, total)
    return {method.name: (once | often)["", method.name] for method in looking.methods}
