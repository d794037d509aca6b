"""Faithfulness curves as a picture: a panel a kind, a line a method, the random control dashed."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fovea.measures.curve_kinds import KINDS
from fovea.measures.figures import Figures
from fovea.measures.random_control import RANDOM

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito, but the yellow
MARKERS = "osD^vPX"
AREAS = {"insertion": "put in", "deletion": "taken out", "coverage": "kept", "masking": "masked"}
READS = {"probability": "mean probability of the class", "accuracy": "top-1 accuracy"}


def figure(found: Figures) -> Figure:
    kinds = list(dict.fromkeys(row["kind"] for row in found.rows if "kind" in row))
    methods = [row["method"] for row in found.rows if "kind" not in row]
    sheet = Figure(figsize=(5.2 * len(kinds), 4.4), layout="constrained")
    first = found.rows[0]
    sheet.suptitle(f"{first['net']} on {first['images']} pictures of {first['data']}")
    panels = sheet.subplots(1, len(kinds), squeeze=False)[0]
    for panel, kind in zip(panels, kinds, strict=True):
        for place, method in enumerate(methods):
            _line(panel, found, kind, method, (place, len(methods)))
        reads = KINDS[kind].reads
        panel.set(
            title=f"{kind} ({'higher' if KINDS[kind].keeps else 'lower'} is better)",
            xlabel=f"share of the pixels {AREAS[kind]}, best first",
            ylabel=READS[reads],
            xlim=(0, 1),
            ylim=(0, None),
        )
        panel.grid(alpha=0.3)
        panel.legend(title="area under the curve", fontsize="small")
    return sheet


def _line(panel: Axes, found: Figures, kind: str, method: str, turn: tuple[int, int]) -> None:
    points = [row for row in found.rows if (row.get("kind"), row["method"]) == (kind, method)]
    area = next(row[kind] for row in found.rows if row["method"] == method and "kind" not in row)
    x, y = [row["area"] for row in points], [row[KINDS[kind].reads] for row in points]
    name = f"{method} {area:.3f}"
    if method == RANDOM:
        panel.plot(x, y, color="#444444", linestyle="--", label=name)
        return
    # markers take turns, so that lines that lie on one another can all be seen
    colour, marker = COLOURS[turn[0] % len(COLOURS)], MARKERS[turn[0] % len(MARKERS)]
    panel.plot(x, y, color=colour, marker=marker, markevery=turn, markersize=7, alpha=0.85, label=name)


def save(found: Figures, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(found).savefig(path, dpi=110)
