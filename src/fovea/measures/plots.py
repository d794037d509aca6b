"""What the figures of measures share: colors, markers, and curves with the random control dashed."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from fovea.measures.figures import Figures
from fovea.measures.random_control import RANDOM

Rows = Sequence[Mapping[str, Any]]
Panel = tuple[str, Mapping[str, Any]]  # a key of rows, and the words beside it
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito, but the yellow
MARKERS = "osD^vPX"
HATCHES = ("", "//", "..", "\\\\", "xx")
GRAY = "#444444"  # the control's


def sheet(width: float, height: float, title: str | None = None) -> Figure:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    if title:
        figure.suptitle(title)
    return figure


def where(found: Figures) -> str:
    """Where it was timed, for a title."""
    cpu = found.settings.get("device", "cpu") == "cpu"
    return f"CPU, {found.settings['threads']} thread(s)" if cpu else "GPU"


def style(place: int) -> dict[str, Any]:
    """A color and a marker for each of a few lines."""
    return {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)]}


def hatched(place: int) -> dict[str, Any]:
    """The same for bars."""
    return {"color": COLORS[place], "hatch": HATCHES[place], "alpha": 0.85}


def curves(found: Figures, panels: Mapping[str, Panel], legend: str, height: float, dense: bool) -> Figure:
    """One panel per kind of curve, one line per method. A panel is the key that it reads, and the words beside it.
    Markers of `dense` lines take turns, so that lines that lie on one another can all be seen."""
    first, methods = found.rows[0], [row["method"] for row in found.rows if "kind" not in row]
    title = f"{first['net']} on {first['images']} pictures of {first['data']}"
    figure = sheet((5.2 if dense else 5.4) * len(panels), height, title)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (kind, (reads, words)) in zip(axes, panels.items(), strict=True):
        for place, method in enumerate(methods):
            points = [row for row in found.rows if (row.get("kind"), row["method"]) == (kind, method)]
            area = next(row[kind] for row in found.rows if row["method"] == method and "kind" not in row)
            look = {**style(place), "alpha": 0.85}
            if dense:
                look |= {"markevery": (place, len(methods)), "markersize": 7}
            if method == RANDOM:
                look = {"color": GRAY, "linestyle": "--"} | ({} if dense else {"marker": ".", "alpha": 0.85})
            x, y = [row["area"] for row in points], [row[reads] for row in points]
            axis.plot(x, y, label=f"{method} {area:.3f}", **look)
        axis.set(xlim=(0, 1), **words)
        axis.grid(alpha=0.3)
        axis.legend(title=legend, fontsize="small")
    return figure
