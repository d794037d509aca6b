"""Maps of ACoL: those of its first classifier, and those of its second, which does not see where the first looks most,
as one (Zhang et al. 2018)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fovea.heatmaps.heatmap import HeatMaps
from fovea.models.erasing import ACoL, ErasingBranch, zero_to_one
from fovea.networks import root
from fovea.networks.cutting import Opened

WORDS = ("output", "embedding", "pair")
Look = Callable[[Opened, Any, str], HeatMaps]  # features and their output, a target, a method's name


def fused(
    module: ACoL, opened: Opened, first: Mapping[str, HeatMaps], target: Any, look: Look, clip: bool
) -> dict[str, HeatMaps]:
    """The maximum of both classifiers' maps, each from 0 to 1, target by target; `first` are the first one's. What
    speaks against the target is 0 if `clip`, as where boxes are drawn; else a map's least value is, as in the paper.
    Where no class is asked for, the cells that speak for the first classifier's own answer are those that the second
    does not see."""
    best = opened.output.argmax(1)
    with torch.no_grad():
        maps = module.first.maps(opened.features)
    both = {}
    for name, heatmaps in first.items():
        others = _not_classes(target)
        columns, words = [], []
        for k in range(heatmaps.values.shape[1]):
            given = [row[k] for row in heatmaps.classes]
            is_class = all(index is not None for index in given)
            classes = torch.tensor(given, device=best.device) if is_class else best
            asked = classes if is_class else next(others, "output")
            second = look(_without(module, opened, maps, classes, heatmaps.values.requires_grad), asked, name)
            pair = [maps.clamp(min=0) if clip else maps for maps in (heatmaps.values[:, k], second.values[:, 0])]
            columns.append(torch.maximum(*map(zero_to_one, pair)))
            words.append([row[k] and other[0] for row, other in zip(heatmaps.diagnosis, second.diagnosis, strict=True)])
        note = "; ".join(filter(None, (heatmaps.note, "the maximum of two classifiers' maps")))
        diagnosis = tuple(zip(*words, strict=True))
        both[name] = replace(heatmaps, cells=torch.stack(columns, 1), note=note, diagnosis=diagnosis, loss=None)
    return both


def _not_classes(target: Any) -> Iterator[Any]:
    """The targets, in their order, that are no classes: callables, 'output', 'pair'."""
    for item in target if isinstance(target, (list, tuple)) else [target]:
        if callable(item) or (isinstance(item, str) and item in WORDS):
            yield item


def seen_by(branch: ErasingBranch, opened: Opened, differentiable: bool) -> Opened:
    """What a classifier sees at its own last convolution, of features that both are given."""
    own = root(branch.more(opened.features), differentiable)
    return replace(
        opened,
        features=own,
        output=branch.forward_head(own),
        head=branch.forward_head,
        trunk=lambda: branch.more(opened.trunk()),
    )


def _without(module: ACoL, opened: Opened, maps: Tensor, classes: Tensor, differentiable: bool) -> Opened:
    """What the second classifier sees; the network's input is the first one's as well."""
    left = replace(
        opened,
        features=module.erased(opened.features, maps, classes),
        trunk=lambda: module.erased(opened.trunk(), maps, classes),
        input=None,
    )
    return seen_by(module.second, left, differentiable)
