"""Boxes in pixels: the box of a heatmap, and how well boxes agree.

A box is x0 y0 x1 y1, half open. For maps of other than two axes it is the starts, then the stops, last axis first."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from fovea.basics.errors import BadChoice

THRESHOLD_RULE = (
    "the map is clipped at 0 and upsampled bilinearly; pixels at or above min + t (max - min); "
    "box of the largest 8-connected segment"
)
BLUR, FINE = 1 / 56, 64  # σ of the blur as a share of the side, and the most cells per side that need none
THRESHOLD = 0.25  # what localizes best for l2caf over 3,000 ImageNet validation pictures


def normalized(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Clipped at zero (what speaks against has no box), then stretched to 0..1; a constant map becomes 0."""
    floats: NDArray[np.floating] = np.asarray(values, np.result_type(values, np.float32))
    shares: NDArray[np.floating] = np.where(np.isfinite(floats), floats, floats.dtype.type(0))
    np.maximum(shares, 0, out=shares)  # in place: a map of a large picture has millions of values
    low, high = shares.min(), shares.max()
    shares -= low
    shares /= high - low if high > low else 1
    return shares


def blurred(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A map of pixels without its grain, which would fall apart into as many segments; a map of cells as it is."""
    if min(values.shape) <= FINE:
        return values
    return ndimage.gaussian_filter(values, [BLUR * side for side in values.shape])


def segments(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Boxes (S, 2 x axes) and sizes (S) of the connected segments of a mask; diagonal neighbors are connected."""
    labels, count = ndimage.label(mask, structure=np.ones((3,) * mask.ndim, dtype=int))
    if count == 1:  # most often, and quicker to say
        axes = range(mask.ndim)
        sides = [np.flatnonzero(mask.any(axis=tuple(a for a in axes if a != axis))) for axis in axes]
        box = [side[0] for side in reversed(sides)] + [side[-1] + 1 for side in reversed(sides)]
        return np.array([box], dtype=np.int64), np.array([np.count_nonzero(mask)])
    slices = ndimage.find_objects(labels)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    boxes = [[s.start for s in reversed(slice_)] + [s.stop for s in reversed(slice_)] for slice_ in slices]
    return np.array(boxes, dtype=np.int64).reshape(count, 2 * mask.ndim), sizes


def box_of(values: NDArray[np.floating], threshold: float = THRESHOLD) -> NDArray[np.int64]:
    """The box of a map by THRESHOLD_RULE; of equal segments the first in reading order; no box is all zeros."""
    if not 0 < threshold < 1:
        raise BadChoice(f"a threshold is a share of the map's range, between 0 and 1; got {threshold}")
    scaled = normalized(values)
    if scaled.max() <= 0:
        return np.zeros(2 * values.ndim, dtype=np.int64)
    boxes, sizes = segments(scaled >= threshold)
    return boxes[int(sizes.argmax())]


def percentile_box(values: NDArray[np.floating], percentile: float = 95.0) -> NDArray[np.int64]:
    """The box of all pixels at or above a percentile of the map, connected or not, as ProtoPNet draws it: x0 y0 x1 y1.

    All zeros for a map that is the same everywhere, or not finite."""
    if values.ndim != 2:
        raise BadChoice(f"a percentile's box is drawn on a map of rows and columns; got shape {values.shape}")
    if not 0 <= percentile <= 100:
        raise BadChoice(f"a percentile is between 0 and 100; got {percentile}")
    if not values.size or not np.isfinite(values).all() or values.max() <= values.min():
        return np.zeros(4, dtype=np.int64)
    mask = values >= np.percentile(values, percentile)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=np.int64)


def iou(boxes: ArrayLike, others: ArrayLike) -> NDArray[np.float64]:
    """Intersection over union of every box (A,4) with every other (B,4): A,B."""
    a, b = (np.asarray(one, dtype=np.float64).reshape(-1, 4) for one in (boxes, others))
    overlap = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    shared: NDArray[np.float64] = np.prod(overlap.clip(0), axis=-1)
    union = area(a)[:, None] + area(b)[None, :] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def area(boxes: ArrayLike) -> NDArray[np.float64]:
    sides = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    return np.prod((sides[:, 2:] - sides[:, :2]).clip(0), axis=-1)


def best_iou(boxes: ArrayLike, truth: Sequence[Sequence[float]]) -> float:
    """The best agreement of any box with any true one."""
    found = iou(boxes, truth)
    return float(found.max()) if found.size else 0.0


def whole_pixels(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in whole pixels of a picture of this width and height, never empty."""
    width, height = size
    x0, y0 = min(max(round(box[0]), 0), width - 1), min(max(round(box[1]), 0), height - 1)
    return x0, y0, min(max(round(box[2]), x0 + 1), width), min(max(round(box[3]), y0 + 1), height)


def clipped(box: Sequence[int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The part of a box that lies in a picture of this width and height; empty when none does."""
    width, height = size
    x0, y0 = min(max(box[0], 0), width), min(max(box[1], 0), height)
    return x0, y0, max(min(box[2], width), x0), max(min(box[3], height), y0)


def union(boxes: Sequence[Sequence[float]]) -> float:
    """Pixels in at least one of the boxes, however large those are: counted on the grid of their edges."""
    xs = np.unique([side for box in boxes for side in box[::2]])
    ys = np.unique([side for box in boxes for side in box[1::2]])
    covered = np.zeros((len(ys) - 1, len(xs) - 1), dtype=bool)
    for box in boxes:
        (x0, x1), (y0, y1) = np.searchsorted(xs, box[::2]), np.searchsorted(ys, box[1::2])
        covered[y0:y1, x0:x1] = True
    return float((np.diff(ys)[:, None] * np.diff(xs))[covered].sum())
