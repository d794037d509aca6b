"""L2-CAF's time over families of networks (paper Fig. 12): vanilla, fast, as fovea solves it, and Grad-CAM.

Vanilla and fast descend by the paper's recipe, so the fast one tells how many iterations both take; the vanilla one,
which runs the whole network at each, is timed over a few and multiplied. Fovea's is exact where the head allows it, and
iterates in its own way elsewhere."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, cast

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fovea.basics import BadChoice
from fovea.heatmaps import L2CAF, PAPER, HeatMaps
from fovea.heatmaps.explain import explain
from fovea.heatmaps.methods import find
from fovea.measures import Figures, Run, measure
from fovea.measures.plots import hatched, sheet, where
from fovea.measures.timing import bare, built, noise_for, seconds, timed
from fovea.networks import Network

WAYS = ("vanilla l2caf", "fast l2caf", "exact l2caf", "iterated l2caf", "gradcam")  # a head has one of the two between
FEW, HUNDRED, MOST = 10, 100, 300  # iterations: timed of the vanilla one, that families are compared by, of a descent
Call = Callable[[], HeatMaps]


@dataclass(frozen=True)
class Timed:
    """Seconds of a call with n iterations are `first` + (n - 1) `each`."""

    first: float
    each: float = 0.0

    def of(self, iterations: int) -> float:
        return self.first + (iterations - 1) * self.each


@measure(
    "bench families",
    title="Time of L2-CAF over families of networks",
    about="Time of the paper's L2-CAF (vanilla and fast), of fovea's and of Grad-CAM over families of networks "
    "(L2-CAF, Fig. 12).",
    example="--net torchvision/resnet50",
    nets="names",
    data="none",
    usual={
        "net": (
            "torchvision/vgg16",
            "gap/torchvision/vgg16",
            "torchvision/googlenet",
            "torchvision/resnet50",
            "torchvision/densenet161",
            "efficientnet_lite0",
            "timm/convnext_tiny",
            "timm/swin_tiny_patch4_window7_224",
            "timm/vit_small_patch16_224",
        ),
        "device": "cpu",
    },
    figure="draw",
)
def bench_families(run: Run, *, rounds: int = 5, seed: int = 0) -> Figures:
    """One row per network and way. Networks without weights at hand are untrained: iterations change, times do not."""
    if not run.names:
        raise BadChoice("name one or more networks")
    rows: list[dict[str, Any]] = []
    counter = itertools.count(1)

    def counted() -> None:
        run.progress(next(counter), len(run.names) * 4)

    for name in run.names:
        run.tell(name)
        network = built(name, run.device, seed=seed)
        rows += _rows(network, noise_for(network, 1, seed), rounds, counted)
    settings = {
        "input": "one picture of the network's size",
        "problem": "Eq. 1, the whole output",
        "stop": f"the loss changes by less than {PAPER.tolerance:g} over {PAPER.window} iterations (paper 3.1), {MOST} "
        "at the most",
        "seconds": "the whole call, with the iterations that the rule takes",
        f"seconds_{HUNDRED}": f"the same with {HUNDRED} iterations of the paper's recipe, so that families compare",
        "x_forward": f"of seconds_{HUNDRED}, to a bare forward",
        "untrained": "networks without weights at hand: times do not depend on weights, iterations do",
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "device": torch.device(run.device).type,
        "torch": torch.__version__,
    }
    return Figures("bench families", settings, rows)


def _rows(network: Network, pixels: Tensor, rounds: int, done: Callable[[], None]) -> list[dict[str, Any]]:
    """`done` is called after each of the ways."""
    oblivious = cast(L2CAF, find("l2caf-oblivious").run)
    device, forwards = pixels.device, list[float]()

    def descending(solver: Any, most: int) -> Call:
        method = replace(oblivious, solver=solver, descent=replace(PAPER, most=most))
        return partial(explain, network, pixels, method=method)

    def finished() -> None:
        forwards.append(seconds(bare(network, pixels), device, rounds))  # as busy as it is by now
        done()

    found: dict[str, dict[str, Any]] = {}
    gradcam: Call = partial(explain, network, pixels, method="gradcam", target="output")
    gradcam()  # the network is cut, which is done once
    found["gradcam"] = _took(Timed(seconds(gradcam, device, rounds)))
    finished()
    solved: Call = partial(explain, network, pixels, method=oblivious)
    maps = solved()
    way = "exact l2caf" if maps.solver == "exact" else "iterated l2caf"
    found[way] = _took(Timed(seconds(solved, device, rounds))) | _loss(maps)
    finished()
    once = seconds(descending("iterative", 1), device, rounds)
    spent, maps = timed(descending("iterative", MOST), device)
    count = int(maps.iterations)
    note = None if count < MOST else f"stopped at {MOST} iterations"
    found["fast l2caf"] = _took(Timed(once, max(spent - once, 0.0) / max(count - 1, 1)), count, note) | _loss(maps)
    finished()
    once = seconds(descending("vanilla", 1), device, min(rounds, 3))
    spent, _ = timed(descending("vanilla", FEW + 1), device)
    note = f"timed {FEW} of {count} iterations" if count > FEW else None
    found["vanilla l2caf"] = _took(Timed(once, max(spent - once, 0.0) / FEW), count, note)
    finished()
    return [_row(network, way, median(forwards), found[way]) for way in WAYS if way in found]


def _took(times: Timed, count: int | None = None, note: str | None = None) -> dict[str, Any]:
    """`count` are iterations of the paper's recipe."""
    return {
        "iterations": count,
        "seconds": times.of(count or 1),
        f"seconds_{HUNDRED}": times.of(HUNDRED),
        "ms_per_iteration": times.each * 1e3 if count is not None else None,
        "note": note,
    }


def _loss(maps: HeatMaps) -> dict[str, Any]:
    return {"loss": None if maps.loss is None else maps.loss.double().mean().item(), "solver": maps.solver}


def _row(network: Network, way: str, forward: float, found: dict[str, Any]) -> dict[str, Any]:
    return {"net": network.name, "method": way, **found, "x_forward": found[f"seconds_{HUNDRED}"] / forward}


def draw(found: Figures) -> Figure:
    """Families side by side, seconds on a log axis, as paper Fig. 12."""
    nets = list(dict.fromkeys(row["net"] for row in found.rows))
    figure = sheet(1.9 * len(nets) + 1.6, 5.2)
    panel = figure.subplots()
    bars_each = len(WAYS) - 1
    width, key = 0.8 / bars_each, f"seconds_{HUNDRED}"
    for place, way in enumerate(WAYS):
        rows = [row for row in found.rows if row["method"] == way]
        at = [nets.index(row["net"]) + (place - (place > 2) - (bars_each - 1) / 2) * width for row in rows]
        bars = panel.bar(at, [row[key] for row in rows], width, label=way, **hatched(place))
        words = [f"{row[key]:.2g}" if row[key] < 10 else f"{row[key]:.0f}" for row in rows]
        panel.bar_label(bars, words, fontsize="x-small", padding=1)
    counts = {row["net"]: row["iterations"] for row in found.rows if row["iterations"] is not None}
    panel.set_xticks(range(len(nets)), [f"{family(net)}\nstops after {counts[net]}" for net in nets])
    panel.set(yscale="log", ylabel=f"seconds a picture, {HUNDRED} iterations")
    panel.set_title(f"L2-CAF (Eq. 1) and Grad-CAM, {where(found)}")
    panel.margins(y=0.12)
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=len(WAYS), fontsize="small")
    return figure


def family(net: str) -> str:
    """The network's own name, and what was done to it: gap/torchvision/vgg16 is vgg16, gap."""
    *before, name = net.split("/")
    changed = [one for one in before if one not in ("timm", "torchvision")]
    return ", ".join([name, *changed])
