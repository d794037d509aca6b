"""Every method and target on one batch, from one pass through the trunk."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from fovea import networks
from fovea.basics import BadChoice, DoesNotApply, Later
from fovea.heatmaps import targets as targeting
from fovea.heatmaps.cost import announce_cost
from fovea.heatmaps.diagnosis import Words, diagnose, ends_of
from fovea.heatmaps.fused import fused, seen_by
from fovea.heatmaps.heatmap import HeatMaps
from fovea.heatmaps.look import Finding, Look, finite_rows, mark, without_lost
from fovea.heatmaps.methods import Method, MethodLike, find
from fovea.heatmaps.targets import Aim, Each
from fovea.models.erasing import ACoL
from fovea.networks import Network, Reader, is_far
from fovea.networks.cutting import Cut, Opened
from fovea.pictures import Shown

Target: TypeAlias = targeting.Given | Each
Layer: TypeAlias = str | nn.Module | None


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


def refuse_streams(network: Network) -> None:
    if network.can("streams"):
        raise BadChoice(
            f"{network.name or 'this network'} has two streams and looks in steps: use fovea.look_longer, which gives "
            "a map of the whole picture, and one of every patch at every step ('fovea explain' draws them)"
        )


def look_at(
    network: Network,
    batch: Tensor,
    shown: Sequence[Shown],
    methods: Sequence[MethodLike],
    target: Target,
    layer: Layer = None,
    differentiable: bool = False,
    clip: bool = True,
) -> tuple[ByMethod, Tensor]:
    """Every method and target on one batch of tensors, from one pass through the trunk; and the network's output.
    `clip`: where two classifiers' maps are made one, what speaks against the target is left out of both."""
    refuse_streams(network)
    with networks.switched(network) as parts:
        batch = batch.clone() if batch.is_inference() else batch
        network, target = targeting.toward(networks.labeled(network, batch, parts), target, shown)
        made = networks.cut(network, batch, layer, parts)
        given = [*(found.run for found in map(find, methods)), *targeting.callables(target)]
        with networks.turn(network, parts, made.quiet, given):
            return _looked_at(network, made, batch, shown, methods, target, differentiable, clip)


def _looked_at(
    network: Network,
    made: Cut,
    batch: Tensor,
    shown: Sequence[Shown],
    methods: Sequence[MethodLike],
    target: Target,
    differentiable: bool,
    clip: bool,
) -> tuple[ByMethod, Tensor]:
    opened = made.open(batch, differentiable)
    if not network.can("complement") or network.labels is None:  # or its features as an embedding
        return look_into(network, opened, shown, methods, target, made.layer, differentiable)
    if made.layer != "forward_features":
        raise BadChoice(f"ACoL's maps are of both classifiers, at features they share: leave {made.layer!r} out")
    module, by_name = cast(ACoL, network.module), {found.name: found for found in map(find, methods)}

    def again(other: Opened, asked: Target, name: str) -> HeatMaps:
        return look_into(network, other, shown, [by_name[name]], asked, made.layer, differentiable)[0][name]

    own = seen_by(module.first, opened, differentiable)
    first, output = look_into(network, own, shown, methods, target, made.layer, differentiable)
    maps = ByMethod(first.refused)
    for name, heatmaps in first.items():
        with maps.unless_refused(by_name[name]):
            maps |= fused(module, opened, {name: heatmaps}, target, again, clip)
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
            maps[method.name] = heatmaps_of(method.name, findings, asked, opened, named, layer)
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
            why = f"its {what} are {tuple(values.shape)}{hint}"
            raise BadChoice(f"method {method.name!r} returns one value per picture and cell, B,P = {wanted}; {why}")
    if finding.loss is not None and tuple(finding.loss.shape) != wanted[:1]:
        shape = tuple(finding.loss.shape)
        raise BadChoice(f"method {method.name!r}: a loss is one number per picture, {wanted[:1]}; got {shape}")
    return finding


def heatmaps_of(
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
