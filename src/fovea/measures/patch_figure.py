"""Figures about localised patches, as pictures: Table 3 with Fig. 19, Figs. 16 to 18, and Fig. 12 of AnchorNet."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fovea.measures.curve_figure import COLOURS, MARKERS
from fovea.measures.figures import Figures
from fovea.measures.random_control import RANDOM

Rows = Sequence[Mapping[str, Any]]
BARS = {
    "localised": "the best patch",
    "rescaled": "the picture rescaled, same network",
    "rescaled_full": "the picture rescaled, network for whole pictures",
}
HATCHES = ("", "//", "..")
CURVES = {
    "coverage": ("only the best patches shown (higher is better)", "share of the picture shown"),
    "masking": ("the best patches masked (lower is better)", "share of the picture masked"),
}


def save(found: Figures, draw: Callable[[Figures], Figure], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(found).savefig(path, dpi=110)


def table(found: Figures) -> Figure:
    """What patches cost and how often they are right (Table 3), and patches against rescaled pictures (Fig. 19)."""
    patches = [row for row in found.rows if row["kind"] == "patches"]
    rescaled = [row for row in found.rows if row["kind"] == "rescaled"]
    sheet = Figure(figsize=(15.6, 5.2), layout="constrained")
    last = patches[-1]
    sheet.suptitle(f"{last['net']} on patches by {last['localizer']}, {last['images']} pictures of {last['data']}")
    costs, *bars = sheet.subplots(1, 3, width_ratios=(1.25, 1, 1))
    _costs(costs, [row for row in patches if row["images"]])
    for panel, over in zip(bars, ("its own", "all"), strict=True):
        own = [row for row in rescaled if row["pictures"] == over]
        _bars(panel, own, "pictures that the branch localises" if over == "its own" else "all pictures, by each branch")
    for panel, place, columns in ((costs, "outside lower left", 3), (bars[0], "outside lower right", 3)):
        sheet.legend(*panel.get_legend_handles_labels(), loc=place, ncols=columns, fontsize="small")
    return sheet


def _costs(panel: Axes, rows: Rows) -> None:
    for place, row in enumerate(rows):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        without, both = row["macs_ratio"], row["ratio_with_localizer"]
        error = [[row["top1"] - row["low"]], [row["high"] - row["top1"]]]
        name = f"{row['scale']}: {row['top1']:.3f} at {without:.2f}×"
        panel.errorbar(without, row["top1"], error, color=colour, marker=marker, markersize=8, capsize=3, label=name)
        if both != without:
            panel.plot([without, both], [row["top1"]] * 2, color=colour, linestyle=":", linewidth=1)
            panel.plot(both, row["top1"], color=colour, marker=marker, markersize=8, fillstyle="none")
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
        drawn = panel.bar(
            at + (place - 1) * width, heights, width, label=name, color=COLOURS[place], hatch=HATCHES[place], alpha=0.85
        )
        panel.bar_label(drawn, fmt="%.2f", fontsize="small")
    panel.set_xticks(at, [f"{row['scale']} px\n{row['images']} pictures" for row in rows])
    panel.set(title=title, ylabel="top-1 accuracy", ylim=(0, 1.05))


def grids(found: Figures) -> Figure:
    """Accuracy and multiplications over LIP's share (P) and overlap (T), a column a branch."""
    scales = list(dict.fromkeys(row["scale"] for row in found.rows))
    sheet = Figure(figsize=(4.4 * len(scales), 7.6), layout="constrained")
    first = found.rows[0]
    sheet.suptitle(f"{first['net']} on patches by {first['localizer']}, {first['data']}")
    panels = sheet.subplots(2, len(scales), squeeze=False)
    wanted = (
        ("top1", "top-1 accuracy", "viridis"),
        ("macs_ratio", "multiplications, × the whole picture's", "cividis"),
    )
    for line, (key, title, colours) in zip(panels, wanted, strict=True):
        for panel, scale in zip(line, scales, strict=True):
            own = [row for row in found.rows if row["scale"] == scale]
            name = scale if scale == "overall" else f"{scale} px"
            _grid(panel, own, key, colours, f"{name}, {own[0]['images']} pictures: {title}")
    return sheet


def _grid(panel: Axes, rows: Rows, key: str, colours: str, title: str) -> None:
    shares, overlaps = (sorted({row[name] for row in rows}) for name in ("share", "overlap"))
    values = np.full((len(shares), len(overlaps)), np.nan)
    for row in rows:
        values[shares.index(row["share"]), overlaps.index(row["overlap"])] = np.nan if row[key] is None else row[key]
    panel.imshow(values, cmap=colours, aspect="auto", origin="lower")
    for (y, x), value in np.ndenumerate(values):
        if not np.isnan(value):
            dark = value - np.nanmin(values) < 0.55 * (np.nanmax(values) - np.nanmin(values))
            panel.text(x, y, f"{value:.3f}", ha="center", va="center", color="white" if dark else "black", fontsize=9)
    panel.set_xticks(range(len(overlaps)), [f"{one:g}" for one in overlaps])
    panel.set_yticks(range(len(shares)), [f"{one:g}" for one in shares])
    panel.set(xlabel="overlap T", ylabel="share P")
    panel.set_title(title, fontsize="small")


def curves(found: Figures) -> Figure:
    """Accuracy against the area that patches cover, and that they mask."""
    methods = [row["method"] for row in found.rows if "kind" not in row]
    sheet = Figure(figsize=(10.8, 4.6), layout="constrained")
    first = found.rows[0]
    sheet.suptitle(f"{first['net']} on {first['images']} pictures of {first['data']}")
    for panel, (kind, (title, label)) in zip(sheet.subplots(1, 2), CURVES.items(), strict=True):
        for place, method in enumerate(methods):
            points = [row for row in found.rows if (row.get("kind"), row["method"]) == (kind, method)]
            mean = next(row[kind] for row in found.rows if row["method"] == method and "kind" not in row)
            style = {"color": "#444444", "linestyle": "--", "marker": "."} if method == RANDOM else {}
            own = {"color": COLOURS[place], "marker": MARKERS[place], "alpha": 0.85} | style
            x, y = ([row[key] for row in points] for key in ("area", "accuracy"))
            panel.plot(x, y, label=f"{method} {mean:.3f}", **own)
        panel.set(title=title, xlabel=label, ylabel="top-1 accuracy", xlim=(0, 1), ylim=(0, 1))
        panel.grid(alpha=0.3)
        panel.legend(title="mean accuracy over shared areas", fontsize="small")
    return sheet
