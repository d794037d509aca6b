"""The maps of every method that a network allows, from one pass through its trunk, and why it does not allow others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.basics.errors import BadChoice, FoveaError
from fovea.data import DataSet
from fovea.heatmaps.explain import Method, look_at
from fovea.heatmaps.heatmap import HeatMaps
from fovea.measures.localized import Job
from fovea.measures.random_control import RANDOM
from fovea.networks.matching import Matching, match_by_trying
from fovea.networks.network import Network
from fovea.networks.stream import batches, prepared
from fovea.pictures.shown import Shown

Progress = Callable[[int, int], None]
Score = Callable[[Tensor, Tensor], Tensor]  # outputs, and which picture each is of, to a number each


@dataclass
class Looking:
    """A network, the methods that give maps of it, and why the others do not."""

    network: Network
    methods: list[Method]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.methods]

    @property
    def target(self) -> str:
        return "output" if self.network.labels is None else "top1"

    def __call__(self, tensors: Tensor, shown: Sequence[Shown], target: Any) -> tuple[dict[str, HeatMaps], Tensor]:
        """All methods from one pass through the trunk; one that refuses is left out from then on."""
        try:
            return look_at(self.network, tensors, shown, self.methods, target)
        except FoveaError:
            reasons = {one.name: self._refusal(one, tensors, shown, target) for one in self.methods}
        if None not in [reasons[name] for name in reasons if name != RANDOM]:
            raise BadChoice("; ".join(dict.fromkeys(reason for reason in reasons.values() if reason)))
        self.refused |= {name: reason for name, reason in reasons.items() if reason}
        self.methods = [one for one in self.methods if one.name not in self.refused]
        return look_at(self.network, tensors, shown, self.methods, target)

    def _refusal(self, method: Method, tensors: Tensor, shown: Sequence[Shown], target: Any) -> str | None:
        try:
            look_at(self.network, tensors, shown, [method], target)
        except FoveaError as reason:
            return str(reason)
        return None


def mapped(
    looking: Looking, data: DataSet, batch: int, skipped: dict[str, str], progress: Progress
) -> tuple[dict[str, list[Job]], str]:
    """Every method's maps with the true boxes, and how the data's classes were matched."""
    matching: Matching | None = None
    maps: dict[str, list[Job]] = {name: [] for name in looking.names}
    done = 0
    for samples, images in _read(data, batch, skipped):
        tensors, shown, where = prepared(looking.network, samples, images)
        target: Any = "output"
        if looking.network.labels is not None:
            matching = matching or match_by_trying(looking.network, data, tensors)
            target = matching.of(samples)
        seen, _ = looking(tensors, shown, target)
        for name, found in seen.items():
            _need_rows_and_columns(found)
            maps[name] += [(found.map(i), where[i], sample.boxes) for i, sample in enumerate(samples)]
        done += len(samples)
        progress(done + len(skipped), len(data))
    return (maps, matching.how if matching else "") if done else ({}, "")


def _read(data: DataSet, batch: int, skipped: dict[str, str]) -> Iterator[Any]:
    unread: list[tuple[str, str]] = []
    for one in batches(data, batch, unread):
        skipped.update(unread)
        yield one
    skipped.update(unread)


def _need_rows_and_columns(seen: HeatMaps) -> None:
    if len(seen.grid) != 2 or seen.frames:
        raise BadChoice(f"maps must have rows and columns to be laid over a picture; {seen.layer} has {seen.grid}")


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

    def score(self) -> Score:
        """What the curves follow: the class's probability, or how like an embedding is to the whole picture's."""
        if isinstance(self.target, Tensor):
            classes = self.target
            return lambda output, own: output.float().softmax(1).gather(1, classes[own].unsqueeze(1)).squeeze(1)
        whole = self.output.flatten(1).float()
        return lambda output, own: F.cosine_similarity(output.flatten(1).float(), whole[own])


def parts_of(looking: Looking, data: DataSet, batch: int, skipped: dict[str, str]) -> Iterator[Part]:
    for samples, images in _read(data, batch, skipped):
        tensors, shown, _ = prepared(looking.network, samples, images)
        if tensors.ndim != 4:
            raise BadChoice(f"trust is measured on inputs N,C,H,W; this network takes {tuple(tensors.shape)}")
        seen, output = looking(tensors, shown, looking.target)
        for found in seen.values():
            _need_rows_and_columns(found)
        good = output.flatten(1).isfinite().all(1)
        for i in (~good).nonzero()[:, 0].tolist():
            skipped[samples[i].name] = "the network's output is not a number"
        if good.any():
            target = output[good].argmax(1) if looking.target == "top1" else "output"
            kept = [one for one, is_good in zip(shown, good.tolist(), strict=True) if is_good]
            maps = {name: found.values[:, 0].detach()[good] for name, found in seen.items()}
            yield Part(tensors[good], kept, target, output[good], maps)


def same_maps(looking: Looking, parts: Sequence[Part]) -> dict[str, str | None]:
    """For every method the first before it whose maps are the same, as those of one whole output are."""
    whole = {name: torch.cat([part.maps[name].flatten(1) for part in parts]) for name in looking.names}
    unit = {name: maps / maps.abs().amax(1, keepdim=True).clamp(min=1e-12) for name, maps in whole.items()}
    return {
        name: next((other for other in looking.names[:i] if torch.allclose(unit[other], unit[name], atol=1e-4)), None)
        for i, name in enumerate(looking.names)
    }
