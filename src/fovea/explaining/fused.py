"""Maps of ACoL: those of its first classifier, and those of its second, which does not see where the first looks most,
as one (Zhang et al. 2018)."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fovea.cutting import Opened
from fovea.cutting.parts import root
from fovea.heatmap import HeatMap
from fovea.nets.erasing import ACoL, zero_to_one

Looked = Callable[[Opened, Tensor | str], Mapping[str, HeatMap]]


def fused(module: ACoL, opened: Opened, first: Mapping[str, HeatMap], look: Looked) -> dict[str, HeatMap]:
    """The maximum of both classifiers' maps, each from 0 to 1, target by target.

    `look` explains features and an output for classes, or for "output". Where no class is asked for, the cells that
    speak for the first classifier's own answer are those that the second does not see.
    """
    best = opened.output.argmax(1)
    with torch.no_grad():
        maps = module.first.maps(opened.features)
    found = {}
    for name, seen in first.items():
        columns = []
        for k in range(seen.values.shape[1]):
            given = [row[k] for row in seen.classes]
            no_class = any(one is None for one in given)
            classes = best if no_class else torch.tensor(given, device=best.device)
            features = root(module.erased(opened.features, maps, classes), seen.values.requires_grad)
            other = replace(opened, features=features, output=module.second(features), head=module.second)
            second = look(other, "output" if no_class else classes)[name]
            both = zero_to_one(seen.values[:, k]), zero_to_one(second.values[:, 0])
            columns.append(torch.maximum(*both))
        note = "; ".join(filter(None, (seen.note, "the maximum of two classifiers' maps")))
        found[name] = replace(seen, values=torch.stack(columns, 1), note=note)
    return found
