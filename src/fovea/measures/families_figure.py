"""L2-CAF's time over families of networks, as paper Fig. 12: families side by side, seconds on a log axis."""

from pathlib import Path

from matplotlib.figure import Figure

from fovea.measures.curve_figure import COLOURS
from fovea.measures.families import HUNDRED, WAYS
from fovea.measures.figures import Figures

HATCHES = ("", "//", "..", "xx")


def figure(found: Figures) -> Figure:
    nets = list(dict.fromkeys(row["net"] for row in found.rows))
    sheet = Figure(figsize=(1.9 * len(nets) + 1.6, 5.2), layout="constrained")
    panel = sheet.subplots()
    width, key = 0.8 / len(WAYS), f"seconds_{HUNDRED}"
    for place, way in enumerate(WAYS):
        rows = [row for row in found.rows if row["method"] == way]
        at = [nets.index(row["net"]) + (place - (len(WAYS) - 1) / 2) * width for row in rows]
        bars = panel.bar(
            at, [row[key] for row in rows], width, color=COLOURS[place], hatch=HATCHES[place], alpha=0.85, label=way
        )
        panel.bar_label(bars, [_short(row[key]) for row in rows], fontsize="x-small", padding=1)
    counts = {row["net"]: row["iterations"] for row in found.rows if row["iterations"] is not None}
    panel.set_xticks(range(len(nets)), [f"{_family(net)}\nstops after {counts[net]}" for net in nets])
    panel.set(
        yscale="log",
        ylabel=f"seconds a picture, {HUNDRED} iterations",
        title=f"L2-CAF (Eq. 1) and Grad-CAM, CPU, {found.settings['threads']} thread(s), 224 x 224",
    )
    panel.margins(y=0.12)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    sheet.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=len(WAYS), fontsize="small")
    return sheet


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def _family(net: str) -> str:
    """The network's own name, and what was done to it: gap/torchvision/vgg16 is vgg16, gap."""
    *before, name = net.split("/")
    changed = [one for one in before if one not in ("timm", "torchvision")]
    return ", ".join([name, *changed])


def save(found: Figures, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(found).savefig(path, dpi=110)
