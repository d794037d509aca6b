"""LIP, localizing informative patches: the best cells of a heatmap whose boxes overlap little (AnchorNet, Algorithm 1).

The candidates are the first ceil(cells x P) cells from the highest value down, ties in reading order. The best of them
is picked, those whose boxes have an IoU (Eq. 5) of T or more with its box are struck out, and so on until there are K.
All maps of a batch take each step together, on the CPU wherever they are: a step is too little work for a GPU."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import BadChoice

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Settings:
    """How many picks at most (K), below which IoU with one another (T), among which share of the cells (P)."""

    count: int
    overlap: float
    share: float

    def __post_init__(self) -> None:
        if not (isinstance(self.count, Integral) and self.count >= 1):
            raise BadChoice(f"count (K) is the most picks of a map, a whole number of at least 1; got {self.count}")
        if not 0 < self.overlap <= 1:
            raise BadChoice(f"overlap (T) is the IoU that picks stay below, above 0 and at most 1; got {self.overlap}")
        if not 0 < self.share <= 1:
            raise BadChoice(f"share (P) is the share of cells looked at, above 0 and at most 1; got {self.share}")

    def candidates(self, cells: int) -> int:
        """ceil(cells x P) of P as it is written: 0.07 of 100 cells are 7, though 100 * 0.07 is a little more."""
        return math.ceil(Decimal(str(float(self.share))) * cells)


def for_test(side: int, size: Sequence[int] = (224, 224)) -> Settings:
    """The paper's settings at test time: picks of this side that together are no larger than the input."""
    return Settings(_fitting(side, size), overlap=0.5, share=0.05)


def for_training(side: int, size: Sequence[int] = (224, 224)) -> Settings:
    """The paper's settings for fine-tuning on patches: twice as many, which may overlap more."""
    return Settings(2 * _fitting(side, size), overlap=0.8, share=0.3)


def _fitting(side: int, size: Sequence[int]) -> int:
    if side < 1:
        raise BadChoice(f"the side of a box is at least 1; got {side}")
    return max(1, math.prod(size) // int(side ** len(size)))


@dataclass(frozen=True)
class Picks:
    """The picks of N maps, best first; K is at most the number of cells. Where there are no more: cell -1, zeros."""

    cells: Tensor  # N,K  counted in reading order
    boxes: Tensor  # N,K,4  or N,K,2 for spans
    values: Tensor  # N,K

    @property
    def count(self) -> Tensor:
        return (self.cells >= 0).sum(1)  # N


def pick(values: Tensor, boxes: Tensor, settings: Settings) -> Picks:
    """LIP on maps N,H,W or N,L, with a box x0 y0 x1 y1 or a span start stop for each cell, in reading order. Boxes may
    be of any sizes; they are the same for all maps. A cell that is NaN is never picked."""
    corners = _checked(values, boxes)
    flat = values.flatten(1)  # N,P
    falling = -flat.detach().cpu().to(torch.promote_types(flat.dtype, torch.float32)).numpy()
    ranked = _ranked(falling, settings.candidates(len(corners)))  # N,M
    free = ~np.isnan(np.take_along_axis(falling, ranked, 1))  # N,M: may still be picked
    found = np.full((len(flat), min(settings.count, len(corners))), -1)
    every = np.arange(len(flat))
    starts, stops = np.split(corners.T.take(ranked, axis=1), 2)  # axes,N,M each
    areas = (stops - starts).prod(0)
    for place in range(found.shape[1]):
        best = free.argmax(1)  # N: the first that is free
        there = free[every, best]
        if not there.any():
            break
        found[:, place] = np.where(there, ranked[every, best], -1)
        start, stop, area = (side[..., every, best][..., None] for side in (starts, stops, areas))
        shared = (np.minimum(stop, stops) - np.maximum(start, starts)).clip(0).prod(0)  # N,M
        free &= shared / np.maximum(area + areas - shared, TINY) < settings.overlap  # Eq. 5
        free[every, best] = False  # a box without area overlaps nothing, not even itself
    cells = torch.from_numpy(found).to(values.device)
    missing = cells < 0
    return Picks(
        cells,
        boxes.to(values.device)[cells].masked_fill(missing.unsqueeze(2), 0),
        flat.gather(1, cells.clamp(min=0)).masked_fill(missing, 0),
    )


def _ranked(falling: NDArray[np.floating], most: int) -> NDArray[np.int64]:
    """The places of the `most` least values of every row, the least first, ties in reading order; NaN last: N,M."""
    good = falling <= np.partition(falling, most - 1, axis=1)[:, most - 1 : most]
    width = most
    if (good.sum(1) != most).any():  # a tie at the border, or NaN: all are sorted, which takes longer
        good, width = np.ones_like(good), falling.shape[1]
    places = np.nonzero(good)[1].reshape(len(falling), width)
    order = np.argsort(np.take_along_axis(falling, places, 1), axis=1, kind="stable")[:, :most]
    return np.take_along_axis(places, order, 1)


def _checked(values: Tensor, boxes: Tensor) -> NDArray[np.float64]:
    """The boxes, once maps and boxes are what they should be."""
    grid = tuple(values.shape[1:])
    cells, axes = math.prod(grid), len(grid)
    if axes not in (1, 2) or cells == 0:
        raise BadChoice(f"maps are N,H,W or N,L, with at least one cell; got {_shape(values)}")
    if not values.is_floating_point():
        raise BadChoice(f"maps hold floating-point numbers; got {values.dtype}: give values.float()")
    if tuple(boxes.shape) != (cells, 2 * axes):
        words = "x0 y0 x1 y1" if axes == 2 else "start stop"
        got = f"{words} of each cell in reading order; got {_shape(boxes)}"
        raise BadChoice(f"maps {_shape(values)} need boxes {cells},{2 * axes}: {got}")
    corners: NDArray[np.float64] = boxes.detach().cpu().double().numpy()
    if not (np.isfinite(corners).all() and (corners[:, :axes] <= corners[:, axes:]).all()):
        raise BadChoice("boxes are finite, and none stops before it starts (x0 <= x1, y0 <= y1)")
    return corners


def _shape(tensor: Tensor) -> str:
    return ",".join(map(str, tensor.shape)) or "a single number"
