"""Where does a network look? One trunk pass a batch, any methods and targets on it, maps in the user's own pixels."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast, overload

import torch
from torch import Tensor, nn

from fovea import targets as targeting
from fovea.cutting import Opened, cut
from fovea.errors import BadChoice, BadPicture, nearest
from fovea.explaining.cam import CAM
from fovea.explaining.diagnosis import diagnose
from fovea.explaining.gradcam import GradCAM
from fovea.explaining.l2caf import L2CAF
from fovea.explaining.look import Found, Look
from fovea.heatmap import HeatMap, Shown, concat
from fovea.network import Network, as_found, wrap
from fovea.pictures import MAX_PIXELS, Given, Picture, gather, read_all
from fovea.placement import Placement
from fovea.targets import Aim, Each


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
Inputs = Given | Tensor | Iterable[Given | Tensor]
Progress = Callable[[int, int], None]


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
    if not maps:
        reasons = "; ".join(reason for _, reason in skipped[:3])
        raise BadPicture(reasons or "no pictures were given (an empty folder, or a pattern that matches none)")
    if skipped:
        warnings.warn(f"{len(skipped)} picture(s) skipped: {skipped[0][1]}", stacklevel=2)
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
    targeting.check(target, network)
    if not methods:
        raise BadChoice(f"no method was named (there are: {', '.join(METHODS)})")
    if isinstance(pictures, (list, tuple)) and pictures and all(isinstance(one, Tensor) for one in pictures):
        pictures = torch.stack(list(pictures))
    if isinstance(pictures, Tensor):
        whole = _batched(pictures, network)
        size = _even(batch, target, len(whole))
        for start in range(0, len(whole), size):
            rows = slice(start, start + size)
            part = whole[rows].to(network.device, network.dtype)
            shown = [_tensor_shown(one, start + i) for i, one in enumerate(whole[rows])]
            maps, _ = look_at(network, part, shown, methods, target, layer, rows, differentiable)
            yield Step(maps, [], min(start + size, len(whole)), len(whole))
        return
    gathered = gather(cast(Iterable[Given], pictures))
    size = _even(batch, target, len(gathered))
    for start in range(0, len(gathered), size):
        own = gathered[start : start + size]
        yield from _picture_batch(
            network, own, methods, target, layer, start, len(gathered), differentiable, max_pixels
        )


def _even(batch: int, target: Target, count: int) -> int:
    if batch < 1:
        raise BadChoice(f"a batch holds at least one picture; got {batch}")
    if isinstance(target, str) and target == "pair":
        if count % 2:
            raise BadChoice(f"target 'pair' takes pictures two by two; got {count}")
        return batch + batch % 2
    return batch


def _picture_batch(
    network: Network,
    own: list[Picture],
    methods: Sequence[Method],
    target: Target,
    layer: str | nn.Module | None,
    start: int,
    total: int,
    differentiable: bool,
    max_pixels: int,
) -> Iterator[Step]:
    tensors: list[Tensor] = []
    shown: list[Shown] = []
    places: list[int] = []
    skipped: list[tuple[str, str]] = []
    for i, (picture, image) in enumerate(zip(own, read_all(own, max_pixels), strict=True)):
        if isinstance(image, BadPicture):
            skipped.append((picture.name, str(image)))
            continue
        tensor, placement = network.prepare(image)
        tensors.append(tensor)
        shown.append(Shown(picture.name, placement, picture))
        places.append(start + i)
    done = start + len(own)
    if not tensors:
        yield Step({}, skipped, done, total)
        return
    if isinstance(target, str) and target == "pair" and skipped:
        raise BadPicture(f"target 'pair' needs every picture: {skipped[0][1]}")
    if len({tuple(one.shape) for one in tensors}) == 1:
        groups = [list(range(len(tensors)))]
    else:
        groups = [[i] for i in range(len(tensors))]
    for group in groups:
        part = torch.stack([tensors[i] for i in group]).to(network.device, network.dtype)
        rows = _rows(target, [places[i] for i in group])
        maps, _ = look_at(network, part, [shown[i] for i in group], methods, rows, layer, slice(None), differentiable)
        yield Step(maps, skipped if group is groups[-1] else [], done, total)


def _rows(target: Target, places: list[int]) -> Target:
    """The part of a per-picture target that belongs to these pictures."""
    if isinstance(target, Each):
        _enough(len(target.targets), places)
        return Each(tuple(target.targets[i] for i in places))
    if hasattr(target, "shape"):
        rows = torch.as_tensor(target)
        _enough(len(rows), places)
        return rows[places]
    return target


def _enough(count: int, places: list[int]) -> None:
    if places and places[-1] >= count:
        raise BadChoice(f"{count} per-picture targets were given for more pictures than that")


def _batched(given: Tensor, network: Network) -> Tensor:
    """Add the batch axis when one sample was given."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    first = next((m for m in network.module.modules() if isinstance(m, kinds)), None)
    axes = 3 + kinds.index(type(first)) if type(first) in kinds else 4
    if not given.is_floating_point():
        raise BadChoice(
            f"a tensor is taken as already transformed, so it holds floats; got {given.dtype} (give arrays for pixels)"
        )
    if given.ndim == axes - 1:
        return given.unsqueeze(0)
    if given.ndim == axes or (given.ndim == 5 and axes == 4):
        return given
    raise BadChoice(
        f"this network takes tensors of {axes} axes (N first), or {axes - 1} for one; got shape {tuple(given.shape)}"
    )


def _tensor_shown(one: Tensor, index: int) -> Shown:
    flat = one.ndim == 3 or (one.ndim == 4 and one.shape[1] in (1, 3))
    placement = Placement.identity(one.shape[-1], one.shape[-2]) if flat else None
    return Shown(f"picture-{index}", placement, one)


def look_at(
    network: Network,
    batch: Tensor,
    shown: Sequence[Shown],
    methods: Sequence[Method],
    target: Target,
    layer: str | nn.Module | None = None,
    rows: slice = slice(None),
    differentiable: bool = False,
) -> tuple[dict[str, HeatMap], Tensor]:
    """Every method and target on one batch of tensors, from one pass through the trunk; and the network's output."""
    with as_found(network) as parts:
        batch = batch.clone() if batch.is_inference() else batch
        made = cut(network, batch, layer, parts)
        opened = made.open(batch, differentiable)
        aims = targeting.aims(target, network, opened.output, rows)
        look = Look(opened, differentiable, len(aims))
        told = tuple(
            replace(one, predictions=best)
            for one, best in zip(shown, _predictions(network, opened.output), strict=True)
        )
        maps = {
            method.name: _heatmap(network, method, [method(look, aim) for aim in aims], aims, opened, told, made.layer)
            for method in methods
        }
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


def _predictions(network: Network, output: Tensor, most: int = 5) -> list[tuple[tuple[str, float], ...]]:
    """The best labels with their probabilities; nothing for a network without labels."""
    if network.labels is None or output.ndim != 2 or output.shape[1] < 2:
        return [()] * len(output)
    shares, indices = output.detach().float().softmax(1).topk(min(most, output.shape[1]), dim=1)
    return [
        tuple((network.label(i), share) for i, share in zip(row, own, strict=True))
        for row, own in zip(indices.tolist(), shares.tolist(), strict=True)
    ]
