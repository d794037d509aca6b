"""Which classes are taken for which."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

ELSEWHERE = "another class"


@dataclass(frozen=True)
class Confusion:
    """N pictures' true classes, what they were taken for (outputs of the network both), and the classes' names."""

    true: NDArray[np.int64]
    taken: NDArray[np.int64]
    names: Mapping[int, str]

    @property
    def classes(self) -> list[int]:
        """The classes that occur in the data; a network may know others beside them."""
        return np.unique(self.true).tolist()

    def matrix(self) -> NDArray[np.int64]:
        """K,K+1: pictures of a class (row) taken for another (column); the last column is classes not in the data."""
        own = np.array(self.classes)
        row, column = np.searchsorted(own, self.true), np.searchsorted(own, self.taken).clip(max=len(own) - 1)
        column[own[column] != self.taken] = len(own)
        counts = np.zeros((len(own), len(own) + 1), dtype=np.int64)
        np.add.at(counts, (row, column), 1)
        return counts

    def per_class(self) -> list[dict[str, Any]]:
        """The share of each class's pictures that was right."""
        right = self.true == self.taken
        classes = ((self.names[label], right[self.true == label]) for label in self.classes)
        return [{"class": name, "images": len(hits), "top1": float(hits.mean())} for name, hits in classes]

    def pairs(self, most: int) -> list[dict[str, Any]]:
        """What is most often taken for what."""
        wrong = self.true != self.taken
        times = Counter(zip(self.true[wrong].tolist(), self.taken[wrong].tolist(), strict=True))
        of = Counter(self.true.tolist())
        order = sorted(times.items(), key=lambda one: (-one[1], -one[1] / of[one[0][0]], one[0]))
        return [
            {"class": self.names[own], "taken_for": self.names[other], "times": n, "of": of[own]}
            for (own, other), n in order[:most]
        ]

    def table(self) -> dict[str, Any]:
        """The whole matrix as JSON has it."""
        names = [self.names[label] for label in self.classes]
        return {"classes": names, "taken_for": [*names, ELSEWHERE], "counts": self.matrix().tolist()}

    def figure(self, title: str = "") -> Figure:
        """A picture of the matrix: each row is a class, the brighter, the larger the share taken for the column's."""
        counts = self.matrix()
        names = [self.names[label] for label in self.classes]
        if counts[:, -1].any():
            across = [*names, ELSEWHERE]
        else:
            across, counts = names, counts[:, :-1]
        shares = counts / counts.sum(1, keepdims=True)
        few = len(across) <= 60
        side = max(4.0, 0.28 * len(across)) if few else 12.0
        figure = Figure(figsize=(side + 3.5, side + 2.5), layout="constrained", dpi=120)
        axes = figure.add_subplot()
        drawn = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
        figure.colorbar(drawn, ax=axes, label="share of the class's pictures", shrink=0.8)
        axes.set(title=title, xlabel="taken for", ylabel="true class")
        if few:
            axes.set_xticks(range(len(across)), across, rotation=90, fontsize=8)
            axes.set_yticks(range(len(names)), names, fontsize=8)
        if len(across) <= 20:
            for (y, x), share in np.ndenumerate(shares):
                if counts[y, x]:
                    ink = "black" if share > 0.6 else "white"
                    axes.text(x, y, str(counts[y, x]), ha="center", va="center", fontsize=7, color=ink)
        return figure
