"""Accuracy against multiplications, as a picture: TNet's Fig. 2."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fovea.measures import seeds
from fovea.measures.curve_figure import COLOURS, MARKERS
from fovea.measures.figures import Figures

Rows = Sequence[Mapping[str, Any]]
WIDE = 10  # times the cheapest, from which on the axis is logarithmic


def figure(found: Figures) -> Figure:
    """A line a network that reads glimpses, their number beside each point; a marker for one that reads it all."""
    rows = drawn(found.rows)
    names = list(dict.fromkeys(row["net"] for row in rows))
    sheet = Figure(figsize=(8.4, 5.6), layout="constrained")
    panel = sheet.subplots()
    for place, name in enumerate(names):
        own = [row for row in rows if row["net"] == name]
        _network(panel, own, COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
    costs = [row["macs"] for row in rows]
    panel.set(
        title=f"{rows[0]['images']} pictures of {rows[0]['data']}",
        xlabel="multiplications a picture, in GMACs",
        ylabel="top-1 accuracy, 95 % interval",
        xscale="log" if max(costs) > WIDE * min(costs) else "linear",
    )
    if panel.get_xscale() == "linear":
        panel.set_xlim(left=0)
    else:
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.xaxis.set_major_formatter("{x:g}")
    panel.grid(alpha=0.3, which="both")
    sheet.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    return sheet


def drawn(rows: Rows) -> Rows:
    """Where there is a mean over seeds, it stands for them."""
    means = {row["net"] for row in rows if row.get("seeds")}
    own = [(row, *seeds.of(row["net"])) for row in rows]
    return [row for row, name, seed in own if not seed or name not in means]


def _network(panel: Axes, rows: Rows, colour: str, marker: str) -> None:
    reads = rows[0]["glimpses"] is not None
    rows = sorted(rows, key=lambda row: row["glimpses"] or 0)
    x, y = [row["macs"] / 1e9 for row in rows], [row["top1"] for row in rows]
    below, above = ([row["top1"] - row["low"] for row in rows], [row["high"] - row["top1"] for row in rows])
    seeds = f", {rows[0]['seeds']} seeds" if rows[0].get("seeds") else ""
    name = f"{rows[0]['net']}{seeds}, by glimpses" if reads else f"{rows[0]['net']}{seeds}, whole pictures"
    panel.errorbar(
        x, y, [below, above], color=colour, marker=marker, markersize=8 if reads else 10, capsize=3, alpha=0.9,
        linestyle="-" if reads else "none", fillstyle="full" if reads else "none", label=name,
    )  # fmt: skip
    for row, across, up in zip(rows, x, y, strict=True):
        if reads:
            panel.annotate(
                str(row["glimpses"]), (across, up), (6, 6), textcoords="offset points", color=colour, fontweight="bold"
            )


def save(found: Figures, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(found).savefig(path, dpi=110)
