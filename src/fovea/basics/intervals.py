"""How sure a figure is: the interval that a bootstrap over the pictures gives, or several measurements of it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

RESAMPLES, AT_ONCE = 10_000, 500  # of the pictures; so many are drawn at a time where pictures are no hits or misses


def interval(hits: NDArray[np.bool_], resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """The percentile interval of the share of hits, over resamples of the pictures with replacement."""
    # a resample of N hits and misses has a binomial number of hits, so that is drawn, N pictures in one number
    drawn = np.random.default_rng(seed).binomial(len(hits), hits.mean(), resamples) / len(hits)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def by_bootstrap(of: str, seed: int, over: str = "the pictures") -> str:
    """How an interval came about, for the settings of figures."""
    return f"95 % of {of}, percentiles of {RESAMPLES:,} bootstrap resamples of {over}, seed {seed}"


def interval_of_means(values: NDArray[np.float64], seed: int = 0) -> tuple[list[float], list[float]]:
    """The 95 % percentile interval of every column's mean (N,S) over resamples of the rows; NaN counts for nothing,
    nor does a resample of NaN alone."""
    quantile = np.nanquantile if np.isnan(values).any() else np.quantile  # which is quicker
    low, high = quantile(resampled_means(values, seed), [0.025, 0.975], axis=0)
    return low.tolist(), high.tolist()


def resampled_means(values: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Every column's mean (N,S) in each of the resamples of the rows, R,S: the same resamples for all values of a seed,
    so that what is computed from them is paired; NaN counts for nothing, and the mean of NaN alone is NaN."""
    known, count = ~np.isnan(values), len(values)
    filled = np.where(known, values, 0.0)
    random = np.random.default_rng(seed)
    means = []
    for start in range(0, RESAMPLES, AT_ONCE):
        # how often each picture is in a resample, which is all that a mean needs
        drawn = random.multinomial(count, np.full(count, 1 / count), min(AT_ONCE, RESAMPLES - start)).astype(np.float64)
        total, number = drawn @ filled, drawn @ known
        means.append(np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0))
    return np.concatenate(means)


def student(values: Sequence[float], least: float = 0.0, most: float = 1.0) -> tuple[float, float]:
    """The 95 % interval of a share's mean, from several measurements of it; `least` is -1 for a difference of two."""
    middle, count = float(np.mean(values)), len(values)
    half = float(stats.t.ppf(0.975, count - 1)) * float(np.std(values, ddof=1)) / count**0.5
    return max(middle - half, least), min(middle + half, most)
