"""Patches that suffice: a classifier that reads the localized patches alone, beside one that reads whole pictures.

AnchorNet's Table 3 and Fig. 19. Pictures are decoded and localized once; patches are cut out of the picture as the
localizer takes it."""

from collections.abc import Iterator

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import by_bootstrap
from fovea.measures import EVERY, Chosen, Figures, Run, ends, loss, mean, measure
from fovea.measures.patch_parts import (
    MACS,
    OVERALL,
    ROLES,
    Costs,
    Part,
    Row,
    Trial,
    alone,
    answer,
    without,
    words,
)
from fovea.measures.plots import Rows, hatched, sheet, style
from fovea.networks import WHITE, Network, blank, macs, normalization_of
from fovea.patches import Choice, PatchBatch, Scale, choice, judged, patches

BARS = {
    "localised": "the best patch",
    "rescaled": "the picture rescaled, same network",
    "rescaled_full": "the picture rescaled, network for whole pictures",
}


@measure(
    "patches",
    title="Classification of localized patches",
    about="How localized patches alone do against whole and rescaled pictures: accuracy, cost, and where the patches "
    "lie.",
    example="--localizer anchornet-imagenette --net patches.safetensors --full whole.safetensors --data "
    "imagenette:split=test",
    nets=("localizer", "net", "full"),
    needs=("labels",),
    figure="draw",
)
def measure_patches(
    run: Run,
    *,
    count: int | None = None,
    overlap: float | None = None,
    share: float | None = None,
    branch: int | None = None,
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """Rows of three kinds: `patches` (Table 3), `localizer` (what it decides and finds), `rescaled` (Fig. 19). `net`
    was trained on patches, `full` on whole pictures, which it sees as its own transform makes them. `branch` has the
    one of that side localize in every picture, not the one that is surest."""
    trial, settings = Trial(run, branch), choice(count, overlap, share)
    for part in trial.parts(batch, "net", "full"):
        _add(trial, part, settings)
    costs = Costs.of(trial)
    rows = [*_table(trial, costs, seed), *_localizers(trial), *_rescaled_rows(trial)]
    size = blank(trial.localizer).shape[2:]
    told = {
        "macs": MACS,
        "lip": "; ".join(f"{side}: {words(settings(side, size))}" for side in trial.sides),
        "branch": "the surest of those that decide" if branch is None else branch,
        "interval": f"{by_bootstrap('top1', seed)}; of a loss, of the same pictures read whole and in patches",
        "loss": "top1 of the network for whole pictures on the same pictures, less this one's",
        "centre_in_box": "of the best patch, in any true box; chance: the mean over all cells of the same branch",
        "rescaled": "the whole picture, as the localizer takes it, scaled down to the patch's size (bicubic, smoothed)",
        "localised": "the one best patch of the branch, for the class that was decided",
    }
    titles = {
        "patches": f"patches by {trial.names['localizer']} against whole pictures of {run.data.name}",
        "localizer": "what the localizer says itself, and where its best patches lie",
        "rescaled": "top-1 of the one best patch, and of the picture rescaled to its size",
    }
    kinds = {title: without([row for row in rows if row["kind"] == kind], "kind") for kind, title in titles.items()}
    return trial.figures(rows, told, tables=kinds, notes=[f"{key}: {told[key]}" for key in ("lip", "macs")])


def _add(trial: Trial, part: Part, settings: Choice) -> None:
    """What the networks make of a batch, at every scale, into the tally."""
    tally, seen, localizer, tensors = trial.tally, part.seen, trial.localizer, part.tensors["localizer"]
    classifier, full = trial.nets["net"], trial.nets["full"]
    ours, theirs, whole = (trial.labels(role, part) for role in ROLES)
    cut = patches(seen, settings, tensors.shape[2:])
    tally.put("chosen", seen.chosen)
    tally.put("count", torch.bincount(torch.cat([part.owner for part in cut]), minlength=len(tensors)))
    tally.answers("patches", judged(localizer, classifier, tensors, cut), theirs)
    tally.answers("full", answer(full, part.tensors["full"]), whole)
    tally.answers("plain", answer(classifier, part.tensors["net"]), theirs)
    tally.answers(OVERALL, seen.output, ours)
    for scale in seen.scales:
        best, small = _best(scale).cut(tensors), rescaled(localizer, tensors, scale.side)
        tally.answers(scale.side, scale.logits, ours)
        tally.answers(("localised", scale.side), alone(localizer, classifier, best), theirs)
        tally.answers(("rescaled", scale.side), alone(localizer, classifier, small), theirs)
        tally.answers(("rescaled_full", scale.side), alone(localizer, full, small), whole)
        hit, chance = part.in_boxes(scale)
        tally.put(("hit", scale.side), hit)
        tally.put(("chance", scale.side), chance)


def _best(scale: Scale) -> PatchBatch:
    """The best patch of every picture."""
    best = scale.values.flatten(1).argmax(1).cpu()
    return PatchBatch(scale.side, torch.arange(len(best)), scale.boxes.cpu()[best])


def rescaled(localizer: Network, tensors: Tensor, side: int) -> Tensor:
    """Whole pictures as small as a patch."""
    black, white = (normalization_of(localizer).gray(value).to(tensors) for value in (0, WHITE))
    small = F.interpolate(tensors, (side, side), mode="bicubic", align_corners=False, antialias=True)
    return small.maximum(black).minimum(white)  # bicubic overshoots


def _table(trial: Trial, costs: Costs, seed: int) -> Iterator[Row]:
    """Table 3: whole pictures, then the patches of each scale, then all scales together."""
    tally, sides, nets = trial.tally, trial.sides, trial.nets
    chosen, number = tally["chosen"], tally["count"]
    cost = np.array([costs.patch[side] for side in sides])[chosen] * number

    def row(role: str, scale: str, key: str, which: Chosen, macs: float | None) -> Row:
        hits, whole = tally[key][which] < 1, tally["full"][which] < 1
        return {
            "kind": "patches",
            "net": trial.names[role],
            **trial.about,
            "scale": scale,
            "images": len(hits),
            "patches": mean(number[which]) if key == "patches" else None,
            **tally.top(key, which),
            **ends(hits, seed),
            **loss(whole, hits, seed, paired=key != "full"),
            **costs.row(macs, localized=key == "patches"),
        }

    yield row("full", "full", "full", EVERY, macs(nets["full"], blank(nets["full"])))
    yield row("net", "full, patch network", "plain", EVERY, costs.whole)
    for place, side in enumerate(sides):
        given = chosen == place
        yield row("net", str(side), "patches", given, mean(cost[given]))
    yield row("net", OVERALL, "patches", EVERY, mean(cost))


def _localizers(trial: Trial) -> Iterator[Row]:
    """What the localizer says itself, and where its best patches lie."""
    tally, sides, chosen = trial.tally, trial.sides, trial.tally["chosen"]
    hit, chance = (np.stack([tally[(what, side)] for side in sides]) for what in ("hit", "chance"))  # J,N each
    about = {"kind": "localizer", "net": trial.names["localizer"], **trial.about}
    for place, side in enumerate(sides):
        given = chosen == place
        yield {
            **about,
            "scale": str(side),
            "images": len(chosen),
            **tally.top(side),
            "share": float(given.mean()),
            "centre_in_box": mean(hit[place, given]),
            "chance": mean(chance[place, given]),
            "centre_in_box_forced": mean(hit[place]),
            "chance_forced": mean(chance[place]),
        }
    localized = chosen, np.arange(len(chosen))
    told = {"share": 1.0, "centre_in_box": mean(hit[localized]), "chance": mean(chance[localized])}
    yield {**about, "scale": OVERALL, "images": len(chosen), **tally.top(OVERALL), **told}


def _rescaled_rows(trial: Trial) -> Iterator[Row]:
    """Fig. 19: the best patch against the whole picture at its size, of a branch's own pictures and of all."""
    chosen, about = trial.tally["chosen"], {"kind": "rescaled", "net": trial.names["net"], **trial.about}
    for over in ("its own", "all"):
        for place, side in enumerate(trial.sides):
            given: Chosen = chosen == place if over == "its own" else EVERY
            shares = {what: trial.tally.top((what, side), given)["top1"] for what in BARS}
            yield {**about, "scale": str(side), "pictures": over, "images": len(chosen[given]), **shares}


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
        _bars(panel, own, "pictures that the branch localizes" if over == "its own" else "all pictures, by each branch")
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
        title="filled: the classifier alone; hollow: with the localizer",
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
