"""Plots of the results pages as SVG files, which hold the numbers that they show.

A file is written anew only when these numbers or words change, so that another version of matplotlib changes nothing;
remove it to have it drawn again."""

import html
import io
import json
import re
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes

from fovea.basics import write_text
from fovea.measures.charts import Drawn
from fovea.measures.plots import GRAY, sheet, style

WIDTH, BAR, AROUND = 8.0, 0.27, 1.35  # inches: of a file, of a bar, of the words around panels
LINES = 3.6  # the height of panels with lines
NONE = float("nan")
HELD = re.compile(r"<dc:description>(.*?)</dc:description>", re.S)
FONT, INSTEAD = "DejaVu Sans", "Verdana, Arial, sans-serif"  # as wide or narrower, where that is not at hand
LOOK = {
    "svg.hashsalt": "fovea",
    "svg.fonttype": "none",  # text stays text: small, searchable, read aloud
    "font.family": FONT,
    "font.size": 9.5,
    "hatch.linewidth": 0.5,
}
HATCHES = ("", "//", "\\\\", "xx")  # dots would make large files


def held(path: Path) -> Drawn | None:
    """The numbers that a file shows."""
    found = HELD.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return json.loads(html.unescape(found[1])) if found else None


def write(path: Path, drawn: Drawn) -> bool:
    """Whether the file was made anew."""
    if held(path) == drawn:
        return False
    text = io.StringIO()
    words = {"Title": drawn["title"], "Description": json.dumps(drawn), "Date": None, "Creator": "fovea results"}
    with rc_context(LOOK):
        _figure(drawn).savefig(text, format="svg", metadata=words, facecolor="white")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = text.getvalue().replace(f"'{FONT}'", f"'{FONT}', {INSTEAD}").splitlines()
    write_text(path, "\n".join(line.rstrip() for line in lines) + "\n")
    return True


def _figure(drawn: Drawn) -> Any:
    panels = drawn["panels"]
    counts = [len(panel["groups"]) * (len(panel["bars"]) + 0.6) if "bars" in panel else 0.0 for panel in panels]
    height = max([max(counts) * BAR, *(LINES for panel in panels if "lines" in panel)]) + AROUND
    figure = sheet(WIDTH, height)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        (_lines if "lines" in panel else _bars)(axis, panel)
        axis.set(xlabel=panel["x"], ylabel=panel["y"])
        axis.set_title(panel["title"], fontsize="medium")
        if panel["log"]:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")
        axis.spines[["top", "right"]].set_visible(False)
    names = {label: part for axis in axes for part, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if len(names) > 1:
        longest = max(map(len, names))
        figure.legend(
            names.values(), names, loc="outside lower center", ncols=max(1, min(len(names), 100 // (longest + 8)))
        )
    return figure


def _lines(axis: Axes, panel: Drawn) -> None:
    for place, line in enumerate(panel["lines"]):
        look = style(place) | {"markersize": 5, "linewidth": 1.4}
        if line["dashed"]:
            look |= {"color": GRAY, "linestyle": "--", "marker": "."}
        if "x" not in line:
            axis.axhline(line["value"][0], label=line["label"], **{**look, "marker": "", "linestyle": ":"})
            continue
        x, y = line["x"], line["value"]
        axis.errorbar(x, y, yerr=_ends(line), capsize=2.5, elinewidth=1, label=line["label"], **look)
        for at, value, note in zip(x, y, line.get("note", ()), strict=False):
            if note is not None:
                axis.annotate(
                    f"{note:g}" if isinstance(note, float) else str(note),
                    (at, value),
                    (4, -11),
                    textcoords="offset points",
                    fontsize=8,
                )
    axis.grid(alpha=0.3)


def _bars(axis: Axes, panel: Drawn) -> None:
    count, thick = len(panel["bars"]), 1 / (len(panel["bars"]) + 0.6)
    for place, bar in enumerate(panel["bars"]):
        at = [group + (place - (count - 1) / 2) * thick for group in range(len(panel["groups"]))]
        known = [i for i, value in enumerate(bar["value"]) if value is not None]
        at, shown = [at[i] for i in known], {key: [bar[key][i] for i in known] for key in ("value", "low", "high")}
        color = GRAY if bar["dashed"] else style(place)["color"]
        if panel["dots"]:
            marker = "D" if bar["dashed"] else style(place)["marker"]
            axis.errorbar(shown["value"], at, xerr=_ends(shown), fmt=marker, color=color, capsize=3, label=bar["label"])
        else:
            look: Drawn = {"color": color, "alpha": 0.85, "hatch": HATCHES[place % len(HATCHES)], "edgecolor": "white"}
            axis.barh(at, shown["value"], thick * 0.92, label=bar["label"], **look)
            if any(low is not None for low in shown["low"]):
                axis.errorbar(
                    shown["value"], at, xerr=_ends(shown), fmt="none", ecolor="black", elinewidth=1, capsize=2.5
                )
        for y, value, high in zip(at, shown["value"], shown["high"], strict=True):
            right = max(value, high or value, *([] if panel["dots"] else [0.0]))
            axis.annotate(
                f"{value:z,.{panel['digits']}f}",
                (right, y),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    axis.set_yticks(range(len(panel["groups"])), panel["groups"])
    axis.invert_yaxis()
    axis.margins(x=0.16)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    if not panel["dots"] and not panel["log"]:
        axis.axvline(0, color="black", linewidth=0.8)


def _ends(points: Drawn) -> list[list[float]] | None:
    """How far intervals reach down and up; nothing where there is none."""
    both = list(zip(points["value"], points["low"], points["high"], strict=True))
    if all(low is None for _, low, _ in both):
        return None
    down = [value - low if low is not None else NONE for value, low, _ in both]
    return [down, [high - value if high is not None else NONE for value, _, high in both]]
