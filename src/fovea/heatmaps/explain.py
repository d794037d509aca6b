"""Where does a network look? One trunk pass per batch, any methods and targets on it, maps in the user's own pixels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any, TypeAlias, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from fovea import networks
from fovea.basics import BadChoice, BadPicture, announce, bounded, demand_kinds
from fovea.data import DataSet
from fovea.heatmaps import targets as targeting
from fovea.heatmaps.big import OVERVIEW, Closer, explain_big
from fovea.heatmaps.heatmap import Explained, HeatMaps, concat
from fovea.heatmaps.looking import ByMethod, Layer, Target, look_at, refuse_streams
from fovea.heatmaps.methods import ALL, DEFAULT, Method, MethodLike, chosen, find, names
from fovea.heatmaps.targets import Each
from fovea.heatmaps.windows import Viewed
from fovea.networks import Group, Inputs, Network, NetworkLike, groups
from fovea.pictures import MAX_PIXELS, BigPicture, Picture, tell_skipped
from fovea.results import Step, gathered, in_turn, opened

__all__ = ["Method", "MethodLike", "explain", "explain_batches", "find", "look_at"]

Methods: TypeAlias = list[MethodLike] | list[str] | tuple[MethodLike, ...]
BATCH = {"cpu": 16, "pictures": 64, "tensor": 256}  # on a GPU, of pictures to be read and of a tensor


class ExplainOptions(TypedDict, total=False):
    """What may be asked beside the method."""

    target: Target
    layer: Layer
    batch: int | None
    device: str | torch.device | None
    differentiable: bool
    max_pixels: int
    fit: str | None
    all: bool
    resolution: float | None


@overload
def explain(
    net: NetworkLike, pictures: Inputs, *, method: MethodLike = ..., **options: Unpack[ExplainOptions]
) -> HeatMaps: ...


@overload
def explain(net: NetworkLike, pictures: Inputs, *, method: Methods, **options: Unpack[ExplainOptions]) -> ByMethod: ...


def explain(  # a public door: what may be asked for is all here
    net: NetworkLike,
    pictures: Inputs,
    *,
    method: MethodLike | Methods = DEFAULT,
    target: Target = None,
    layer: Layer = None,
    batch: int | None = None,
    device: str | torch.device | None = None,
    differentiable: bool = False,
    max_pixels: int = MAX_PIXELS,
    fit: str | None = None,
    all: bool = False,
    resolution: float | None = None,
) -> HeatMaps | ByMethod:
    """Where the network looks for a target: one HeatMap per picture; by method name when several methods are given.

    `net`: a name, a module or a Network. `pictures`: paths, folders, globs, PIL pictures, H,W,3 arrays; or a tensor,
    taken as already transformed (C,H,W, N,C,H,W, or N,T,C,H,W for a network over frames). `method`: a name,
    `package.module:name`, a method of your own (fovea.heatmaps.methods says what it is), or "all": every one that
    applies to this network (`.refused` says why others do not). `target`: a class name or index, 'top1', 'top5',
    'output' (the whole output, for embeddings), 'pair' (pictures two by two: where are they alike), a callable, a list
    of these for every picture, or a tensor of class indices, one row per picture. By default the top class, or the
    whole output of an embedding. `fit`: how a picture of other proportions than the network's input comes in, 'crop',
    'squash' or 'whole' (Network.fitted says what is usual). `batch`: so many pictures at once; by default 16, on a GPU
    64, or 256 of a tensor, and fewer where its memory does not suffice. A picture that cannot be read is left out, with
    a warning and an entry in `.skipped`; if none can, the error is raised.

    A file too large to load is looked at as an overview, then in the regions that this finds, as closely as they fit
    into the network's input or at a `resolution` (1: every pixel); `all`: everywhere, at full resolution unless given.
    """
    demand_kinds(explain, locals(), but="method")
    network = networks.as_network(net, device)
    if fit is not None or not isinstance(pictures, Tensor):  # a tensor has been fitted already
        network = network.fitted(fit)
    alone = not isinstance(method, (list, tuple)) and method != ALL
    methods = chosen(method)
    parts, places, skipped = list[ByMethod](), list[int](), list[tuple[str, str]]()
    asked = Asked(network, methods, target, layer, differentiable, Closer(all, resolution))
    named, large = gathered(pictures, max_pixels)
    if any(large):
        return _joined(asked, _one_by_one(asked, named, large, batch), alone)
    found = asked.groups(named or pictures, batch, max_pixels)  # as they were when they were looked at

    def looked(group: Group) -> ByMethod | None:
        return None if group.batch is None else asked.maps(group, group.batch)

    whole = ((group, looked(group)) for group in found)  # batches of tensors are as the user likes them
    in_parts = networks.run_ahead(network, found, looked, asked.given)
    for group, part in whole if isinstance(pictures, Tensor) else in_parts:
        skipped += group.skipped
        if part is not None:
            parts.append(part)
            places += group.places
    return _joined(asked, (parts, places, skipped), alone)


Found = tuple[list[ByMethod], list[int], list[tuple[str, str]]]  # maps, the places of their pictures, what was skipped


def _joined(asked: "Asked", found: Found, alone: bool) -> HeatMaps | ByMethod:
    """All maps by method; where one was asked for, its."""
    parts, places, skipped = found
    tell_skipped(bool(parts), skipped, stacklevel=4)
    joined, network = ByMethod(asked.refused), asked.network
    for name in (found.name for found in asked.methods if found.name not in joined.refused):
        maps = concat([part[name] for part in parts], places)
        settings = network.settings(
            method=name, layer=maps.layer, input=networks.input_of(network), **asked.closer.asked
        )
        joined[name] = replace(maps, skipped=tuple(skipped), settings=settings)
    return next(iter(joined.values())) if alone else joined


def _one_by_one(asked: "Asked", pictures: Sequence[Picture], large: Sequence[bool], batch: int | None) -> Found:
    """Where some are too large to load."""
    parts, places, skipped = list[ByMethod](), list[int](), list[tuple[str, str]]()
    for place, (picture, big) in enumerate(zip(pictures, large, strict=True)):
        one = replace(asked, target=_rows(asked.target, [place], len(pictures)))
        try:
            if big:
                with opened(picture) as source:
                    parts.append(one.closely(picture, source, batch))
            else:
                (group,) = one.groups([picture], batch, picture.limit)
                if group.batch is None:
                    raise BadPicture(group.skipped[0][1])
                parts.append(one.maps(group, group.batch))
            places.append(place)
        except BadPicture as reason:
            skipped.append((picture.name, str(reason)))
    return parts, places, skipped


@dataclass(frozen=True)
class Asked:
    """What is asked of a network; `refused` are the methods that turned out not to apply, and why."""

    network: Network
    methods: Sequence[Method]
    target: Target
    layer: Layer
    differentiable: bool = False
    closer: Closer = OVERVIEW
    refused: dict[str, str] = field(default_factory=dict)

    def closely(self, picture: Picture, big: BigPicture, batch: int | None) -> ByMethod:
        """The maps of a file too large to load."""
        self.check()
        if self.differentiable:
            raise BadChoice(f"{picture.name} is read window by window, so its maps carry no gradient")
        left = [each for each in self.methods if each.name not in self.refused]
        viewed = Viewed(self.network, picture, big)
        return self._noted(explain_big(viewed, left, self.target, self.layer, self.closer, batch or BATCH["cpu"]))

    def check(self) -> None:
        refuse_streams(self.network)
        targeting.check(self.target, self.network)
        if not self.methods:
            raise BadChoice(f"no method was named (there are: {', '.join(names())})")

    @bounded
    def groups(self, pictures: Inputs | DataSet, batch: int | None, max_pixels: int) -> Iterator[Group]:
        """The pictures, so many at a time."""
        self.check()
        kind = "tensor" if isinstance(pictures, Tensor) else "pictures"
        size = batch if batch is not None else BATCH["cpu" if self.network.device.type == "cpu" else kind]
        if not self.pairs:
            return groups(self.network, pictures, size, max_pixels)
        return _in_pairs(groups(self.network.of_one_size(), pictures, size + size % 2, max_pixels))

    @property
    def given(self) -> list[Any]:
        """Functions that are called beside the network, some of them perhaps the user's."""
        return [*(found.run for found in self.methods), *targeting.callables(self.target)]

    @property
    def pairs(self) -> bool:
        return isinstance(self.target, str) and self.target == "pair"

    def maps(self, group: Group, tensors: Tensor) -> ByMethod:
        """The maps of a group; of its halves where a GPU has not the memory for the whole."""
        left = [each for each in self.methods if each.name not in self.refused]
        rows = _rows(self.target, group.places, group.total)
        try:
            maps, _ = look_at(self.network, tensors, group.shown, left, rows, self.layer, self.differentiable)
        except torch.OutOfMemoryError:
            half = len(tensors) // 4 * 2 if self.pairs else len(tensors) // 2
            if not half:
                raise
            torch.cuda.empty_cache()
            sides = [
                self.maps(replace(group, shown=group.shown[side], places=group.places[side]), tensors[side])
                for side in (slice(half), slice(half, None))
            ]
            maps = ByMethod(sides[1].refused)
            maps.update({name: concat([side[name] for side in sides]) for name in sides[1]})
        return self._noted(maps)

    def _noted(self, maps: ByMethod) -> ByMethod:
        self.refused.update(maps.refused)
        for name, reason in maps.refused.items():
            announce(f"{name} is left out: {reason}")
        return maps


@dataclass(frozen=True)
class ExplainStep(Step[Explained]):
    """Some pictures explained; `refused` are methods that were left out, and why."""

    refused: dict[str, str]


@bounded
def explain_batches(
    network: Network,
    pictures: Inputs | DataSet,
    methods: Sequence[Method],
    target: Target = None,
    layer: Layer = None,
    batch: int | None = None,
    max_pixels: int = MAX_PIXELS,
    closer: Closer = OVERVIEW,
) -> Iterator[ExplainStep]:
    """Batch after batch, so that a folder of any size needs the memory of one; files too large to load one by one."""
    asked = Asked(network, methods, target, layer, closer=closer)

    def explained(group: Group, tensors: Tensor) -> list[Explained]:
        return [Explained(heatmaps) for heatmaps in zip(*asked.maps(group, tensors).values(), strict=True)]

    def closely(picture: Picture, big: BigPicture) -> Explained:
        return Explained(tuple(heatmaps[0] for heatmaps in asked.closely(picture, big, batch).values()))

    def others(given: Inputs | DataSet) -> Iterator[Step[Explained]]:
        found = asked.groups(given, batch, max_pixels)
        return starmap(Step, networks.in_order(network, found, explained, asked.given))

    for step in in_turn(pictures, max_pixels, closely, others):
        yield ExplainStep(step.results, step.skipped, step.done, step.total, dict(asked.refused))


def _in_pairs(found: Iterable[Group]) -> Iterator[Group]:
    for group in found:
        if group.total % 2:
            raise BadChoice(f"target 'pair' takes pictures two by two; got {group.total}")
        if group.skipped:
            raise BadPicture(f"target 'pair' needs every picture: {group.skipped[0][1]}")
        yield group


def _rows(target: Target, places: list[int], total: int) -> Target:
    """The part of a per-picture target that belongs to these pictures."""
    if not isinstance(target, (Each, Tensor, np.ndarray)) or (not isinstance(target, Each) and target.ndim == 0):
        return target
    if not isinstance(target, Each) and torch.as_tensor(target).is_floating_point():  # boxes, which every picture has
        return target
    count = len(target.targets) if isinstance(target, Each) else len(target)
    if count != total:
        raise BadChoice(f"per-picture targets hold one row per picture; got {count} for {total} pictures")
    if isinstance(target, Each):
        return Each(tuple(target.targets[i] for i in places))
    return torch.as_tensor(target)[places]
