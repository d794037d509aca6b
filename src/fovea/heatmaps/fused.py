"""Maps of ACoL: those of its first classifier, and those of its second, which does not see where the first looks most,
as one (Zhang et al. 2018)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fovea.heatmaps.heatmap import HeatMap
from fovea.models.erasing import ACoL, zero_to_one
from fovea.networks.cutting import Opened
from fovea.networks.cutting.parts import root

WORDS = ("output", "embedding", "pair")
Look = Callable[[Opened, Any, str], HeatMap]  # features and their output, a target, a method's name


def fused(module: ACoL, opened: Opened, first: Mapping[str, HeatMap], target: Any, look: Look) -> dict[str, HeatMap]:
    """The maximum of both classifiers' maps, each from 0 to 1, target by target; `first` are the first one's.

    Where no class is asked for, the cells that speak for the first classifier's own answer are those that the second
    does not see.
    """
    best = opened.output.argmax(1)
    with torch.no_grad():
        maps = module.first.maps(opened.features)
    found = {}
    for name, seen in first.items():
        others = _not_classes(target)
        columns, words = [], []
        for k in range(seen.values.shape[1]):
            given = [row[k] for row in seen.classes]
            is_class = all(one is not None for one in given)
            classes = torch.tensor(given, device=best.device) if is_class else best
            asked = classes if is_class else next(others, "output")
            second = look(_without(module, opened, maps, classes, seen.values.requires_grad), asked, name)
            columns.append(torch.maximum(zero_to_one(seen.values[:, k]), zero_to_one(second.values[:, 0])))
            words.append([own[k] and other[0] for own, other in zip(seen.diagnosis, second.diagnosis, strict=True)])
        note = "; ".join(filter(None, (seen.note, "the maximum of two classifiers' maps")))
        told = tuple(zip(*words, strict=True))
        found[name] = replace(seen, values=torch.stack(columns, 1), note=note, diagnosis=told, loss=None)
    return found


def _not_classes(target: Any) -> Iterator[Any]:
    """The targets, in their order, that are no classes: callables, 'output', 'pair'."""
    for one in target if isinstance(target, (list, tuple)) else [target]:
        if callable(one) or (isinstance(one, str) and one in WORDS):
            yield one


def _without(module: ACoL, opened: Opened, maps: Tensor, classes: Tensor, differentiable: bool) -> Opened:
    """What the second classifier sees."""
    features = root(module.erased(opened.features, maps, classes), differentiable)
    return replace(
        opened,
        features=features,
        output=module.second(features),
        head=module.second,
        trunk=lambda: module.erased(opened.trunk(), maps, classes),
    )
