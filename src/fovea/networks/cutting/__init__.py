"""Cut a network into trunk and head: find the layer, run the trunk once, run the head as often as needed.

Three ways to cut, tried in this order: timm's own `forward_features` / `forward_head`; a graph of the traced module
split at a node; a hook that takes a layer's output out of the running network and puts another in its place."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, nearest
from fovea.networks.checking import cuttable
from fovea.networks.cutting.choosing import are_read
from fovea.networks.cutting.currency import Snapshot
from fovea.networks.cutting.folding import stages_of_method
from fovea.networks.cutting.graph import graph_cut
from fovea.networks.cutting.heads import Head, SecondPart, Stages
from fovea.networks.cutting.hook import hook_cut_anywhere, hook_cut_at
from fovea.networks.cutting.lean import lean_method
from fovea.networks.cutting.parts import Cut, Opened, Trunk, alike, one_map, root, version
from fovea.networks.cutting.recorded import first_part
from fovea.networks.layout import layout_of
from fovea.networks.running import Runnable, turn
from fovea.networks.threads import alone, drawn

__all__ = ["Cut", "Opened", "cut"]
Layer = str | nn.Module | None
MOST = 24  # that are kept: an input of another shape has one of its own


def cut(network: Runnable, batch: Tensor, layer: Layer = None, parts: Sequence[nn.Module] | None = None) -> Cut:
    """Where to look at this network: at the layer named, or at the last map whose cells the output still depends on."""
    layer = layer if layer is not None else network.layer
    parts = parts or network.parts
    key = (layer, tuple(batch.shape[1:]), tuple(map(id, parts)))  # a replaced layer makes a new cut
    known: Cut | None = network._cuts.get(key)
    if known is None or not known.current():
        with alone(network.device):
            known = network._cuts.get(key)  # another thread may have made it by now
            if known is None or not known.current():
                if len(network._cuts) > MOST:
                    network._cuts.clear()
                known = network._cuts[key] = _made(network, batch, layer, parts)
    return known


def _made(network: Runnable, batch: Tensor, layer: Layer, parts: Sequence[nn.Module]) -> Cut:
    cuttable(network.module)
    before, numbers = Snapshot(parts), drawn(network.device)
    with turn(network, parts):
        made = _cut(network, batch[:1], layer)
    before.settle()
    draws = not all(map(torch.equal, numbers, drawn(network.device)))
    quiet, time_first = made.how == "graph" and not draws, batch.ndim == 5 and _folds_time_first(made, batch)
    return replace(made, current=lambda: before.same() and made.current(), quiet=quiet, time_first=time_first)


def _cut(network: Runnable, batch: Tensor, layer: Layer) -> Cut:
    if layer is not None:
        name = _name_of(network.module, layer)
        return graph_cut(network, batch, name) or hook_cut_at(network, batch, name)
    return _timm_cut(network, batch) or graph_cut(network, batch, None) or hook_cut_anywhere(network, batch)


def _name_of(module: nn.Module, layer: str | nn.Module) -> str:
    names = dict(module.named_modules())
    if isinstance(layer, nn.Module):
        for name, one in names.items():
            if one is layer:
                return str(name)
        raise BadChoice(f"the layer given ({type(layer).__name__}) is not part of this network")
    if layer not in names or layer == "":
        raise BadChoice(f"no layer {layer!r} in {type(module).__name__}{nearest(layer, filter(None, names))}")
    return layer


def _folds_time_first(made: Cut, batch: Tensor) -> bool:
    """Does the network fold N,T frames as T*N? One clip alone and the same clip beside another tell."""
    frames = batch.shape[1]
    with torch.no_grad():
        alone = made.enter(batch[:1], False)[0]
        if len(alone) != frames or frames == 1:
            return False
        beside = made.enter(torch.cat([batch[:1], torch.zeros_like(batch[:1])]), False)[0]
    picture_first, time_first = beside[:frames], beside[::2]
    return bool((time_first - alone).abs().sum() < (picture_first - alone).abs().sum())


def _timm_cut(network: Runnable, batch: Tensor) -> Cut | None:
    module: Any = network.module
    if not (hasattr(module, "forward_features") and hasattr(module, "forward_head")):
        return None

    first = first_part(network, lambda batch: (one_map(module.forward_features(batch), "forward_features"), ()))
    known: list[Stages | None] = []

    def prepared(features: Tensor) -> Stages | None:
        if not known:
            known.append(stages_of_method(module, "forward_head", features))
        return known[0]

    def enter(batch: Tensor, differentiable: bool) -> tuple[Tensor, Tensor, Head, Trunk, bool]:
        def trunk() -> Tensor:
            with torch.set_grad_enabled(differentiable):
                return first(batch)[0]

        features = root(trunk(), differentiable)
        return features, head(features), head, trunk, True

    try:
        head = SecondPart(module.forward_head, network.read, (), (), (True,), prepared)
        features, output, *_ = enter(batch, False)
        with torch.no_grad():
            module.forward_head(given := features.detach().clone())
        head = replace(head, written=(version(given) > 0,))
        if layout_of(features, batch) is None or not are_read(output, [features], batch)[0]:
            return None
        with torch.no_grad():
            if not alike(output, network(batch)):
                return None
    except Exception:  # a network with its own idea of these methods: the graph knows better
        return None
    # a GPU waits for Python where batches are small; on a CPU, tracing takes longer than it saves
    short = lean_method(module, "forward_features", batch) if batch.device.type == "cuda" else None
    if short is None:
        return Cut("forward_features", "timm", enter)
    run, current = short
    first = first_part(network, lambda batch: (run(batch), ()))
    return Cut("forward_features", "timm", enter, current)
