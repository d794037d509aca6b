"""Where does a network look? One trunk pass per batch, any methods and targets on it, maps in the user's own pixels."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, cast, overload

import numpy as np
import torch
from torch import Tensor, nn

from fovea import networks
from fovea.basics import BadChoice, BadPicture, DoesNotApply, Later, announce, bounded, demand_kinds
from fovea.data import DataSet
from fovea.heatmaps import targets as targeting
from fovea.heatmaps.cost import announce_cost
from fovea.heatmaps.diagnosis import Words, diagnose, ends_of
from fovea.heatmaps.fused import fused
from fovea.heatmaps.heatmap import Explained, HeatMaps, concat
from fovea.heatmaps.look import Finding, Look, finite_rows, mark, without_lost
from fovea.heatmaps.methods import ALL, DEFAULT, Method, MethodLike, chosen, find, names
from fovea.heatmaps.targets import Aim, Each
from fovea.models.erasing import ACoL
from fovea.networks import Group, Inputs, Network, NetworkLike, Reader, groups, is_far
from fovea.networks.cutting import Cut, Opened
from fovea.pictures import MAX_PIXELS, Shown, tell_skipped
from fovea.results import Step

__all__ = ["Method", "MethodLike", "explain", "explain_batches", "find", "look_at", "look_into"]

Target: TypeAlias = targeting.Given | Each
Methods: TypeAlias = list[MethodLike] | list[str] | tuple[MethodLike, ...]
Layer: TypeAlias = str | nn.Module | None
BATCH = {"cpu": 16, "pictures": 64, "tensor": 256}  # on a GPU, of pictures to be read and of a tensor


class ByMethod(dict[str, HeatMaps]):
    """HeatMaps by method name; `refused` says why some of all methods do not apply to the network."""

    def __init__(self, refused: dict[str, str] | None = None) -> None:
        super().__init__()
        self.refused = refused if refused is not None else {}

    @contextmanager
    def unless_refused(self, method: Method) -> Iterator[None]:
        """Goes on without a method that does not apply, if it was not named."""
        try:
            yield
        except DoesNotApply as reason:
            if not method.optional:
                raise
            self.refused[method.name] = str(reason)


@overload
def explain(
    net: NetworkLike,
    pictures: Inputs,
    *,
    method: MethodLike = ...,
    target: Target = ...,
    layer: Layer = ...,
    batch: int | None = ...,
    device: str | torch.device | None = ...,
    differentiable: bool = ...,
    max_pixels: int = ...,
    fit: str | None = ...,
) -> HeatMaps: ...


@overload
def explain(
    net: NetworkLike,
    pictures: Inputs,
    *,
    method: Methods,
    target: Target = ...,
    layer: Layer = ...,
    batch: int | None = ...,
    device: str | torch.device | None = ...,
    differentiable: bool = ...,
    max_pixels: int = ...,
    fit: str | None = ...,
) -> ByMethod: ...


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
    """
    demand_kinds(explain, locals(), but="method")
    network = networks.as_network(net, device)
    if fit is not None or not isinstance(pictures, Tensor):  # a tensor has been fitted already
        network = network.fitted(fit)
    alone = not isinstance(method, (list, tuple)) and method != ALL
    methods = chosen(method)
    parts, places, skipped = list[ByMethod](), list[int](), list[tuple[str, str]]()
    asked = Asked(network, methods, target, layer, differentiable)
    found = asked.groups(pictures, batch, max_pixels)

    def looked(group: Group) -> ByMethod | None:
        return None if group.batch is None else asked.maps(group, group.batch)

    whole = ((group, looked(group)) for group in found)  # batches of tensors are as the user likes them
    in_parts = networks.run_ahead(network, found, looked, asked.given)
    for group, part in whole if isinstance(pictures, Tensor) else in_parts:
        skipped += group.skipped
        if part is not None:
            parts.append(part)
            places += group.places
    tell_skipped(bool(parts), skipped)
    joined = ByMethod(asked.refused)
    for name in (found.name for found in methods if found.name not in joined.refused):
        maps = concat([part[name] for part in parts], places)
        settings = network.settings(method=name, layer=maps.layer, input=networks.input_of(network))
        joined[name] = replace(maps, skipped=tuple(skipped), settings=settings)
    return next(iter(joined.values())) if alone else joined


@dataclass(frozen=True)
class Asked:
    """What is asked of a network; `refused` are the methods that turned out not to apply, and why."""

    network: Network
    methods: Sequence[Method]
    target: Target
    layer: Layer
    differentiable: bool = False
    refused: dict[str, str] = field(default_factory=dict)

    @bounded
    def groups(self, pictures: Inputs | DataSet, batch: int | None, max_pixels: int) -> Iterator[Group]:
        """The pictures, so many at a time."""
        _refuse_streams(self.network)
        targeting.check(self.target, self.network)
        if not self.methods:
            raise BadChoice(f"no method was named (there are: {', '.join(names())})")
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
    differentiable: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Iterator[ExplainStep]:
    """Batch after batch, so that a folder of any size needs the memory of one."""
    asked = Asked(network, methods, target, layer, differentiable)

    def explained(group: Group, tensors: Tensor) -> list[Explained]:
        return [Explained(heatmaps) for heatmaps in zip(*asked.maps(group, tensors).values(), strict=True)]

    for step in networks.in_order(network, asked.groups(pictures, batch, max_pixels), explained, asked.given):
        yield ExplainStep(*step, dict(asked.refused))


def _in_pairs(found: Iterable[Group]) -> Iterator[Group]:
    for group in found:
        if group.total % 2:
            raise BadChoice(f"target 'pair' takes pictures two by two; got {group.total}")
        if group.skipped:
            raise BadPicture(f"target 'pair' needs every picture: {group.skipped[0][1]}")
        yield group


def _refuse_streams(network: Network) -> None:
    if network.can("streams"):
        raise BadChoice(
            f"{network.name or 'this network'} has two streams and looks in steps: use fovea.look_longer, which gives "
            "a map of the whole picture, and one of every patch at every step ('fovea explain' draws them)"
        )


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


def look_at(
    network: Network,
    batch: Tensor,
    shown: Sequence[Shown],
    methods: Sequence[MethodLike],
    target: Target,
    layer: Layer = None,
    differentiable: bool = False,
) -> tuple[ByMethod, Tensor]:
    """Every method and target on one batch of tensors, from one pass through the trunk; and the network's output."""
    _refuse_streams(network)
    with networks.switched(network) as parts:
        batch = batch.clone() if batch.is_inference() else batch
        network, target = targeting.toward(networks.labeled(network, batch, parts), target, shown)
        made = networks.cut(network, batch, layer, parts)
        given = [*(found.run for found in map(find, methods)), *targeting.callables(target)]
        with networks.turn(network, parts, made.quiet, given):
            return _looked_at(network, made, batch, shown, methods, target, differentiable)


def _looked_at(
    network: Network,
    made: Cut,
    batch: Tensor,
    shown: Sequence[Shown],
    methods: Sequence[MethodLike],
    target: Target,
    differentiable: bool,
) -> tuple[ByMethod, Tensor]:
    opened = made.open(batch, differentiable)
    maps, output = look_into(network, opened, shown, methods, target, made.layer, differentiable)
    if network.can("complement") and network.labels is not None:  # and not its features as an embedding
        if made.layer != "forward_features":
            raise BadChoice(f"ACoL's maps are of both classifiers, at features they share: leave {made.layer!r} out")
        by_name = {found.name: found for found in map(find, methods)}

        def again(other: Opened, asked: Target, name: str) -> HeatMaps:
            return look_into(network, other, shown, [by_name[name]], asked, made.layer, differentiable)[0][name]

        first, maps = maps, ByMethod(maps.refused)
        for name, heatmaps in first.items():
            with maps.unless_refused(by_name[name]):
                maps |= fused(cast(ACoL, network.module), opened, {name: heatmaps}, target, again)
    return maps, output


def look_into(
    network: Network,
    opened: Opened,
    shown: Sequence[Shown],
    methods: Sequence[MethodLike],
    target: Target,
    layer: str,
    differentiable: bool = False,
) -> tuple[ByMethod, Tensor]:
    """The same for features that are at hand already; `layer` is what they are called. The network is in eval mode."""
    return _looked_into(network, opened, shown, methods, target, layer, differentiable, is_far(opened.output))


def _looked_into(
    network: Network,
    opened: Opened,
    shown: Sequence[Shown],
    methods: Sequence[MethodLike],
    target: Target,
    layer: str,
    differentiable: bool,
    ahead: bool,
) -> tuple[ByMethod, Tensor]:
    """`ahead`: whether the device is left to work, and all that must be known of its numbers is read at the end, once.
    What must be true for a formula (Look.holds) is taken to be; a method for which it was not runs again, waiting."""
    given, reader, lost = opened, Reader(), None
    if ahead:
        finite = reader.want(finite_rows(opened.output))
    else:
        opened, lost = without_lost(opened)
    aims = targeting.aims(target, network, opened.output, reader)
    look = Look(opened, differentiable, len(aims), network, reader=reader)
    best = networks.predictions(network, opened.output, reader=reader)
    named = Later(len(shown), lambda: (replace(item, predictions=row) for item, row in zip(shown, best, strict=True)))
    maps, reasons, wrong = ByMethod(), dict[str, Callable[[], Words]](), set[str]()

    def run(method: Method, ahead: bool) -> None:
        # a method that is oblivious of classes has one map, whatever was asked for
        asked = targeting.aims("output", network, opened.output) if method.oblivious else aims
        look.doing, look.ahead = method.name, ahead
        with maps.unless_refused(method):
            announce_cost(method, look, len(asked))
            findings = [mark(_finding(method, look, aim), lost) for aim in asked]
            ends = [ends_of(finding.values, reader) for finding in findings]
            maps[method.name] = _heatmaps(method.name, findings, asked, opened, named, layer)
            reasons[method.name] = partial(diagnose, network, findings, ends, opened)
            return
        maps.pop(method.name, None)

    found = list(map(find, methods))
    for method in found:
        if method.name in maps:
            raise BadChoice(f"two methods are called {method.name!r}: explain with one after the other")
        try:
            run(method, ahead and method.name not in opened.curved)
        except Exception:  # by what is no number, perhaps, or else again
            if not look.ahead:
                raise
            wrong.add(method.name)
    if ahead:
        if finite().any() and not finite().all():
            return _looked_into(network, given, shown, methods, target, layer, differentiable, False)
        with np.errstate(all="ignore"):
            wrong |= {name for name, claim in look.claims if not claim().all()}
        opened.curved.update(wrong)
        for method in (method for method in found if method.name in wrong):
            run(method, False)
    if not maps:
        raise DoesNotApply("; ".join(f"{name}: {reason}" for name, reason in maps.refused.items()))
    for name, heatmaps in maps.items():
        maps[name] = replace(heatmaps, diagnosis=reasons[name]())
    return maps, opened.output.detach()


def _finding(method: Method, look: Look, aim: Aim) -> Finding:
    """What the method says, once it has been seen to be what it should be."""
    given = method.run(look, aim)
    finding = Finding(given, given) if isinstance(given, Tensor) else given
    if not isinstance(finding, Finding):
        kind = type(given).__name__
        raise BadChoice(f"method {method.name!r} returned a {kind}: it returns a tensor of B,P values, or a Finding")
    wanted = len(look.opened.features), math.prod(finding.grid or look.opened.layout.grid)
    for what, values in (("values", finding.values), ("raw values", finding.raw)):
        if not isinstance(values, Tensor) or not values.is_floating_point():
            got = values.dtype if isinstance(values, Tensor) else type(values).__name__
            raise BadChoice(f"method {method.name!r}: {what} are a tensor of floats; got {got}")
        if tuple(values.shape) != wanted:
            flat = values.ndim > 2 and tuple(values.flatten(1).shape) == wanted
            hint = ": flatten the cells, values.flatten(1)" if flat else ""
            raise BadChoice(
                f"method {method.name!r} returns one value per picture and cell, B,P = {wanted}; its {what} are "
                f"{tuple(values.shape)}{hint}"
            )
    if finding.loss is not None and tuple(finding.loss.shape) != wanted[:1]:
        shape = tuple(finding.loss.shape)
        raise BadChoice(f"method {method.name!r}: a loss is one number per picture, {wanted[:1]}; got {shape}")
    return finding


def _heatmaps(
    method: str, findings: list[Finding], aims: list[Aim], opened: Opened, shown: Sequence[Shown], layer: str
) -> HeatMaps:
    (grid,) = {finding.grid or opened.layout.grid for finding in findings}
    count, frames = len(shown), opened.frames is not None
    lead = (count, opened.frames) if opened.frames is not None else (count,)
    axis = len(lead)
    values = torch.stack([finding.values.reshape(*lead, *grid) for finding in findings], dim=axis)  # N,(T,)K,*grid
    losses = [finding.loss for finding in findings if finding.loss is not None]
    classes = [(None,) * count if aim.classes is None else aim.indices for aim in aims]
    return HeatMaps(
        cells=values if values.requires_grad else values.nan_to_num(0.0, 0.0, 0.0),
        shown=shown,
        targets=Later(count, lambda: zip(*(aim.names for aim in aims), strict=True)),
        method=method,
        layer="input" if findings[0].grid else layer,
        solver="+".join(dict.fromkeys(finding.solver for finding in findings)),
        loss=torch.stack([loss.reshape(lead) for loss in losses], dim=axis).detach() if losses else None,
        iterations=max(finding.iterations for finding in findings),
        note="; ".join(dict.fromkeys(finding.note for finding in findings if finding.note)),
        classes=Later(count, lambda: zip(*classes, strict=True)),
        frames=frames,
    )
