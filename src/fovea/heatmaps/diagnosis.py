"""Why a map is blank, in words."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from torch import Tensor

from fovea.heatmaps.look import Finding
from fovea.networks import Network, Numbers, Reader
from fovea.networks.cutting import Opened

Ends = Callable[[], tuple[Numbers, Numbers]]
Words = tuple[tuple[str | None, ...], ...]


def ends_of(values: Tensor, reader: Reader) -> Ends:
    """The least and the greatest of every map, B each: what a diagnosis reads."""
    low, high = map(reader.want, values.detach().aminmax(dim=1))
    return lambda: (low(), high())


def diagnose(network: Network, findings: list[Finding], ends: list[Ends], opened: Opened) -> Words:
    """N of K: None for maps that show something, else the reason why one does not."""
    steps, columns = opened.frames or 1, []
    broken = cache(lambda: _not_a_number(network))
    dark = cache(lambda: (~opened.features.detach().flatten(1).any(1)).tolist())  # B
    for finding, read in zip(findings, ends, strict=True):
        low, high = read()
        with np.errstate(invalid="ignore"):
            blank = ~(high - low > 1e-6 * np.maximum(abs(high), abs(low)))  # also where they are not numbers
        words: list[str | None] = [None] * (len(blank) // steps)
        if blank.any():
            least, most = (end.tolist() for end in ends_of(finding.raw, Reader())())
        for row in reversed(blank.nonzero()[0].tolist()):  # the first blank frame has the last word
            if not math.isfinite(least[row]) or not math.isfinite(most[row]):
                reason = broken()
            else:
                zero = least[row] == most[row] == 0 and finding.grid is None
                reason = _why(least[row], most[row], finding.raw.shape[1], zero and dark()[row])
            words[row // steps] = f"frame {row % steps}: {reason}" if steps > 1 else reason
        columns.append(words)
    return tuple(zip(*columns, strict=True))


def _why(least: float, most: float, cells: int, dark: bool) -> str:
    """Of one map, by its raw values; `dark` is where the features of its cells are zero."""
    if cells == 1:
        return "the layer has a single cell, so there is nowhere else to look: cut at an earlier layer"
    if most <= 0 and least < 0:
        return "every cell's contribution is negative: nothing speaks for this target (gradcam-abs and l2caf show it)"
    if least == most == 0:
        if dark:
            return "the layer's features are all zero for this picture: cut at another, or check the input's scale"
        return (
            "the target does not change when the cells change (its gradient is zero): the score is saturated, "
            "as a probability near 1 is, or does not depend on this layer; explain the logit, or cut elsewhere"
        )
    return "the map is the same everywhere: every cell counts alike for this target at this layer"


def _not_a_number(network: Network) -> str:
    for name, value in [*network.module.named_parameters(), *network.module.named_buffers()]:
        if value.is_floating_point() and not bool(value.isfinite().all()):
            return f"the network's weights hold values that are not numbers (first in {name!r}): load good weights"
    words = "the network's output for this picture is not a number although its weights are"
    return f"{words}: check the picture's values, or use float32"
