"""Classification: how often a network is right, how sure that is, and which classes it takes for which."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import RESAMPLES, BadChoice, by_bootstrap, interval
from fovea.data import DataSet
from fovea.measures import Figures, Run, Tally, measure
from fovea.measures.confusion import Confusion
from fovea.networks import Matching, Network, match, outputs, rank_of, width_of

SMALL, PAIRS = 100, 50  # classes whose whole matrix is written; confused pairs written


@measure(
    "classify",
    title="Classification",
    about="Classification: top-1 and top-5, how sure they are, and which classes are taken for which.",
    needs=("labels",),
    fit="crop",
    any_size=True,
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
    for samples, output in outputs(network, run.data, batch, run.skipped, run.progress):
        matching = matching if tally.columns else match(network, run.data, width_of(output))
        labels = matching.of(samples)
        tally.answers("top", output, labels)
        tally.put("true", labels)
        tally.put("taken", np.array(taken_for(output, labels, rank_of(output, labels))))
        lost += int((~output.isfinite()).any(1).sum())
    width, true, taken = tally.classes["top"], tally["true"], tally["taken"]
    low, high = interval(tally["top"] < 1, resamples=RESAMPLES, seed=seed)
    row = {
        "net": network.name or "network",
        "data": run.data.name,
        "images": len(true),
        **tally.top("top"),
        "low": low,
        "high": high,
    }
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
    return [
        f"by class: from {worst:.3f} ({hard}) to {best:.3f} ({easy})",
        f"{settings['classes']} classes, {settings['outputs']} outputs, {settings['labels']}",
    ]


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
