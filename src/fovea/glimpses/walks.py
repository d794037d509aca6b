"""What a walk through a picture gave: the answer of its parts, where it looked, and how much it read."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import union
from fovea.models.glimpsing import Walk

SLACK = 0.01  # pixels that rounding may put a box over a glimpse's edge
LOOKED = ("found", "contains")  # the middle of a box, and a whole one


def at_level(walk: Walk, level: int) -> Tensor:
    """The boxes of the things read at a level: N,G,4."""
    return walk.boxes[:, [i for i, one in enumerate(walk.levels) if one == level]].detach().cpu()


def without_overview(walk: Walk) -> Tensor | None:
    """The answer of the glimpses alone (5.3), N,classes; nothing where none was read."""
    glimpses = [i for i, level in enumerate(walk.levels) if level > 1]
    overview = [i for i, level in enumerate(walk.levels) if level == 1]
    if not glimpses:
        return None
    if walk.share is None:
        return walk.each[:, glimpses].mean(1) if overview else walk.logits
    if not walk.share[:, overview].any():  # of the overview nothing is in the answer
        return walk.logits
    share = walk.share[:, glimpses] / walk.share[:, glimpses].sum(1, keepdim=True)
    return (walk.each[:, glimpses] * share.unsqueeze(2)).sum(1)


def overview_alone(walk: Walk) -> Tensor | None:
    return walk.each[:, 0] if walk.levels[0] == 1 else None


def where_it_looked(walk: Walk, boxes: Sequence[Tensor]) -> dict[str, NDArray[np.float64]]:
    """At each level, of each picture, whether a glimpse has the middle of a box in it (`found_at`), and all of one
    (`contains_at`); NaN where a picture has no box."""
    told: dict[str, NDArray[np.float64]] = {}
    for level in sorted(set(walk.levels) - {1}):
        found, contains = (told.setdefault(f"{key}_at_{level}", np.full(len(boxes), np.nan)) for key in LOOKED)
        for i, (regions, its) in enumerate(zip(at_level(walk, level), boxes, strict=True)):
            if len(its):
                start, stop = regions[:, None, :2], regions[:, None, 2:]  # G,1,2
                middle = (its[:, :2] + its[:, 2:]) / 2  # K,2
                found[i] = ((middle >= start) & (middle < stop)).all(2).any()
                inside = (its[:, :2] >= start - SLACK) & (its[:, 2:] <= stop + SLACK)  # G,K,2
                contains[i] = inside.all(2).any()
    return told


def covered(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The share of pictures, height and width `size`, that boxes cover together: N,G,4 to N."""
    inside = boxes.double().clamp(min=0).minimum(torch.tensor([size[1], size[0]] * 2, dtype=torch.float64))
    return torch.tensor([union(own) for own in inside.tolist()], dtype=torch.float64) / (size[0] * size[1])
