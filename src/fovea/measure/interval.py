"""How sure a rate is: the interval that a bootstrap over the pictures gives."""

import numpy as np
from numpy.typing import NDArray


def interval(
    hits: NDArray[np.bool_], level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval of the share of hits, over resamples of the pictures with replacement."""
    # a resample of N hits and misses has a binomial number of hits, so that is drawn, N pictures in one number
    drawn = np.random.default_rng(seed).binomial(len(hits), hits.mean(), resamples) / len(hits)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
