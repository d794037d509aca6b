"""Where does a network look? One trunk pass a batch, any methods and targets on it, maps in the user's own pixels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, overload

import numpy as np
import torch
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadPicture, nearest
from fovea.heatmaps import targets as targeting
from fovea.heatmaps.diagnosis import diagnose
from fovea.heatmaps.fused import fused
from fovea.heatmaps.heatmap import HeatMap, concat
from fovea.heatmaps.look import Found, Look, mark, without_lost
from fovea.heatmaps.methods.cam import CAM
from fovea.heatmaps.methods.gradcam import GradCAM
from fovea.heatmaps.methods.l2caf import L2CAF
from fovea.heatmaps.targets import Aim, Each
from fovea.models.erasing import ACoL
from fovea.models.twostream import TwoStream
from fovea.networks.classes import labeled, predictions
from fovea.networks.cutting import Opened, cut
from fovea.networks.inputs import Inputs, groups
from fovea.networks.network import Network, as_found, wrap
from fovea.pictures import MAX_PIXELS, tell_skipped
from fovea.pictures.shown import Shown


class Method(Protocol):
    """A way to find where a network looks: one batch and one target in, a value per cell out."""

    @property
    def name(self) -> str: ...

    def __call__(self, look: Look, aim: Aim) -> Found: ...


METHODS: dict[str, Method] = {
    "l2caf": L2CAF(),
    "cam": CAM(),
    "gradcam": GradCAM(),
    "gradcam-abs": GradCAM(absolute=True),
    "l2caf-sum": L2CAF(others="sum"),
    "l2caf-signed": L2CAF(signed=True),
    "l2caf-oblivious": L2CAF(oblivious=True),
}
Target = targeting.Given | Each


@overload
def explain(
    net: Network | nn.Module,
    pictures: Inputs,
    method: str | Method = ...,
    target: Target = ...,
    *,
    layer: str | nn.Module | None = ...,
    batch: int = ...,
    differentiable: bool = ...,
    max_pixels: int = ...,
) -> HeatMap: ...


@overload
def explain(
    net: Network | nn.Module,
    pictures: Inputs,
    method: list[str | Method] | list[str] | tuple[str | Method, ...],
    target: Target = ...,
    *,
    layer: str | nn.Module | None = ...,
    batch: int = ...,
    differentiable: bool = ...,
    max_pixels: int = ...,
) -> dict[str, HeatMap]: ...


def explain(
    net: Network | nn.Module,
    pictures: Inputs,
    method: str | Method | list[str | Method] | list[str] | tuple[str | Method, ...] = "l2caf",
    target: Target = None,
    *,
    layer: str | nn.Module | None = None,
    batch: int = 16,
    differentiable: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> HeatMap | dict[str, HeatMap]:
    """Where the network looks for a target: a HeatMap, or one a method when several methods are named.

    `pictures`: paths, folders, globs, PIL pictures, H,W,3 arrays; or a tensor, taken as already transformed (C,H,W,
    N,C,H,W, or N,T,C,H,W for a network over frames). `target`: a class name or index, 'top1', 'top5', 'output' (the
    whole output, for embeddings), 'pair' (pictures two by two: where are they alike), a callable, a list of these for
    every picture, or a tensor of class indices, one row a picture. By default the top class, or the whole output of a
    network without labels. A picture that cannot be read is left out, with a warning and an entry in `.skipped`;
    if none can, the error is raised.
    """
    network = net if isinstance(net, Network) else wrap(net)
    methods = [find(one) for one in ([method] if isinstance(method, str) or callable(method) else method)]
    maps: list[dict[str, HeatMap]] = []
    skipped: list[tuple[str, str]] = []
    for step in explain_batches(network, pictures, methods, target, layer, batch, differentiable, max_pixels):
        skipped += step.skipped
        if step.maps:
            maps.append(step.maps)
    tell_skipped(bool(maps), skipped)
    joined = {name: replace(concat([one[name] for one in maps]), skipped=tuple(skipped)) for name in maps[0]}
    return joined if not (isinstance(method, str) or callable(method)) else next(iter(joined.values()))


def find(method: str | Method) -> Method:
    """A method by name, or as it is."""
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise BadChoice(f"no method {method!r}{nearest(method, METHODS)} (there are: {', '.join(METHODS)})")
    return METHODS[method]


@dataclass(frozen=True)
class Step:
    """One batch explained: a HeatMap a method, and the pictures left out with their reasons."""

    maps: dict[str, HeatMap]
    skipped: list[tuple[str, str]]
    done: int
    total: int


def explain_batches(
    network: Network,
    pictures: Inputs,
    methods: Sequence[Method],
    target: Target = None,
    layer: str | nn.Module | None = None,
    batch: int = 16,
    differentiable: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Iterator[Step]:
    """Batch after batch, so that a folder of any size needs the memory of one."""
    _one_stream(network)
    targeting.check(target, network)
    if not methods:
        raise BadChoice(f"no method was named (there are: {', '.join(METHODS)})")
    if batch < 1:
        raise BadChoice(f"a batch holds at least one picture; got {batch}")
    pairs = isinstance(target, str) and target == "pair"
    for group in groups(network, pictures, batch + batch % 2 if pairs else batch, max_pixels):
        if pairs and group.total % 2:
            raise BadChoice(f"target 'pair' takes pictures two by two; got {group.total}")
        if pairs and group.skipped:
            raise BadPicture(f"target 'pair' needs every picture: {group.skipped[0][1]}")
        maps: dict[str, HeatMap] = {}
        if group.batch is not None:
            part = group.batch.to(network.device, network.dtype)
            own = _rows(target, group.places, group.total)
            maps, _ = look_at(network, part, group.shown, methods, own, layer, differentiable)
        yield Step(maps, group.skipped, group.done, group.total)


def _one_stream(network: Network) -> None:
    if isinstance(network.module, TwoStream) and network.module.local is not None:
        raise BadChoice(
            f"{network.name or 'this network'} has two streams and looks in steps: use fovea.look_longer, which gives "
            "a map of the whole picture, and one of every patch at every step ('fovea explain' draws them)"
        )


def _rows(target: Target, places: list[int], total: int) -> Target:
    """The part of a per-picture target that belongs to these pictures."""
    if not isinstance(target, (Each, Tensor, np.ndarray)) or (not isinstance(target, Each) and target.ndim == 0):
        return target
    count = len(target.targets) if isinstance(target, Each) else len(target)
    if count != total:
        raise BadChoice(f"per-picture targets hold one row a picture; got {count} for {total} pictures")
    if isinstance(target, Each):
        return Each(tuple(target.targets[i] for i in places))
    return torch.as_tensor(target)[places]


def look_at(
    network: Network,
    batch: Tensor,
    shown: Sequence[Shown],
    methods: Sequence[Method],
    target: Target,
    layer: str | nn.Module | None = None,
    differentiable: bool = False,
) -> tuple[dict[str, HeatMap], Tensor]:
    """Every method and target on one batch of tensors, from one pass through the trunk; and the network's output."""
    _one_stream(network)
    with as_found(network) as parts:
        batch = batch.clone() if batch.is_inference() else batch
        network = labeled(network, batch, parts)
        made = cut(network, batch, layer, parts)
        opened = made.open(batch, differentiable)
        found, output = look_into(network, opened, shown, methods, target, made.layer, differentiable)
        if isinstance(network.module, ACoL) and network.labels is not None:  # and not its features as an embedding
            if made.layer != "forward_features":
                raise BadChoice(
                    f"ACoL's maps are of both its classifiers, at the features they share: leave {layer!r} out"
                )
            by_name = {one.name: one for one in methods}

            def again(other: Opened, own: Target, name: str) -> HeatMap:
                return look_into(network, other, shown, [by_name[name]], own, made.layer, differentiable)[0][name]

            found = fused(network.module, opened, found, target, again)
        return found, output


def look_into(
    network: Network,
    opened: Opened,
    shown: Sequence[Shown],
    methods: Sequence[Method],
    target: Target,
    layer: str,
    differentiable: bool = False,
) -> tuple[dict[str, HeatMap], Tensor]:
    """The same for features that are at hand already; `layer` is what they are called. The network is in eval mode."""
    opened, lost = without_lost(opened)
    aims = targeting.aims(target, network, opened.output)
    look = Look(opened, differentiable, len(aims))
    told = tuple(
        replace(one, predictions=best) for one, best in zip(shown, predictions(network, opened.output), strict=True)
    )
    maps: dict[str, HeatMap] = {}
    for method in methods:
        if method.name in maps:
            raise BadChoice(f"two methods are called {method.name!r}: explain with one after the other")
        # a method that is oblivious of classes has one map, whatever was asked for
        own = targeting.aims("output", network, opened.output) if getattr(method, "oblivious", False) else aims
        found = [mark(method(look, aim), lost) for aim in own]
        maps[method.name] = _heatmap(network, method, found, own, opened, told, layer)
    return maps, opened.output.detach()


def _heatmap(
    network: Network,
    method: Method,
    found: list[Found],
    aims: list[Aim],
    opened: Opened,
    shown: tuple[Shown, ...],
    layer: str,
) -> HeatMap:
    grid, frames = opened.layout.grid, opened.frames is not None
    lead = (len(shown), opened.frames) if opened.frames is not None else (len(shown),)
    axis = len(lead)
    values = torch.stack([one.values.reshape(*lead, *grid) for one in found], dim=axis)  # N,(T,)K,*grid
    losses = [one.loss for one in found if one.loss is not None]
    words = diagnose(network, found, opened)
    live = values.requires_grad
    return HeatMap(
        values=values if live else values.detach().nan_to_num(0.0, 0.0, 0.0),
        shown=shown,
        targets=tuple(tuple(aim.names[i] for aim in aims) for i in range(len(shown))),
        method=method.name,
        layer=layer,
        solver="+".join(dict.fromkeys(one.solver for one in found)),
        loss=torch.stack([one.reshape(lead) for one in losses], dim=axis).detach() if losses else None,
        iterations=max(one.iterations for one in found),
        note="; ".join(dict.fromkeys(one.note for one in found if one.note)),
        diagnosis=words,
        classes=tuple(tuple(None if aim.classes is None else aim.key[i] for aim in aims) for i in range(len(shown))),
        frames=frames,
    )
