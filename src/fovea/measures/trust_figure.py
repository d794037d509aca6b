"""Which map to trust, as a picture: a panel a measure, a bar a method with its interval, the recommended one blue."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fovea.measures.figures import Figures
from fovea.measures.plots import COLORS, GRAY, Rows, sheet
from fovea.measures.random_control import RANDOM
from fovea.measures.trust_rules import MEASURES, UNCHANGED

CHOSEN, UNWANTED = COLORS[:2]
GOOD, CONTROL = "#9DB4C0", "#BBBBBB"
PANELS = {
    "gt_known": "localization\n(higher is better)",
    "insertion": "insertion\n(higher is better)",
    "deletion": "deletion\n(lower is better)",
    "sanity_last": "sanity: last layer random\n(near 0 is better)",
    "sanity_all": "sanity: all layers random\n(near 0 is better)",
    "x_forward": "time, x a bare forward\n(lower is better)",
}
KEY = "blue: recommended; orange: do not use; dashed: what random maps reach; dotted: too like a random network's"
WIDTH = 190  # letters a line of the recommendation


def draw(found: Figures) -> Figure:
    rows, names = found.rows, [key for key in PANELS if any(row[key] is not None for row in found.rows)]
    words = textwrap.wrap(found.details["recommendation"][0], WIDTH)
    title = f"{rows[0]['net']} on {rows[0]['images']} pictures of {found.settings['data']}: which map to trust"
    figure = sheet(2.45 * len(names) + 1.4, 0.42 * len(rows) + 1.9 + 0.22 * (len(words) + 1), title)
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for panel, name in zip(panels, names, strict=True):
        _bars(panel, rows, name)
    panels[0].set_yticks(range(len(rows)), [row["method"] for row in rows])
    for label, row in zip(panels[0].get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row["verdict"] == "recommended" else "normal")
    panels[0].invert_yaxis()
    for panel in panels[1:]:
        panel.tick_params(left=False)
    figure.supxlabel("\n".join([KEY, *words]), fontsize="small", ha="left", x=0.01)
    return figure


def _bars(panel: Axes, rows: Rows, name: str) -> None:
    at = [place for place, row in enumerate(rows) if row[name] is not None]
    own = [rows[place] for place in at]
    values = [row[name] for row in own]
    bars = panel.barh(at, values, color=[_color(row) for row in own], height=0.7)
    lows, highs = ([row.get(f"{name}_{end}", row[name]) for row in own] for end in ("low", "high"))
    if lows != values:
        errors = np.abs(np.array([lows, highs]) - values)
        panel.errorbar(values, at, xerr=errors, fmt="none", ecolor="#333333", elinewidth=1, capsize=2.5)
    if name.startswith("sanity"):
        panel.axvline(UNCHANGED, color=UNWANTED, linestyle=":", linewidth=1)
        panel.set_xlim(min(-0.15, *values), 1)
        panel.axvline(0, color="#333333", linewidth=0.6)
    control = [row[name] for row in own if row["method"] == RANDOM]
    if control and name in MEASURES:
        panel.axvline(control[0], color=GRAY, linestyle="--", linewidth=1)  # what no information reaches
    edge = max([*highs, *values])
    if not name.startswith("sanity"):
        panel.set_xlim(0, 1.32 * edge)
    for bar, value, high in zip(bars, values, highs, strict=True):
        panel.annotate(
            f"{value:.2f}" if name in ("x_forward", "sanity_last", "sanity_all") else f"{value:.3f}",
            (max(high, value, 0), bar.get_y() + bar.get_height() / 2), (4, 0), textcoords="offset points",
            va="center", fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    panel.set_title(PANELS[name], fontsize="medium")
    panel.spines[["top", "right"]].set_visible(False)


def _color(row: Mapping[str, Any]) -> str:
    if row["method"] == RANDOM:
        return CONTROL
    return CHOSEN if row["verdict"] == "recommended" else UNWANTED if row["verdict"].startswith("do not") else GOOD
