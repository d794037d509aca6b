"""Faithfulness curves as a figure: one panel per kind, one line per method, the random control dashed."""

from pathlib import Path

from matplotlib.figure import Figure

from fovea.measures import plots
from fovea.measures.curve_kinds import KINDS
from fovea.measures.figures import Figures

AREAS = {"insertion": "put in", "deletion": "taken out", "coverage": "kept", "masking": "masked"}
READS = {"probability": "mean probability of the class", "accuracy": "top-1 accuracy"}


def figure(found: Figures) -> Figure:
    panels = {
        kind: (
            KINDS[kind].reads,
            {
                "title": f"{kind} ({'higher' if KINDS[kind].keeps else 'lower'} is better)",
                "xlabel": f"share of the pixels {AREAS[kind]}, best first",
                "ylabel": READS[KINDS[kind].reads],
                "ylim": (0, None),
            },
        )
        for kind in dict.fromkeys(row["kind"] for row in found.rows if "kind" in row)
    }
    return plots.curves(found, panels, "area under the curve", 4.4, dense=True)


def save(found: Figures, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(found).savefig(path)
