"""How sure a rate is: the interval that a bootstrap over the pictures gives, or several measurements of it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def interval(
    hits: NDArray[np.bool_], level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval of the share of hits, over resamples of the pictures with replacement."""
    # a resample of N hits and misses has a binomial number of hits, so that is drawn, N pictures in one number
    drawn = np.random.default_rng(seed).binomial(len(hits), hits.mean(), resamples) / len(hits)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def student(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a share's mean, from several measurements of it."""
    middle, count = float(np.mean(values)), len(values)
    half = float(stats.t.ppf(0.975, count - 1)) * float(np.std(values, ddof=1)) / count**0.5
    return max(middle - half, 0.0), min(middle + half, 1.0)
