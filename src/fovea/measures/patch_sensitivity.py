"""How LIP's share of cells (P) and overlap (T) change accuracy and cost: AnchorNet's Figs. 16 to 18."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fovea.basics import BadChoice, by_bootstrap
from fovea.measures import Figures, Run, ends, mean, measure
from fovea.measures.patch_parts import MACS, OVERALL, Costs, Part, Row, Trial, alone
from fovea.measures.plots import Rows, sheet
from fovea.patches import PatchBatch, Scale, Settings, choice, pick

Grid = Sequence[tuple[float, float]]  # shares P and overlaps T


@measure(
    "patch-sensitivity",
    title="LIP's settings",
    about="How accuracy and cost depend on the settings of LIP, the rule that picks patches, for each branch of the "
    "network.",
    example="--localizer anchornet-imagenette --net patches.safetensors --data imagenette:split=test",
    nets=("localizer", "net"),
    needs=("labels",),
    figure="draw",
)
def patch_sensitivity(
    run: Run,
    *,
    shares: Sequence[float] = (0.01, 0.05, 0.1, 0.3),
    overlaps: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    count: int | None = None,
    forced: bool = False,
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """One row for each branch, share (P) and overlap (T) of LIP, and with all branches together. Of the pictures that a
    branch localizes, or of all, `forced` through every branch. A patch is classified once, however many settings pick
    it. `count` is the most patches of a picture (K), as many as make up its area unless given."""
    if not shares or not overlaps:
        raise BadChoice("name at least one share (P) and one overlap (T)")
    grid = [(share, overlap) for share in dict.fromkeys(shares) for overlap in dict.fromkeys(overlaps)]
    for share, overlap in grid:
        Settings(1, overlap, share)  # checks them
    trial, most = Trial(run), dict[int, int]()
    for part in trial.parts(batch):
        for number, scale in enumerate(part.seen.scales):
            most[scale.side] = choice(count, None, None)(scale.side, part.tensors["localizer"].shape[2:]).count
            given = torch.ones_like(part.seen.chosen) if forced else part.seen.chosen == number
            if given.any():
                _add(trial, part, scale, given.nonzero()[:, 0], most[scale.side], grid)
    rows = list(_rows(trial, grid, forced, seed))
    settings = {
        "macs": MACS,
        "pictures": "all of them, by every branch" if forced else "of each branch those that it localizes",
        "interval": by_bootstrap("top1", seed),
        "count": "at most " + ", ".join(f"{count} of {side} px" for side, count in most.items()),
    }
    title = f"top-1 and multiplications (× a whole picture's) of {trial.names['net']} on patches of {run.data.name}"
    return trial.figures(rows, settings, tables={title: _by_share(rows)})


def _add(trial: Trial, part: Part, scale: Scale, given: Tensor, most: int, grid: Grid) -> None:
    """What the classifier says of the patches of the given pictures (n) at one scale, by every setting of the grid."""
    each = [Settings(most, overlap, share) for share, overlap in grid]
    picks = [pick(scale.values[given], scale.boxes, one).cells.cpu() for one in each]  # n,K each
    places, labels = given.cpu(), trial.labels("net", part)
    sums = _sums(trial, part.tensors["localizer"], scale, places, picks)
    for key, cells, output in zip(grid, picks, sums, strict=True):
        trial.tally.answers((scale.side, *key), output, labels[places])
        trial.tally.put(("count", scale.side, *key), (cells >= 0).sum(1))


def _rows(trial: Trial, grid: Grid, forced: bool, seed: int) -> Iterator[Row]:
    tally, costs = trial.tally, Costs.of(trial)
    for sides in [*([side] for side in trial.sides), *([] if forced else [trial.sides])]:
        for share, overlap in grid:
            many = {side: tally[("count", side, share, overlap)] for side in sides}
            ranks = np.concatenate([tally[(side, share, overlap)] for side in sides])
            cost = np.concatenate([costs.patch[side] * count for side, count in many.items()])
            yield {
                "net": trial.names["net"],
                **trial.about,
                "scale": str(sides[0]) if len(sides) == 1 else OVERALL,
                "share": share,
                "overlap": overlap,
                "images": len(cost),
                "patches": mean(np.concatenate(list(many.values()))),
                **tally.together([(side, share, overlap) for side in sides]),
                **ends(ranks < 1, seed),
                **costs.row(mean(cost)),
            }


def _by_share(rows: Rows) -> list[Row]:
    """As they are printed: one line per branch and share, one column per overlap."""
    lines: dict[Any, Row] = {}
    for row in rows:
        about = {"scale": row["scale"], "images": row["images"], "P": f"{row['share']:g}"}
        line = lines.setdefault((row["scale"], row["share"]), about)
        line[f"T {row['overlap']:g}"] = "" if row["top1"] is None else f"{row['top1']:.3f} at {row['macs_ratio']:.2f}×"
    return list(lines.values())


def _sums(trial: Trial, tensors: Tensor, scale: Scale, given: Tensor, picks: Sequence[Tensor]) -> list[Tensor]:
    """What the patches of each setting's picks (cells n,K, -1 for none) say together, every patch classified once."""
    cells = len(scale.boxes)
    picked = torch.zeros(len(given), cells + 1, dtype=torch.bool)
    for one in picks:
        picked.scatter_(1, torch.where(one >= 0, one, cells), True)
    row, cell = picked[:, :cells].nonzero(as_tuple=True)  # M each
    squares = PatchBatch(scale.side, given[row], scale.boxes.cpu()[cell]).cut(tensors)
    answers = alone(trial.localizer, trial.nets["net"], squares).cpu()  # M,classes
    place = torch.zeros(len(given), cells, dtype=torch.long)
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
    costs = ("macs_ratio", "multiplications, × the whole picture's", "cividis")
    wanted = (("top1", "top-1 accuracy", "viridis"), costs)
    for line, (key, title, colors) in zip(panels, wanted, strict=True):
        for panel, scale in zip(line, scales, strict=True):
            rows = [row for row in found.rows if row["scale"] == scale]
            name = scale if scale == OVERALL else f"{scale} px"
            _grid(panel, rows, key, colors, f"{name}, {rows[0]['images']} pictures: {title}")
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
    panel.set_xticks(range(len(overlaps)), [f"{overlap:g}" for overlap in overlaps])
    panel.set_yticks(range(len(shares)), [f"{share:g}" for share in shares])
    panel.set(xlabel="overlap T", ylabel="share P")
    panel.set_title(title, fontsize="small")
