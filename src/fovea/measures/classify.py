"""Classification: how often a network is right, how sure that is, and which classes it takes for which."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics.errors import BadChoice
from fovea.basics.intervals import interval
from fovea.data import DataSet
from fovea.measures.confusion import Confusion
from fovea.measures.figures import Figures
from fovea.networks.matching import Matching, match, width_of
from fovea.networks.network import Network
from fovea.networks.stream import input_of, outputs, rank_of

SMALL, PAIRS, RESAMPLES = 100, 50, 10_000  # classes whose whole matrix is written; confused pairs written; resamples


@dataclass(frozen=True)
class Classified(Figures):
    """The figures, and beside them what each picture was taken for."""

    confusion: Confusion = field(kw_only=True)


def measure(
    network: Network,
    data: DataSet,
    batch: int = 16,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Classified:
    """One row: top-1 with its 95 % interval by bootstrap over the pictures, and top-5. A tie is not a hit."""
    if not network.labels:
        raise BadChoice(
            "this network has no labels, so it is taken for an embedding: measure retrieval, or wrap it with labels="
        )
    skipped: list[tuple[str, str]] = []
    ranks: list[NDArray[np.int64]] = []
    true: list[int] = []
    taken: list[int] = []
    matching, width, lost = Matching({}, ""), 0, 0
    for samples, output in outputs(network, data, batch, skipped, progress):
        if not ranks:
            width = width_of(output)
            matching = match(network, data, width)
        labels = matching.of(samples)
        ranks.append(rank_of(output, labels))
        true += labels.tolist()
        taken += taken_for(output, labels, ranks[-1])
        lost += int((~output.isfinite()).any(1).sum())
    rank = np.concatenate(ranks)
    low, high = interval(rank < 1, resamples=RESAMPLES, seed=seed)
    row = {
        "net": network.name or "network",
        "data": data.name,
        "images": len(rank),
        "top1": float((rank < 1).mean()),
        "top5": float((rank < 5).mean()) if width >= 5 else None,
        "low": low,
        "high": high,
    }
    settings = {
        "data": data.name,
        "input": input_of(network),
        "labels": f"matched by {matching.how}",
        "outputs": width,
        "classes": len(matching.outputs),
        "interval": f"95 % of top1, percentiles of {RESAMPLES:,} bootstrap resamples of the pictures, seed {seed}",
        "not_finite": lost,
        "skipped": len(skipped),
    }
    confusion = Confusion(np.array(true), np.array(taken), _names(network, data, matching, {*true, *taken}))
    details: dict[str, Any] = {"per_class": confusion.per_class(), "most_confused": confusion.pairs(PAIRS)}
    if len(confusion.classes) <= SMALL:
        details["confusion"] = confusion.table()
    return Classified("classify", settings, [row], skipped, details, confusion=confusion)


def taken_for(output: Tensor, labels: Tensor, rank: NDArray[np.int64]) -> list[int]:
    """The class that each picture was taken for: its own if no other scores as high, else the best of the others."""
    others = output.scatter(1, labels.to(output.device).unsqueeze(1), -torch.inf).argmax(1).cpu()
    found: list[int] = torch.where(torch.from_numpy(rank) < 1, labels, others).tolist()
    return found


def _names(network: Network, data: DataSet, matching: Matching, used: set[int]) -> Mapping[int, str]:
    """The data's own names where it has names, the network's otherwise."""
    own = {output: data.labels[label] for label, output in matching.outputs.items() if label < len(data.labels)}
    return {one: own[one] if one in own and not own[one].isdecimal() else network.label(one) for one in used}
