"""LIP, localising informative patches: the best cells of a heatmap whose boxes overlap little (AnchorNet, Algorithm 1).

The cells are walked from the highest value down, ties in reading order, the first ceil(cells x P) of them. A cell is
picked if the IoU (Eq. 5) of its box with the box of every cell picked before it is below T, until there are K.
All maps of a batch take each step together, on the CPU wherever they are: a step is too little work for a GPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, reduce
from numbers import Integral
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics.errors import BadChoice

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
BLOCK = 2**15  # cells sorted at a time: what stays in the processor's cache
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
    """LIP on maps N,H,W or N,L, with a box x0 y0 x1 y1 or a span start stop for each cell, in reading order.

    Boxes may be of any sizes; they are the same for all maps. A cell that is NaN is never picked.
    """
    _demand(values, boxes)
    raw = boxes.detach().cpu().numpy()
    layout = _layout(raw.tobytes(), raw.dtype.str, raw.shape, tuple(values.shape[1:]), settings.overlap)
    clash, none = layout.clash, len(raw)
    most = min(settings.count, none)
    flat = values.flatten(1)  # N,P
    ranked = _ranked(flat.detach().cpu(), settings.candidates(none))  # M,N
    found = clash.cells.take(_walk(clash.codes.take(ranked), clash, most).T)  # N,K
    missing = found == none
    cells, gone = (torch.from_numpy(one).to(values.device) for one in (np.where(missing, 0, found), missing))
    return Picks(
        cells=cells.masked_fill(gone, -1),
        # looked up by numpy: threads of torch would wait for one another longer than this takes
        boxes=torch.from_numpy(layout.padded.take(found, axis=0)).to(values.device, boxes.dtype),
        values=flat.gather(1, cells).masked_fill(gone, 0),
    )


def _demand(values: Tensor, boxes: Tensor) -> None:
    """Maps and boxes are what they should be."""
    grid = tuple(values.shape[1:])
    cells, axes = math.prod(grid), len(grid)
    if axes not in (1, 2) or cells == 0:
        raise BadChoice(f"maps are N,H,W or N,L, with at least one cell; got {_shape(values)}")
    if not values.is_floating_point():
        raise BadChoice(f"maps hold floating-point numbers; got {values.dtype}: give values.float()")
    if tuple(boxes.shape) != (cells, 2 * axes):
        words = "x0 y0 x1 y1" if axes == 2 else "start stop"
        raise BadChoice(
            f"maps {_shape(values)} need boxes {cells},{2 * axes}: {words} of each cell in reading order; "
            f"got {_shape(boxes)}"
        )


@dataclass(frozen=True)
class _Layout:
    """What follows from the boxes alone."""

    padded: Real  # P+1,4: the boxes, and one of zeros that stands for none
    clash: "Clash"


@lru_cache(maxsize=64)  # batch after batch has the same boxes
def _layout(raw: bytes, kind: str, shape: tuple[int, ...], grid: tuple[int, ...], overlap: float) -> _Layout:
    corners: Real = np.frombuffer(raw, dtype=kind).reshape(shape).astype(np.float64)
    axes = len(grid)
    if not (np.isfinite(corners).all() and (corners[:, :axes] <= corners[:, axes:]).all()):
        raise BadChoice("boxes are finite, and none stops before it starts (x0 <= x1, y0 <= y1)")
    clash = _on_lattice(corners, grid, overlap) or _of_boxes(corners, overlap)
    return _Layout(np.concatenate([corners, np.zeros((1, corners.shape[1]))]), clash)


def _shape(tensor: Tensor) -> str:
    return ",".join(map(str, tensor.shape)) or "a single number"


def _ranked(flat: Tensor, most: int) -> Whole:
    """The best cells of every map, best first, ties in reading order: M,N. The number of cells stands for a NaN."""
    exact = flat.numpy() if flat.dtype == torch.float64 else flat.float().numpy()
    step = max(1, BLOCK // flat.shape[1])
    ranked = np.empty((most, len(flat)), dtype=np.int64)
    for start in range(0, len(flat), step):
        block = exact[start : start + step]
        quick = flat.dtype != torch.float64 and not np.isnan(block.max())  # the largest is NaN where any is
        ranked[:, start : start + step] = (_best_by_keys if quick else _best)(block, most).T
    return ranked


def _best(values: NDArray[np.floating], most: int) -> Whole:
    falling = -values
    best = np.argsort(falling, axis=1, kind="stable")[:, :most]  # NaN comes last
    return np.where(np.isnan(np.take_along_axis(falling, best, axis=1)), values.shape[1], best)


def _best_by_keys(values: NDArray[np.float32], most: int) -> Whole:
    """The same for floats without NaN, by whole numbers that sort as (-value, index) do: many times as fast."""
    falling = np.float32(0) - values  # not -values: 0 and -0 are a tie
    bits = falling.view(np.int32)
    order = bits >> 31
    order &= 0x7FFFFFFF  # bits of negative numbers grow with their size: they are turned round
    order ^= bits
    if most < values.shape[1]:
        last = np.partition(order, most - 1, axis=1)[:, most - 1]  # N: the least that is good enough
        good = np.flatnonzero(order <= last[:, None])
        if len(good) == most * len(values):  # no tie at the border: so many in every map
            places: Whole = good.reshape(-1, most)
            few = np.left_shift(order.take(places), 32, dtype=np.int64)
            few |= places - (np.arange(len(values)) * values.shape[1])[:, None]
            sorted_few: Whole = np.sort(few, axis=1) & 0xFFFFFFFF
            return sorted_few
    keys = np.left_shift(order, 32, dtype=np.int64)
    keys |= np.arange(values.shape[1])
    keys.partition(most - 1, axis=1)
    best: Whole = np.sort(keys[:, :most], axis=1) & 0xFFFFFFFF
    return best


class Clash(Protocol):
    """Which boxes overlap too much, told by codes that stand for cells; the last code stands for none."""

    @property
    def codes(self) -> Whole: ...  # P+1  of each cell

    @property
    def cells(self) -> Whole: ...  # of each code

    def __call__(self, one: Whole, others: Whole) -> NDArray[np.bool_]: ...  # N  C,N -> C,N


def _walk(candidates: Whole, clash: Clash, most: int) -> Whole:
    """Lines 2 to 12 of Algorithm 1: the codes of the picks, K,N."""
    ranks, maps = candidates.shape
    none = int(clash.codes[-1])
    picked = np.full((most + ranks, maps), none)  # what comes after the K-th is written too, and not looked at
    flat = picked.reshape(-1)
    free, end = np.arange(maps), most * maps  # where in `flat` each map's next pick goes; where it has all
    for rank, one in enumerate(candidates):
        if rank >= most and free.min(initial=end) == end:
            break
        new = np.where(clash(one, picked[: min(rank, most)]).any(0), none, one)
        flat[free] = new
        free += (new != none) * maps
    return picked[:most]


@dataclass(frozen=True)
class _OfBoxes:
    """Boxes of any sizes: the IoU is worked out each time, and a cell is its own code."""

    codes: Whole
    cells: Whole
    starts: Sequence[Real]  # of each axis: P+1
    stops: Sequence[Real]
    area: Real
    overlap: float

    def __call__(self, one: Whole, others: Whole) -> NDArray[np.bool_]:
        sides = []
        for start, stop in zip(self.starts, self.stops, strict=True):
            side = np.minimum(stop.take(one, mode="clip"), stop.take(others, mode="clip"))  # C,N
            side -= np.maximum(start.take(one, mode="clip"), start.take(others, mode="clip"))
            sides.append(np.maximum(side, 0, out=side))
        shared = reduce(np.multiply, sides)
        return _too_much(shared, self.area.take(one, mode="clip") + self.area.take(others, mode="clip"), self.overlap)


def _of_boxes(corners: Real, overlap: float) -> _OfBoxes:
    padded = np.concatenate([corners, np.zeros((1, corners.shape[1]))])
    starts, stops = np.split(padded.T.copy(), 2)
    cells = np.arange(len(padded))
    return _OfBoxes(cells, cells, tuple(starts), tuple(stops), (stops - starts).prod(0), overlap)


@dataclass(frozen=True)
class _OnLattice:
    """Boxes of one size at even steps: two clash or not by how many cells they are apart, which is looked up."""

    codes: Whole
    cells: Whole
    table: NDArray[np.bool_]  # by the difference of two codes
    middle: int  # where in it the difference 0 is: negative places would take twice as long

    def __call__(self, one: Whole, others: Whole) -> NDArray[np.bool_]:
        return self.table.take((one + self.middle) - others, mode="clip")


def _on_lattice(corners: Real, grid: tuple[int, ...], overlap: float) -> _OnLattice | None:
    """None where boxes are not such, or not in whole pixels: then rounding could tell equal steps apart."""
    if (corners != np.rint(corners)).any() or np.abs(corners).max() >= 2**25:
        return None
    axes, cells = len(grid), len(corners)
    sides = corners[:, axes:] - corners[:, :axes]
    if (sides != sides[0]).any():
        return None
    shared, codes = np.ones(1), np.zeros(1, dtype=np.int64)
    for axis, length in enumerate(grid):
        column = axes - 1 - axis  # x is the last axis
        starts = corners[:, column].reshape(-1, length, math.prod(grid[axis + 1 :]))
        step = (starts[0, -1, 0] - starts[0, 0, 0]) / max(1, length - 1)
        numbers = np.arange(1 - length, length)
        if (starts != starts[0, 0, 0] + (step * numbers[length - 1 :])[:, None]).any():
            return None
        shared = np.multiply.outer(shared, np.maximum(sides[0, column] - np.abs(step * numbers), 0)).reshape(-1)
        codes = np.add.outer(codes * (2 * length - 1), numbers[length - 1 :]).reshape(-1)
    last = int(codes[-1])
    none = 2 * last + 1  # further from every cell's code than these are from one another
    table = np.zeros(none + last + 2, dtype=np.bool_)
    table[none - last : -1] = _too_much(shared, 2 * sides[0].prod(), overlap)
    found = np.full(none + 1, cells)
    found[codes] = np.arange(cells)
    return _OnLattice(np.append(codes, none), found, table, middle=none)


def _too_much(shared: Real, areas: Real, overlap: float) -> NDArray[np.bool_]:
    """Is the IoU, Eq. 5, at least T? Boxes without area overlap nothing."""
    answer: NDArray[np.bool_] = shared / np.maximum(areas - shared, TINY) >= overlap
    return answer
