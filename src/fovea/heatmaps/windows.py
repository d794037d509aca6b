"""Windows of a picture too large to load: which, how a network takes them, and their maps put together.

A window's map counts by the probability that the window gives the class, and fades towards the window's edges into its
neighbors', or into the overview's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from fovea import networks
from fovea.basics import iou, tell
from fovea.basics.boxes import THRESHOLD
from fovea.networks import Network
from fovea.pictures import BigPicture, Picture, Placement, Shown, fitting, on_pixels

Box = tuple[float, float, float, float]  # x0 y0 x1 y1, in full-resolution pixels
REGIONS = 8  # that are looked into, at most
CLOSER = 4  # a region is at least so many times smaller than the picture
SIDE = 4096  # cells of the whole map a side
FAINT = 1e-3  # of what a window counts in its middle: at its edge, and the overview below it


@dataclass(frozen=True)
class Part:
    """Maps of a window, and where the window lies."""

    values: NDArray[np.float32]  # K,h,w
    placement: Placement  # of the input in full-resolution pixels
    weights: Sequence[float]  # K

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height in full-resolution pixels."""
        x0, y0, x1, y1 = self.placement.extent
        return (x1 - x0) / self.values.shape[2], (y1 - y0) / self.values.shape[1]


def on_extent(size: tuple[int, int], extent: Box, grid: Sequence[int]) -> Placement:
    """Where cells lie that divide a part of the picture evenly."""
    x0, y0, x1, y1 = extent
    scale = (x1 - x0) / grid[1], (y1 - y0) / grid[0]
    return Placement(size, (grid[1], grid[0]), scale, (x0, y0))


def within(placement: Placement, box: Box, size: tuple[int, int]) -> Placement:
    """A place on a picture that is a window of a larger one, on that."""
    wide, high = (box[2] - box[0]) / placement.picture[0], (box[3] - box[1]) / placement.picture[1]
    (sx, sy), (ox, oy) = placement.scale, placement.offset
    return Placement(size, placement.input, (sx * wide, sy * high), (box[0] + ox * wide, box[1] + oy * high))


def blended(parts: Sequence[Part], size: tuple[int, int], below: Part | None) -> NDArray[np.float32]:
    """One map per target, as fine as the finest part: K,h,w."""
    cells = [part.cell for part in parts] or [below.cell] if below else [part.cell for part in parts]
    grid = [min(-(-side // min(cell)), SIDE) for side, cell in zip(size, zip(*cells, strict=True), strict=True)]
    wide, high = (int(side) for side in grid)
    count = len((parts[0] if parts else below).values)  # type: ignore[union-attr]
    total, weight = np.zeros((count, high, wide), np.float32), np.zeros((high, wide), np.float32)
    for part in [*parts, *([below] if below else [])]:
        place = part.placement.at_size((wide, high))
        x0, y0, x1, y1 = place.window
        left, top, right, bottom = int(x0), int(y0), min(-int(-x1 // 1), wide), min(-int(-y1 // 1), high)
        moved = replace(
            place, picture=(right - left, bottom - top), offset=(place.offset[0] - left, place.offset[1] - top)
        )
        if part is below:
            counts: Any = FAINT**2
        else:
            down, across = _fading(top, bottom, y0, y1), _fading(left, right, x0, x1)
            counts = down[:, None] * across
        weight[top:bottom, left:right] += counts
        for number, (values, share) in enumerate(zip(part.values, part.weights, strict=True)):
            total[number, top:bottom, left:right] += counts * share * on_pixels(values, moved)
    return np.divide(total, weight, out=total, where=weight > 0)


def _fading(first: int, last: int, start: float, stop: float) -> NDArray[np.float32]:
    """From 1 in the middle of a window to almost nothing at its ends."""
    place = (np.arange(first, last) + 0.5 - start) / (stop - start)
    return np.where((place > 0) & (place < 1), (1 - abs(2 * place - 1)).clip(FAINT), 0).astype(np.float32)


def windows_in(region: Box, size: tuple[int, int], window: tuple[float, float]) -> list[Box]:
    """Windows of a size that cover a region, half over one another, moved into the picture; one where it suffices."""
    spans = []
    for axis in (0, 1):
        first, last, side, length = region[axis], region[axis + 2], min(window[axis], size[axis]), size[axis]
        count = max(-int(-(last - first - side) // (side / 2)), 0) + 1 if last - first > side * 1.001 else 1
        middle = (first + last - side) / 2
        starts = np.linspace(first, last - side, count) if count > 1 else np.array([middle])
        spans.append([(float(start), float(start + side)) for start in starts.clip(0, length - side)])
    return [(x0, y0, x1, y1) for y0, y1 in spans[1] for x0, x1 in spans[0]]


def closer_regions(cells: NDArray[np.float32], placement: Placement) -> list[tuple[Box, float]]:
    """Where a map is highest, one place after the other: the box of what is above a share of its range around each, at
    least a few times smaller than the picture, and the map's mean there."""
    fine = placement.to_draw
    values = on_pixels(np.maximum(cells, 0), fine)
    least, found = THRESHOLD * float(values.max()), list[tuple[Box, float]]()
    across, down = (max(side // CLOSER, 1) for side in fine.picture)
    scale = np.divide(placement.picture * 2, fine.picture * 2)
    while len(found) < REGIONS:
        near = ndimage.uniform_filter(values, (max(down // 2, 1), max(across // 2, 1)), mode="constant")
        y, x = np.unravel_index(int(near.argmax()), near.shape)
        if not near[y, x] > least:
            break
        left, top = (min(max(int(at) - side // 2, 0), most - side)
                     for at, side, most in zip((x, y), (across, down), fine.picture, strict=True))  # fmt: skip
        part = values[top : top + down, left : left + across]
        rows, columns = (np.flatnonzero((part >= least).any(axis)) for axis in (1, 0))
        box = (left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1)
        x0, y0, x1, y1 = (scale * box).tolist()
        found.append(((x0, y0, x1, y1), float(part.mean())))
        part[:] = 0
    return found


def apart(found: Iterable[tuple[Box, float]], overlap: float = 0.3, most: int = REGIONS) -> list[Box]:
    """The best boxes of which none is much over another."""
    kept = list[Box]()
    for box, _ in sorted(found, key=lambda row: -row[1]):
        if len(kept) < most and (not kept or iou([box], kept).max() < overlap):
            kept.append(box)
    return kept


@dataclass(frozen=True)
class Viewed:
    """A big picture that a network looks at, in windows as large as the network's input."""

    network: Network
    picture: Picture
    big: BigPicture

    @property
    def whole(self) -> Box:
        return 0.0, 0.0, float(self.big.size[0]), float(self.big.size[1])

    @property
    def input(self) -> tuple[int, int]:
        """Height and width of the network's input."""
        return tuple(networks.blank(self.network).shape[2:])  # type: ignore[return-value]

    def windows(self, regions: Iterable[Box], resolution: float | None = None) -> list[Box]:
        """Windows of the network's proportions, of its size at this resolution; else each as large as its region, but
        no smaller than the input."""
        found = list[Box]()
        high, wide = self.input
        for region in regions:
            share = resolution or min(1.0, wide / (region[2] - region[0]), high / (region[3] - region[1]))
            found += windows_in(region, self.big.size, (wide / share, high / share))
        return found

    def taken(self, boxes: Sequence[Box], batch: int) -> Iterator[tuple[Tensor, list[Shown]]]:
        """The windows as the network takes them, some at a time; where they lie is in full-resolution pixels."""
        rows = list[tuple[Tensor, Shown]]()
        for number, box in enumerate(boxes):
            tell(f"window {number + 1:,} of {len(boxes):,}")
            most = 2 * self.input[1], 2 * self.input[0]
            image = self.big.read(box, fitting((round(box[2] - box[0]), round(box[3] - box[1])), most))
            tensor, placement = networks.as_taken(self.network, image)
            row = tensor, Shown(self.picture.name, within(placement, box, self.big.size), self.picture)
            if rows and (len(rows) == batch or rows[0][0].shape != tensor.shape):
                yield self._batch(rows)
                rows = []
            rows.append(row)
        if rows:
            yield self._batch(rows)
        tell("")

    def _batch(self, rows: list[tuple[Tensor, Shown]]) -> tuple[Tensor, list[Shown]]:
        tensors = torch.stack([tensor for tensor, _ in rows])
        return tensors.to(self.network.device, self.network.dtype), [shown for _, shown in rows]
