"""Where the network's input lies in the user's picture, and maps carried over to the user's pixels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import boxes

NEAR = 1e-6  # of a cell, which is none of it
# pixels: on a larger picture a map is as fine as this where boxes are found, and as that where it is only drawn
FINE, DRAWN = 32_000_000, 1_440_000
REGIONS = 16  # of one map, at most


@dataclass(frozen=True)
class Placement:
    """Which part of the user's picture the network's input shows: user = input * scale + offset, in x and in y."""

    picture: tuple[int, int]  # width, height in the user's pixels
    input: tuple[int, int]  # width, height in the network's
    scale: tuple[float, float]
    offset: tuple[float, float]

    @staticmethod
    def identity(width: int, height: int) -> "Placement":
        return Placement((width, height), (width, height), (1.0, 1.0), (0.0, 0.0))

    @property
    def window(self) -> tuple[float, float, float, float]:
        """The box of the user's picture that the network was shown."""
        (sx, sy), (ox, oy), (w, h) = self.scale, self.offset, self.input
        xs, ys = sorted((ox, ox + sx * w)), sorted((oy, oy + sy * h))
        return max(xs[0], 0.0), max(ys[0], 0.0), min(xs[1], self.picture[0]), min(ys[1], self.picture[1])

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """The box of the whole input, which may reach over the picture."""
        (sx, sy), (ox, oy), (w, h) = self.scale, self.offset, self.input
        return ox, oy, ox + sx * w, oy + sy * h

    @property
    def to_draw(self) -> "Placement":
        return self.at_most(DRAWN)

    def at_most(self, pixels: int) -> "Placement":
        """The same place on a picture of no more pixels than this."""
        shrink = math.ceil(math.sqrt(self.picture[0] * self.picture[1] / pixels))
        return self if shrink < 2 else self.at_size((-(-self.picture[0] // shrink), -(-self.picture[1] // shrink)))

    def at_size(self, size: tuple[int, int]) -> "Placement":
        """The same place on the picture drawn smaller or larger."""
        x, y = size[0] / self.picture[0], size[1] / self.picture[1]
        (sx, sy), (ox, oy) = self.scale, self.offset
        return Placement(size, self.input, (sx * x, sy * y), (ox * x, oy * y))


def box_on_pixels(
    cells: NDArray[np.float32],
    placement: Placement,
    box_of: Callable[[NDArray[np.float32]], NDArray[np.int64]],
    most: int = FINE,
) -> NDArray[np.int64]:
    """The box that a rule draws around a map on the user's pixels; on one of more than `most`, to within a few."""
    fine = placement.at_most(most)
    return enlarged(box_of(on_pixels(cells, fine)), fine, placement)


def regions_on(
    cells: NDArray[np.float32], placement: Placement, most: int = REGIONS
) -> list[tuple[tuple[float, float, float, float], float]]:
    """The boxes of a map's segments (boxes.THRESHOLD_RULE) on the user's pixels, each with its share of the map's
    evidence; those with most first."""
    fine = placement.to_draw
    values = on_pixels(np.maximum(cells, 0), fine)
    scaled = boxes.normalized(values)
    if not scaled.max() > 0:
        return []
    found, _ = boxes.segments(scaled >= boxes.THRESHOLD)
    total = float(values.sum(dtype=np.float64))
    shares = np.array([values[y0:y1, x0:x1].sum(dtype=np.float64) / total for x0, y0, x1, y1 in found.tolist()])
    across, down = np.divide(placement.picture, fine.picture)
    order = np.argsort(-shares, kind="stable")[:most]
    sides = (found[order] * [across, down, across, down]).tolist()
    return [((x0, y0, x1, y1), float(share)) for (x0, y0, x1, y1), share in zip(sides, shares[order], strict=True)]


def enlarged(box: NDArray[np.int64], fine: Placement, placement: Placement) -> NDArray[np.int64]:
    """A box on a picture that was drawn smaller, on the picture itself."""
    if fine is placement:
        return box
    sides = np.rint(box * np.divide(placement.picture * 2, fine.picture * 2)).astype(np.int64)
    return np.minimum(sides, placement.picture * 2)


def on_pixels(cells: NDArray[np.float32], placement: Placement) -> NDArray[np.float32]:
    """Bilinear between cell centers, held at the border cells, zero outside what the network was shown."""
    (width, height), (w, h) = placement.picture, placement.input
    rows = weights(height, cells.shape[0], h, placement.scale[1], placement.offset[1])  # H,h
    columns = weights(width, cells.shape[1], w, placement.scale[0], placement.offset[0])  # W,w
    return _spread(rows, cells, columns)


def by_centers(cells: NDArray[np.float32], side: int, placement: Placement) -> NDArray[np.float32]:
    """A map whose cells see patches of this side, the first at the input's start: values at the patches' middles.

    Nothing where no patch has its middle, which `middles` tells."""
    x0, y0, x1, y1 = middles(cells.shape, side, placement)
    columns = _of_centers(placement.picture[0], cells.shape[1], x0, x1)
    rows = _of_centers(placement.picture[1], cells.shape[0], y0, y1)
    return _spread(rows, cells, columns)


def middles(grid: tuple[int, ...], side: int, placement: Placement) -> tuple[float, float, float, float]:
    """The box of the user's picture that holds the patches' middles, half a step more on every side."""
    ends = []
    for axis, cells in ((0, grid[1]), (1, grid[0])):
        step = (placement.input[axis] - side) // max(cells - 1, 1) or 1
        first = side / 2 - step / 2
        scale, offset = placement.scale[axis], placement.offset[axis]
        ends.append((first * scale + offset, (first + cells * step) * scale + offset))
    (x0, x1), (y0, y1) = ends
    return x0, y0, x1, y1


def _spread(rows: NDArray[np.float32], cells: NDArray[np.float32], columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """rows cells columns^T by torch: numpy's product has threads of its own, which go on waiting for work on the cores
    that torch's next layer needs, and make that several times slower."""
    r, c, k = (torch.from_numpy(np.ascontiguousarray(part, dtype=np.float32)) for part in (rows, cells, columns))
    pixels: NDArray[np.float32] = (r @ c @ k.T).numpy()
    return pixels


def _of_centers(pixels: int, cells: int, start: float, stop: float) -> NDArray[np.float32]:
    inside = (np.arange(pixels) + 0.5 - start) / (stop - start) * cells  # in cells
    return _between(inside - 0.5, cells, (inside < 0) | (inside > cells))


def weights(pixels: int, cells: int, length: int, scale: float, offset: float) -> NDArray[np.float32]:
    """How much each cell of an axis counts at each of the user's pixels; cells of padding alone count nowhere."""
    inside = (np.arange(pixels) + 0.5 - offset) / scale  # in input pixels
    start, stop = (min(max(end, 0.0), length) for end in sorted((-offset / scale, (pixels - offset) / scale)))
    first, last = math.floor(start / length * cells + NEAR), math.ceil(stop / length * cells - NEAR) - 1
    place = (inside / length * cells - 0.5).clip(min(first, cells - 1), max(last, 0))
    return _between(place, cells, (inside < 0) | (inside > length))


def _between(place: NDArray[np.floating], cells: int, outside: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Straight lines between neighboring cells, held at the first and the last; nothing outside."""
    place = place.clip(0, cells - 1)
    left = np.floor(place).astype(int)
    right = np.minimum(left + 1, cells - 1)
    matrix = np.zeros((len(place), cells), dtype=np.float32)
    index = np.arange(len(place))
    np.add.at(matrix, (index, left), 1 - (place - left))
    np.add.at(matrix, (index, right), place - left)
    matrix[outside] = 0
    return matrix


def inwards(boxes: Sequence[Sequence[float]], placement: Placement) -> Tensor:
    """A picture's boxes in the network's input: K,4."""
    scale, offset = torch.tensor(placement.scale * 2), torch.tensor(placement.offset * 2)
    return (torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4) - offset) / scale
