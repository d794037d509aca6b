"""The area that each step looks at, as a picture: a line a method, with its interval as a band."""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fovea.measures.curve_figure import COLOURS, MARKERS
from fovea.measures.figures import Figures


def figure(found: Figures) -> Figure:
    methods = [row["method"] for row in found.rows if "step" not in row]
    sheet = Figure(figsize=(7.6, 4.8), layout="constrained")
    panel = sheet.subplots()
    for place, method in enumerate(methods):
        rows = [row for row in found.rows if row["method"] == method and row.get("area") is not None]
        whole = next(row for row in found.rows if row["method"] == method and "step" not in row)
        steps, colour = [row["step"] for row in rows], COLOURS[place % len(COLOURS)]
        panel.fill_between(
            steps, [row["low"] for row in rows], [row["high"] for row in rows], color=colour, alpha=0.2, linewidth=0
        )
        name = method if whole["attention"] is None else f"{method}: {whole['attention']} ({whole['change']:+.3f})"
        panel.plot(steps, [row["area"] for row in rows], color=colour, marker=MARKERS[place % len(MARKERS)], label=name)
    first = found.rows[0]
    panel.set(
        title=f"{first['net']} on {first['images']} pictures of {first['data']}",
        xlabel="step",
        ylabel="share of the patch above half of the maximum",
        ylim=(0, None),
    )
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(alpha=0.3)
    panel.legend(title="from the first step to the last; band: 95 % interval", fontsize="small")
    return sheet


def save(found: Figures, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(found).savefig(path, dpi=110)
