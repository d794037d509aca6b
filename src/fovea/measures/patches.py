"""Patches that suffice: a classifier that reads the localised patches alone, beside one that reads whole pictures.

AnchorNet's Table 3 and Fig. 19. Pictures are decoded and localised once; patches are cut out of the picture as the
localiser takes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from fovea.basics.intervals import RESAMPLES, interval
from fovea.data import DataSet
from fovea.measures.figures import Figures
from fovea.measures.patch_parts import (
    EVERY,
    MACS,
    OVERALL,
    Chosen,
    Costs,
    Part,
    Progress,
    Row,
    Tally,
    alone,
    counts,
    demand_anchored,
    demand_read,
    demand_same_classes,
    mean,
    parts,
    settings_of,
    words,
)
from fovea.measures.plots import Rows, hatched, sheet, style
from fovea.networks.cost import macs
from fovea.networks.network import Network, as_found
from fovea.networks.normalization import WHITE, normalisation_of
from fovea.networks.stream import blank, prepared
from fovea.patches.classify import Patches, judged, patches
from fovea.patches.lip import for_test
from fovea.patches.scales import Choice, Scale

BARS = {
    "localised": "the best patch",
    "rescaled": "the picture rescaled, same network",
    "rescaled_full": "the picture rescaled, network for whole pictures",
}


def measure(
    localizer: Network,
    classifier: Network,
    full: Network,
    data: DataSet,
    settings: Choice = for_test,
    batch: int = 16,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Figures:
    """Rows of three kinds: `patches` (Table 3), `localizer` (what it decides and finds), `rescaled` (Fig. 19).

    `classifier` was trained on patches, `full` on whole pictures, which it sees as its own transform makes them.
    `settings` gives LIP's for a side and an input's size.
    """
    demand_anchored(localizer)
    nets = (localizer, classifier, full)
    ours, theirs, whole = (demand_same_classes(one, data) for one in nets)
    skipped: list[tuple[str, str]] = []
    tally, sides = Tally(), list[int]()
    for part in parts(localizer, data, batch, skipped, progress):
        samples, tensors, seen = part.samples, part.tensors, part.seen
        sides = [scale.side for scale in seen.scales]
        cut = patches(seen, settings, tensors.shape[2:])
        tally.put("chosen", seen.chosen)
        tally.put("count", counts(cut, len(tensors)))
        tally.answers("patches", judged(localizer, classifier, tensors, cut), theirs.of(samples))
        tally.answers("full", _of_whole(full, part), whole.of(samples))
        tally.answers("plain", _of_whole(classifier, part), theirs.of(samples))
        tally.answers(OVERALL, seen.output, ours.of(samples))
        for scale in seen.scales:
            best, small = _best(scale).cut(tensors), rescaled(localizer, tensors, scale.side)
            tally.answers(scale.side, scale.logits, ours.of(samples))
            tally.answers(("localised", scale.side), alone(localizer, classifier, best), theirs.of(samples))
            tally.answers(("rescaled", scale.side), alone(localizer, classifier, small), theirs.of(samples))
            tally.answers(("rescaled_full", scale.side), alone(localizer, full, small), whole.of(samples))
            hit, chance = part.in_boxes(scale)
            tally.put(("hit", scale.side), hit)
            tally.put(("chance", scale.side), chance)
    demand_read(len(tally.columns), data, skipped)
    costs = Costs.of(localizer, classifier, sides)
    about = {"localizer": localizer.name or "network", "data": data.name}
    rows = [
        *_table(tally, costs, (classifier, full), about, seed),
        *_localizers(tally, sides, about),
        *_rescaled_rows(tally, sides, {"net": classifier.name or "network", **about}),
    ]
    size = blank(localizer).shape[2:]
    told = {
        **settings_of(nets, (ours, theirs, whole), data, skipped),
        "macs": MACS,
        "lip": "; ".join(f"{side}: {words(settings(side, size))}" for side in sides),
        "interval": f"95 % of top1, percentiles of {RESAMPLES:,} bootstrap resamples of the pictures, seed {seed}",
        "centre_in_box": "of the best patch, in any true box; chance: the mean over all cells of the same branch",
        "rescaled": "the whole picture, as the localiser takes it, scaled down to the patch's size (bicubic, smoothed)",
        "localised": "the one best patch of the branch, for the class that was decided",
    }
    return Figures("patches", told, rows, skipped)


def _of_whole(network: Network, part: Part) -> Tensor:
    tensors, _, _ = prepared(network, part.samples, part.images)
    with as_found(network), torch.no_grad():
        return network(tensors)


def _best(scale: Scale) -> Patches:
    """The best patch of every picture."""
    best = scale.values.flatten(1).argmax(1).cpu()
    return Patches(scale.side, torch.arange(len(best)), scale.boxes.cpu()[best])


def rescaled(localizer: Network, tensors: Tensor, side: int) -> Tensor:
    """Whole pictures as small as a patch."""
    black, white = (normalisation_of(localizer).grey(value).to(tensors) for value in (0, WHITE))
    small = F.interpolate(tensors, (side, side), mode="bicubic", align_corners=False, antialias=True)
    return small.maximum(black).minimum(white)  # bicubic overshoots


def _table(
    tally: Tally, costs: Costs, nets: tuple[Network, Network], about: Mapping[str, Any], seed: int
) -> Iterator[Row]:
    """Table 3: whole pictures, then the patches of each scale, then all scales together."""
    classifier, full = nets
    chosen, number = tally["chosen"], tally["count"]
    sides = list(costs.patch)
    cost = np.array([costs.patch[side] for side in sides])[chosen] * number

    def row(net: Network, scale: str, key: str, which: Chosen) -> Row:
        hits = tally[key][which] < 1
        low, high = interval(hits, resamples=RESAMPLES, seed=seed) if len(hits) else (None, None)
        top = {**tally.top(key, which), "low": low, "high": high}
        named = {"kind": "patches", "net": net.name or "network", **about, "scale": scale, "images": len(hits)}
        return {**named, "patches": mean(number[which]) if key == "patches" else None, **top}

    yield {**row(full, "full", "full", EVERY), **costs.row_of_whole(macs(full, blank(full)))}
    yield {**row(classifier, "full, patch network", "plain", EVERY), **costs.row_of_whole(costs.whole)}
    for place, side in enumerate(sides):
        own = chosen == place
        yield {**row(classifier, str(side), "patches", own), **costs.row(cost[own])}
    yield {**row(classifier, OVERALL, "patches", EVERY), **costs.row(cost)}


def _localizers(tally: Tally, sides: Sequence[int], about: Mapping[str, Any]) -> Iterator[Row]:
    """What the localiser says itself, and where its best patches lie."""
    chosen = tally["chosen"]
    every = {what: np.stack([tally[(what, side)] for side in sides]) for what in ("hit", "chance")}  # J,N
    named = {"kind": "localizer", "net": about["localizer"], **about}
    for place, side in enumerate(sides):
        own = chosen == place
        yield {
            **named,
            "scale": str(side),
            "images": len(chosen),
            **tally.top(side),
            "share": float(own.mean()),
            "centre_in_box": mean(every["hit"][place, own]),
            "chance": mean(every["chance"][place, own]),
            "centre_in_box_forced": mean(every["hit"][place]),
            "chance_forced": mean(every["chance"][place]),
        }
    hit, chance = (one[chosen, np.arange(len(chosen))] for one in every.values())
    yield {
        **named,
        "scale": OVERALL,
        "images": len(chosen),
        **tally.top(OVERALL),
        "share": 1.0,
        "centre_in_box": mean(hit),
        "chance": mean(chance),
    }


def _rescaled_rows(tally: Tally, sides: Sequence[int], about: Mapping[str, Any]) -> Iterator[Row]:
    """Fig. 19: the best patch against the whole picture at its size, of a branch's own pictures and of all."""
    chosen = tally["chosen"]
    for over in ("its own", "all"):
        for place, side in enumerate(sides):
            own: Chosen = chosen == place if over == "its own" else EVERY
            shares = {what: tally.top((what, side), own)["top1"] for what in ("localised", "rescaled", "rescaled_full")}
            yield {
                "kind": "rescaled",
                **about,
                "scale": str(side),
                "pictures": over,
                "images": len(chosen[own]),
                **shares,
            }


def draw(found: Figures) -> Figure:
    """What patches cost and how often they are right (Table 3), and patches against rescaled pictures (Fig. 19)."""
    patches, rescaled = ([row for row in found.rows if row["kind"] == kind] for kind in ("patches", "rescaled"))
    last = patches[-1]
    title = f"{last['net']} on patches by {last['localizer']}, {last['images']} pictures of {last['data']}"
    figure = sheet(15.6, 5.2, title)
    costs, *bars = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    _costs(costs, [row for row in patches if row["images"]])
    for panel, over in zip(bars, ("its own", "all"), strict=True):
        own = [row for row in rescaled if row["pictures"] == over]
        _bars(panel, own, "pictures that the branch localises" if over == "its own" else "all pictures, by each branch")
    for panel, place in ((costs, "outside lower left"), (bars[0], "outside lower right")):
        figure.legend(*panel.get_legend_handles_labels(), loc=place, ncols=3, fontsize="small")
    return figure


def _costs(panel: Axes, rows: Rows) -> None:
    for place, row in enumerate(rows):
        look = {**style(place), "markersize": 8}
        without, both = row["macs_ratio"], row["ratio_with_localizer"]
        error = [[row["top1"] - row["low"]], [row["high"] - row["top1"]]]
        name = f"{row['scale']}: {row['top1']:.3f} at {without:.2f}×"
        panel.errorbar(without, row["top1"], error, capsize=3, label=name, **look)
        if both != without:
            panel.plot([without, both], [row["top1"]] * 2, color=look["color"], linestyle=":", linewidth=1)
            panel.plot(both, row["top1"], fillstyle="none", **look)
    panel.set(
        title="filled: the classifier alone; hollow: with the localiser",
        xlabel="multiplications, as a share of the classifier's on a whole picture",
        ylabel="top-1 accuracy, 95 % interval",
        xlim=(0, None),
    )
    panel.grid(alpha=0.3)


def _bars(panel: Axes, rows: Rows, title: str) -> None:
    at, width = np.arange(len(rows)), 0.8 / len(BARS)
    for place, (key, name) in enumerate(BARS.items()):
        heights = [0.0 if row[key] is None else row[key] for row in rows]
        drawn = panel.bar(at + (place - 1) * width, heights, width, label=name, **hatched(place))
        panel.bar_label(drawn, fmt="%.2f", fontsize="small")
    panel.set_xticks(at, [f"{row['scale']} px\n{row['images']} pictures" for row in rows])
    panel.set(title=title, ylabel="top-1 accuracy", ylim=(0, 1.05))
