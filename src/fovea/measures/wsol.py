"""Weakly supervised localization: are the boxes of a network's heatmaps right? (L2-CAF 4.1; Choe et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fovea.data import DataSet, Sample
from fovea.measures import Figures, Run, measure, seeds
from fovea.measures.boxes import APART, FIXED, scores
from fovea.measures.localized import THRESHOLD, look, named
from fovea.measures.localized import draw as draw  # the figure of both measures
from fovea.networks import Matching, Network, match_by_trying, rank_of

RULES = ("", "_fixed", "_apart")  # of the threshold
SURE = ("top1", *(f"{key}{rule}" for rule in RULES for key in ("top1_loc", "gt_known")))  # have an interval over seeds


@measure(
    "wsol",
    title="Localization",
    chosen="threshold",
    about="Whether the boxes of heatmaps are right (weakly supervised localization). Several --net stand side by side "
    "with classification and localization (L2-CAF's Table 2), and with what each network changes beside the first. "
    "Networks whose names differ only in a last -seed0, -seed1, … share a row, with an interval.",
    example="--data cub100:split=test --net efficientnet_lite0-cub100 --method cam,gradcam,l2caf",
    nets="several",
    needs=("boxes", "labels"),
    fit="squash",
    any_size=True,
    spread=True,
    figure="draw",
    columns=(
        "net", "seeds", "method", "images", "top?", "top1_change", "top?_loc", "top1_loc_change", "gt_known",
        "gt_known_change", "gt_known_fixed", "gt_known_apart", "max_box_acc_v2", "threshold",
    ),
)  # fmt: skip
def wsol(
    run: Run, *, method: Sequence[str] = ("cam", "gradcam", "l2caf"), clip: bool = True, batch: int = 16
) -> Figures:
    """One row per network and method; pictures are decoded once for all. Maps are of the true class, as the boxes of
    GT-known and of a right prediction are; the class counts for top-1/5. Without `clip` a map counts from its least
    value on, and not from 0."""
    methods = named(method)
    classifiers = {name: _Classifier(network, run.data) for name, network in run.networks.items()}
    drawn, examples = look(run, classifiers, methods, batch, clip)
    rows = []
    for name, classifier in classifiers.items():
        rank = np.concatenate(classifier.ranks)
        for one in (one for one in methods if (name, one.name) in drawn):
            figures = scores(drawn[name, one.name], rank < 1, rank < 5 if classifier.width >= 5 else None)
            rows.append({"net": name, "method": one.name, "images": len(rank), **figures})
    several = len(run.networks) > 1
    settings = {
        "labels": f"matched by {next(iter(classifiers.values())).how}",
        "threshold": THRESHOLD,
        "fixed": f"at {FIXED} instead",
        "apart": APART,
        **({} if clip else {"clip": "none: a map counts from its least value on"}),
        "correct": "IoU of at least 0.5 with any true box",
        "max_box_acc_v2": "mean over IoU 0.3, 0.5, 0.7, each at its best threshold; the best of all segments counts",
        **(seeds.told(list(run.networks)) if several else {}),
    }
    found = seeds.together(rows, SURE) if several else rows
    return run.figures(found, settings, notes=[f"threshold: {THRESHOLD}"], extra=examples)


@dataclass
class _Classifier:
    """Maps of the true class, and how high it ranks."""

    network: Network
    data: DataSet
    ranks: list[NDArray[np.int64]] = field(default_factory=list)
    matching: Matching | None = None
    width: int = 0
    how: str = ""

    def target(self, samples: Sequence[Sample], batch: Tensor) -> Tensor:
        self.matching = self.matching or match_by_trying(self.network, self.data, batch)
        self.how = self.matching.how
        return self.matching.of(samples)

    def keep(self, samples: Sequence[Sample], output: Tensor) -> None:
        assert self.matching is not None
        self.width = output.shape[1]
        self.ranks.append(rank_of(output, self.matching.of(samples)))
