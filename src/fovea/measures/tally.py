"""Figures of every picture, gathered batch after batch, and their means."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import interval, interval_of_means
from fovea.networks import rank_of

Chosen = NDArray[np.bool_] | slice  # of the pictures
EVERY = slice(None)


@dataclass
class Tally:
    """Figures of every picture, by what they tell of, gathered batch after batch."""

    columns: dict[Hashable, list[NDArray[Any]]] = field(default_factory=dict)
    classes: dict[Hashable, int] = field(default_factory=dict)

    def put(self, key: Hashable, values: Tensor | NDArray[Any]) -> None:
        column = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        self.columns.setdefault(key, []).append(column)

    def answers(self, key: Hashable, output: Tensor, labels: Tensor) -> None:
        self.put(key, rank_of(output, labels))
        self.classes[key] = output.shape[1]

    def __getitem__(self, key: Hashable) -> NDArray[Any]:
        """Of all batches; nothing where none had any."""
        return np.concatenate(self.columns.get(key) or [np.zeros(0)])

    def top(self, key: Hashable, which: Chosen = EVERY) -> dict[str, float | None]:
        rank = self[key][which]
        return {"top1": mean(rank < 1), "top5": mean(rank < 5) if self.classes.get(key, 0) >= 5 else None}

    def together(self, keys: Sequence[Hashable]) -> dict[str, float | None]:
        """The same of several columns as one."""
        classes = max(self.classes.get(key, 0) for key in keys)
        return Tally({"": [self[key] for key in keys]}, {"": classes}).top("")


def ends(hits: NDArray[np.bool_], seed: int) -> dict[str, float | None]:
    """The 95 % interval of the share of hits, where there are any pictures."""
    return dict(zip(("low", "high"), interval(hits, seed=seed) if len(hits) else (None, None), strict=True))


def loss(
    before: NDArray[np.bool_], after: NDArray[np.bool_], seed: int, *, paired: bool = True, name: str = "loss"
) -> dict[str, float | None]:
    """What is right before less what is right after, with its interval where both are of the same pictures."""
    lost = {name: float(before.mean() - after.mean()) if len(before) and len(after) else None}
    if not paired or not len(before):
        return lost
    (low,), (high,) = interval_of_means((before.astype(float) - after)[:, None], seed)
    return {**lost, f"{name}_low": low, f"{name}_high": high}


def mean(values: NDArray[Any]) -> float | None:
    """Of the values that are numbers."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
