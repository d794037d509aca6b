"""How LIP's share of cells (P) and overlap (T) change accuracy and cost: AnchorNet's Figs. 16 to 18."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fovea.basics.errors import BadChoice
from fovea.data import DataSet
from fovea.measures.figures import Figures
from fovea.measures.patch_parts import (
    MACS,
    OVERALL,
    Costs,
    Progress,
    Row,
    Tally,
    alone,
    demand_anchored,
    demand_read,
    demand_same_classes,
    mean,
    parts,
    settings_of,
)
from fovea.measures.plots import Rows, sheet
from fovea.networks.network import Network
from fovea.patches.classify import Patches
from fovea.patches.lip import Settings, for_test, pick
from fovea.patches.scales import Scale

SHARES, OVERLAPS = (0.01, 0.05, 0.1, 0.3), (0.1, 0.3, 0.5, 0.7, 0.9)  # P and T


def measure(
    localizer: Network,
    classifier: Network,
    data: DataSet,
    shares: Sequence[float] = SHARES,
    overlaps: Sequence[float] = OVERLAPS,
    forced: bool = False,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> Figures:
    """A row for each branch, share (P) and overlap (T) of LIP, and with all branches together.

    Of the pictures that a branch localises, or of all, `forced` through every branch. A patch is classified once,
    however many settings pick it.
    """
    if not shares or not overlaps:
        raise BadChoice("name at least one share (P) and one overlap (T)")
    grid = [(share, overlap) for share in dict.fromkeys(shares) for overlap in dict.fromkeys(overlaps)]
    for share, overlap in grid:
        Settings(1, overlap, share)  # checks them
    demand_anchored(localizer)
    ours, theirs = (demand_same_classes(one, data) for one in (localizer, classifier))
    skipped: list[tuple[str, str]] = []
    tally, sides, most = Tally(), list[int](), dict[int, int]()
    for part in parts(localizer, data, batch, skipped, progress):
        labels = theirs.of(part.samples)
        for number, scale in enumerate(part.seen.scales):
            most[scale.side] = for_test(scale.side, part.tensors.shape[2:]).count
            given = torch.ones_like(part.seen.chosen) if forced else part.seen.chosen == number
            own = given.nonzero()[:, 0]  # n
            if not len(own):
                continue
            picks = [
                pick(scale.values[own], scale.boxes, Settings(most[scale.side], overlap, share)).cells.cpu()
                for share, overlap in grid
            ]  # n,K each
            sums = _sums(localizer, classifier, part.tensors, scale, own.cpu(), picks)
            for key, cells, output in zip(grid, picks, sums, strict=True):
                tally.answers((scale.side, *key), output, labels[own.cpu()])
                tally.put(("count", scale.side, *key), (cells >= 0).sum(1))
        sides = [scale.side for scale in part.seen.scales]
    demand_read(len(tally.columns), data, skipped)
    costs = Costs.of(localizer, classifier, sides)
    about = {"net": classifier.name or "network", "localizer": localizer.name or "network", "data": data.name}
    rows: list[Row] = []
    for group in [*([side] for side in sides), *([] if forced else [sides])]:
        for key in grid:
            found = tally.together([(side, *key) for side in group])
            many = {side: tally[("count", side, *key)] for side in group}
            cost = np.concatenate([costs.patch[side] * one for side, one in many.items()])
            rows.append(
                {
                    **about,
                    "scale": str(group[0]) if len(group) == 1 else OVERALL,
                    "share": key[0],
                    "overlap": key[1],
                    "images": len(cost),
                    "patches": mean(np.concatenate(list(many.values()))),
                    **found,
                    **costs.row(cost),
                }
            )
    told = {
        **settings_of((localizer, classifier), (ours, theirs), data, skipped),
        "macs": MACS,
        "pictures": "all of them, by every branch" if forced else "of each branch those that it localises",
        "count": "at most " + ", ".join(f"{count} of {side} px" for side, count in most.items()),
    }
    return Figures("patch-sensitivity", told, rows, skipped)


def _sums(
    localizer: Network, classifier: Network, tensors: Tensor, scale: Scale, own: Tensor, picks: Sequence[Tensor]
) -> list[Tensor]:
    """What the patches of each setting's picks (cells n,K, -1 for none) say together, every patch classified once."""
    cells = len(scale.boxes)
    picked = torch.zeros(len(own), cells + 1, dtype=torch.bool)
    for one in picks:
        picked.scatter_(1, torch.where(one >= 0, one, cells), True)
    row, cell = picked[:, :cells].nonzero(as_tuple=True)  # M each
    squares = Patches(scale.side, own[row], scale.boxes.cpu()[cell]).cut(tensors)
    answers = alone(localizer, classifier, squares).cpu()  # M,classes
    place = torch.zeros(len(own), cells, dtype=torch.long)
    place[row, cell] = torch.arange(len(row))
    found = []
    for one in picks:
        there = (one >= 0).unsqueeze(2)
        said = answers[place.gather(1, one.clamp(min=0))]  # n,K,classes
        found.append((said * there).sum(1) / there.sum(1))
    return found


def draw(found: Figures) -> Figure:
    """Accuracy and multiplications over LIP's share (P) and overlap (T), one column per branch."""
    scales = list(dict.fromkeys(row["scale"] for row in found.rows))
    first = found.rows[0]
    figure = sheet(4.4 * len(scales), 7.6, f"{first['net']} on patches by {first['localizer']}, {first['data']}")
    panels = figure.subplots(2, len(scales), squeeze=False)
    wanted = (
        ("top1", "top-1 accuracy", "viridis"),
        ("macs_ratio", "multiplications, × the whole picture's", "cividis"),
    )
    for line, (key, title, colors) in zip(panels, wanted, strict=True):
        for panel, scale in zip(line, scales, strict=True):
            own = [row for row in found.rows if row["scale"] == scale]
            name = scale if scale == "overall" else f"{scale} px"
            _grid(panel, own, key, colors, f"{name}, {own[0]['images']} pictures: {title}")
    return figure


def _grid(panel: Axes, rows: Rows, key: str, colors: str, title: str) -> None:
    shares, overlaps = (sorted({row[name] for row in rows}) for name in ("share", "overlap"))
    values = np.full((len(shares), len(overlaps)), np.nan)
    for row in rows:
        values[shares.index(row["share"]), overlaps.index(row["overlap"])] = np.nan if row[key] is None else row[key]
    panel.imshow(values, cmap=colors, aspect="auto", origin="lower")
    for (y, x), value in np.ndenumerate(values):
        if not np.isnan(value):
            dark = value - np.nanmin(values) < 0.55 * (np.nanmax(values) - np.nanmin(values))
            panel.text(x, y, f"{value:.3f}", ha="center", va="center", color="white" if dark else "black", fontsize=9)
    panel.set_xticks(range(len(overlaps)), [f"{one:g}" for one in overlaps])
    panel.set_yticks(range(len(shares)), [f"{one:g}" for one in shares])
    panel.set(xlabel="overlap T", ylabel="share P")
    panel.set_title(title, fontsize="small")
