"""The figures of localization as plain functions on maps and boxes, whatever made them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter

from fovea.basics import iou, normalized, segments
from fovea.pictures import Placement, on_pixels

Hits = NDArray[np.bool_]
Sides = Sequence[float]
Best = tuple[NDArray[np.float64], NDArray[np.float64]]  # IoUs by threshold: of the largest segment, of any
THRESHOLDS = tuple(np.round(np.arange(0.01, 1.0, 0.01), 2).tolist())
IOUS = (0.3, 0.5, 0.7)
APART = "at a threshold chosen on other pictures: every second one at the best of those between them"
FIXED = 0.2  # as CAM's authors have it for all pictures; like the others, of what lies between a map's ends


@dataclass(frozen=True)
class Localized:
    """What one method's boxes reached on I pictures at every threshold: I,T best IoUs with any true box."""

    largest: NDArray[np.float64]  # of the largest segment's box
    any_one: NDArray[np.float64]  # of the best segment's box

    @property
    def threshold(self) -> float:
        """The best one for the whole set."""
        return THRESHOLDS[max_box_acc(self.largest)[1]]


def box_accuracy(ious: NDArray[np.float64], at_least: float = 0.5) -> NDArray[np.float64]:
    """Share of pictures whose box is right, per threshold."""
    return (ious >= at_least).mean(axis=0)


def max_box_acc(largest: NDArray[np.float64], at_least: float = 0.5) -> tuple[float, int]:
    """The best accuracy that one threshold for the whole set reaches, and which threshold (the first of equals)."""
    accuracy = box_accuracy(largest, at_least)
    best = int(accuracy.argmax())
    return float(accuracy[best]), best


def max_box_acc_v2(any_one: NDArray[np.float64]) -> float:
    """Mean over IoU 0.3, 0.5 and 0.7, each at its own best threshold for the whole set, any segment's box counting."""
    return float(np.mean([max_box_acc(any_one, at_least)[0] for at_least in IOUS]))


def right_apart(largest: NDArray[np.float64]) -> Hits:
    """Whether the box of each picture is right at a threshold that is best for other pictures: of those in even places
    that of the odd ones, and the reverse."""
    right = np.zeros(len(largest), dtype=bool)
    for first in (0, 1) if len(largest) > 1 else ():
        _, best = max_box_acc(largest[1 - first :: 2])
        right[first::2] = largest[first::2, best] >= 0.5
    return right


def scores(found: Localized, top1: Hits, top5: Hits | None, thresholds: Sides = THRESHOLDS) -> dict[str, float | None]:
    """Every figure of the protocol. `top1`, `top5`: was the class right, None where there are fewer than five classes.
    The threshold is one for the whole set, its best; beside it a fixed one, and one chosen on other pictures."""
    gt_known, best = max_box_acc(found.largest)
    right, fixed = found.largest[:, best] >= 0.5, found.largest[:, np.searchsorted(thresholds[:-1], FIXED)] >= 0.5
    apart = right_apart(found.largest)
    return {
        "top1": float(top1.mean()),
        "top5": None if top5 is None else float(top5.mean()),
        "top1_loc": float((right & top1).mean()),
        "top5_loc": None if top5 is None else float((right & top5).mean()),
        "gt_known": gt_known,
        "max_box_acc": gt_known,
        "max_box_acc_v2": max_box_acc_v2(found.any_one),
        "threshold": float(thresholds[best]),
        "top1_loc_fixed": float((fixed & top1).mean()),
        "gt_known_fixed": float(fixed.mean()),
        "top1_loc_apart": float((apart & top1).mean()),
        "gt_known_apart": float(apart.mean()),
    }


def iou_by_threshold(values: NDArray[np.floating], truth: Sequence[Sides], thresholds: Sides = THRESHOLDS) -> Best:
    """For every threshold, the best IoU with any true box: of the largest segment's box, and of any segment's box."""
    scaled = normalized(values)
    rows, columns = scaled.max(1), scaled.max(0)
    largest, any_one = np.zeros(len(thresholds)), np.zeros(len(thresholds))
    if scaled.max() <= 0:
        return largest, any_one
    peaks = np.sort(scaled[scaled == maximum_filter(scaled, 3)])
    whole_with = -1  # how many peaks were above the last threshold, where all that was above it was one segment
    drawn: list[tuple[int, NDArray[np.int64], int]] = []  # at which threshold, the boxes, which is the largest
    for i in np.argsort(thresholds)[::-1]:
        y, x = np.flatnonzero(rows >= thresholds[i]), np.flatnonzero(columns >= thresholds[i])
        if not len(y):
            continue
        above = len(peaks) - int(np.searchsorted(peaks, scaled.dtype.type(thresholds[i])))
        if above == whole_with:  # every segment holds a peak, and these were in one already
            drawn.append((i, np.array([[x[0], y[0], x[-1] + 1, y[-1] + 1]]), 0))
            continue
        # only the part that holds the mask is searched
        boxes, sizes = segments(scaled[y[0] : y[-1] + 1, x[0] : x[-1] + 1] >= thresholds[i])
        drawn.append((i, boxes + np.array([x[0], y[0], x[0], y[0]]), int(sizes.argmax())))
        whole_with = above if len(sizes) == 1 else -1
    found = iou(np.concatenate([boxes for _, boxes, _ in drawn]), truth).max(1)
    first = 0
    for i, boxes, most in drawn:
        own = found[first : first + len(boxes)]
        largest[i], any_one[i] = own[most], own.max()
        first += len(boxes)
    return largest, any_one


def ious_of(cells: NDArray[np.float32], placement: Placement, truth: Sequence[Sides]) -> Best:
    """The same for a map of cells, clipped at 0 and then upsampled to the user's pixels."""
    return iou_by_threshold(on_pixels(cells.clip(0), placement), truth)
