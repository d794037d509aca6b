"""Classification: how often a network is right, how sure that is, and which classes it takes for which."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import RESAMPLES, BadChoice, by_bootstrap, interval
from fovea.data import DataSet
from fovea.measures import Figures, Run, Tally, measure
from fovea.networks import Matching, Network, match, outputs, rank_of, width_of

SMALL, PAIRS = 100, 50  # classes whose whole matrix is written; confused pairs written
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
        named = ((self.names[own], self.names[other], n, of[own]) for (own, other), n in order[:most])
        return [dict(zip(("class", "taken_for", "times", "of"), row, strict=True)) for row in named]

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


@measure(
    "classify",
    title="Classification",
    about="How many pictures a classifier gets right (top-1, top-5), how well its probabilities hold, and which "
    "classes it confuses.",
    example="--data photos/ --net mine.safetensors",
    needs=("labels",),
    fit="crop",
    any_size=True,
    spread=True,
    columns=("net", "data", "images", "top1", "top5"),
    interval="top1",
    figure="draw",
)
def classify(run: Run, *, batch: int = 16, seed: int = 0) -> Figures:
    """One row: top-1 with its 95 % interval by bootstrap over the pictures, and top-5. A tie is not a hit."""
    network = run.network
    if not network.labels:
        raise BadChoice("without labels this network is taken for an embedding: measure retrieval, or give labels=")
    tally, matching, lost = Tally(), Matching({}, ""), 0
    for samples, output in outputs(network, run.data, batch, run.skipped, run.progress, engine=run.engine):
        matching = matching if tally.columns else match(network, run.data, width_of(output))
        labels = matching.of(samples)
        tally.answers("top", output, labels)
        tally.put("true", labels)
        tally.put("taken", np.array(taken_for(output, labels, rank_of(output, labels))))
        lost += int((~output.isfinite()).any(1).sum())
    width, true, taken = tally.classes["top"], tally["true"], tally["taken"]
    low, high = interval(tally["top"] < 1, resamples=RESAMPLES, seed=seed)
    row = {**run.about(len(true)), **tally.top("top"), "low": low, "high": high}
    settings = {
        "labels": f"matched by {matching.how}",
        "outputs": width,
        "classes": len(matching.outputs),
        "interval": by_bootstrap("top1", seed),
        "not_finite": lost,
    }
    confusion = Confusion(true, taken, _names(network, run.data, matching, {*true.tolist(), *taken.tolist()}))
    details: dict[str, Any] = {"per_class": confusion.per_class(), "most_confused": confusion.pairs(PAIRS)}
    if len(confusion.classes) <= SMALL:
        details["confusion"] = confusion.table()
    return run.figures(
        [row],
        settings,
        details=details,
        tables={"most often confused": pairs} if (pairs := confusion.pairs(10)) else {},
        notes=_notes(confusion, settings),
        warnings=[f"the outputs of {lost} pictures hold values that are not numbers"] if lost else [],
        extra=confusion,
    )


def _notes(confusion: Confusion, settings: Mapping[str, Any]) -> list[str]:
    shares = sorted((row["top1"], row["class"]) for row in confusion.per_class())
    (worst, hard), (best, easy) = shares[0], shares[-1]
    told = f"{settings['classes']} classes, {settings['outputs']} outputs, {settings['labels']}"
    return [f"by class: from {worst:.3f} ({hard}) to {best:.3f} ({easy})", told]


def draw(found: Figures) -> Figure:
    """Which classes are taken for which."""
    row = found.rows[0]
    confusion: Confusion = found.extra
    return confusion.figure(f"{row['net']} on {row['data']}")


def taken_for(output: Tensor, labels: Tensor, rank: NDArray[np.int64]) -> list[int]:
    """The class that each picture was taken for: its own if no other scores as high, else the best of the others."""
    others = output.scatter(1, labels.to(output.device).unsqueeze(1), -torch.inf).argmax(1).cpu()
    return torch.where(torch.from_numpy(rank) < 1, labels, others).tolist()


def _names(network: Network, data: DataSet, matching: Matching, used: set[int]) -> Mapping[int, str]:
    """The data's own names where it has names, the network's otherwise."""
    own = {output: data.labels[label] for label, output in matching.outputs.items() if label < len(data.labels)}
    return {one: own[one] if one in own and not own[one].isdecimal() else network.label(one) for one in used}
