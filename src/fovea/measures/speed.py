"""What explaining costs, in bare forwards measured in the same minute, beside the peers that are installed."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn

import fovea
from fovea.basics import DoesNotApply
from fovea.heatmaps import PAPER, Look, aims
from fovea.heatmaps.methods import Method, chosen, find, usual
from fovea.measures import Figures, Run, measure
from fovea.measures.timing import Call, compare, forward, seconds
from fovea.networks import OFFLINE, Network, as_found, cut, peak_megabytes

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own chatter
FOUR = ("cam", "gradcam", "gradcam-abs", "l2caf")
TORCHCAM = {"gradcam": "GradCAM", "gradcam++": "GradCAMpp", "layercam": "LayerCAM", "xgradcam": "XGradCAM",
            "scorecam": "ScoreCAM"}  # fmt: skip
GRAD_CAM = {"gradcam": "GradCAM", "gradcam++": "GradCAMPlusPlus", "hirescam": "HiResCAM", "layercam": "LayerCAM",
            "xgradcam": "XGradCAM", "eigencam": "EigenCAM", "scorecam": "ScoreCAM",
            "ablationcam": "AblationCAM"}  # fmt: skip


@measure(
    "bench explain",
    title="Time of explaining",
    about="Time every method against a bare forward pass, and against captum, torchcam and grad-cam where installed.",
    nets="names",
    data="none",
    usual={"net": ("timm/resnet50", "efficientnet_lite0"), "device": "cpu"},
)
def bench_explain(
    run: Run, *, method: Sequence[str] | None = None, batches: Sequence[int] = (1, 16), rounds: int = 11
) -> Figures:
    """Rows of the comparison: fovea's methods (but for costly ones, if none is named), the peers' own, the paper's
    recipe, peak memory. A costly one is timed once."""
    rows: list[dict[str, Any]] = []
    methods = chosen(list(usual() if method is None else method))
    for i, name in enumerate(run.names):
        network = fovea.load(name, pretrained=name in OFFLINE)
        for j, size in enumerate(batches):
            pixels = torch.randn(size, 3, 224, 224, generator=torch.Generator().manual_seed(0))
            rows += time_rows(network, pixels, rounds, methods)
            rows += _recipe_rows(network, pixels) if size == 1 and method is None else []
            rows += memory_rows(network, pixels, methods)
            run.progress(i * len(batches) + j + 1, len(run.names) * len(batches))
    settings = {
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "input": "224 x 224",
        "x_forward": "median of ratios to the bare forwards before and after",
    }
    return Figures("bench explain", settings, rows)


def time_rows(network: Network, pixels: Tensor, rounds: int, methods: Sequence[Method]) -> list[dict[str, Any]]:
    calls = {**_ours(network, pixels, methods), **_peers(network.module, pixels, [one.name for one in methods])}
    costly = {method.name for method in methods if method.costly}
    quick = {key: call for key, call in calls.items() if key[1] not in costly}
    times = compare(forward(network, pixels), quick, 2 * rounds if len(pixels) == 1 else rounds)
    for key in (key for key in calls if key[1] in costly):
        spent = seconds(calls[key])
        times[key] = spent / times["bare", "forward"][1], spent
    return [
        _row(library, method, network, len(pixels), ratio, spent / len(pixels) * 1e3)
        for (library, method), (ratio, spent) in times.items()
    ]


def _row(library: str, method: str, network: Network, size: int, ratio: float, milliseconds: float) -> dict[str, Any]:
    return {
        "library": library,
        "method": method,
        "net": network.name,
        "batch": size,
        "x_forward": round(ratio, 3),
        "ms_per_picture": round(milliseconds, 3),
    }


def _ours(network: Network, pixels: Tensor, methods: Sequence[Method]) -> dict[tuple[str, str], Call]:
    calls: dict[tuple[str, str], Call] = {}
    for method in methods:
        call = partial(fovea.explain, network, pixels, method=method)
        with suppress(DoesNotApply):  # cam is not for every head
            if not method.costly:
                call()
            calls["fovea", method.name] = call
    if all(("fovea", name) in calls for name in FOUR):
        calls["fovea", "four methods x top 5"] = partial(fovea.explain, network, pixels, method=FOUR, target="top5")
    return calls


def _peers(module: nn.Module, pixels: Tensor, methods: Sequence[str]) -> dict[tuple[str, str], Call]:
    """The maps of the class that each picture's output puts first, by each library's own documented way."""
    with torch.no_grad():
        classes = module(pixels).argmax(1).tolist()
    layer = dict(module.named_modules()).get("layer4", dict(module.named_modules()).get("bn2"))
    calls: dict[tuple[str, str], Call] = {}
    if layer is None:
        return calls  # where to look is for the user to say there
    if find_spec("torchcam"):
        import torchcam.methods

        def by_torchcam(kind: str) -> Any:
            with getattr(torchcam.methods, kind)(module, layer) as extractor:
                return extractor(classes, module(pixels))

        calls |= {("torchcam", name): partial(by_torchcam, TORCHCAM[name]) for name in methods if name in TORCHCAM}
    if find_spec("captum") and "gradcam" in methods:
        from captum.attr import LayerGradCam

        calls["captum", "gradcam"] = lambda: LayerGradCam(module, layer).attribute(pixels, target=classes)
    if find_spec("pytorch_grad_cam"):
        import pytorch_grad_cam
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

        def by_grad_cam(kind: str) -> Any:
            with getattr(pytorch_grad_cam, kind)(module, [layer]) as extractor:
                return extractor(pixels, [ClassifierOutputTarget(c) for c in classes])

        calls |= {("grad-cam", name): partial(by_grad_cam, GRAD_CAM[name]) for name in methods if name in GRAD_CAM}
    return calls


def _recipe_rows(network: Network, pixels: Tensor) -> Iterator[dict[str, Any]]:
    """Exact L2-CAF against the paper's recipe (Adam, 1e-5 over 50 iterations), with the losses they reach.

    "whole network" is what a user waits for; "solve" leaves the common pass through the trunk out of both.
    """
    bare = seconds(forward(network, pixels), rounds=9)
    for name in ("l2caf-sum", "l2caf-oblivious"):
        exact = cast(fovea.L2CAF, find(name).run)
        if fovea.explain(network, pixels, method=exact).solver != "exact":
            continue  # this head has to be iterated
        on_head = replace(exact, solver="iterative", descent=PAPER)
        vanilla = replace(exact, solver="vanilla", descent=PAPER)
        for what, method, times in (("exact, whole call", exact, 9), ("paper's recipe, whole network", vanilla, 1)):
            call = partial(fovea.explain, network, pixels, method=method)
            seen = call()
            spent = seconds(call, rounds=times)
            loss = None if seen.loss is None else float(f"{seen.loss.item():.6g}")
            row = _row("fovea", f"{name}: {what}", network, 1, spent / bare, spent * 1e3)
            yield {**row, "iterations": seen.iterations, "loss": loss}
        for what, method in (("exact, solve", exact), ("paper's recipe on the head, solve", on_head)):
            spent = median(_solve_seconds(network, pixels, method) for _ in range(3))
            yield _row("fovea", f"{name}: {what}", network, 1, spent / bare, spent * 1e3)


def _solve_seconds(network: Network, pixels: Tensor, method: fovea.L2CAF) -> float:
    with as_found(network):
        opened = cut(network, pixels).open(pixels)
        (aim,) = aims(None, network, opened.output)
        return seconds(lambda: method(Look(opened), aim))


def memory_rows(network: Network, pixels: Tensor, methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Peak memory of one explanation against one bare forward."""
    calls: dict[str, Call] = {"forward": forward(network, pixels)}
    quick = [method for method in methods if not method.costly]
    calls |= {name: call for (_, name), call in _ours(network, pixels, quick).items() if " " not in name}
    peaks = {what: peak_megabytes(call) for what, call in calls.items()}
    return [
        {
            "library": "bare" if what == "forward" else "fovea",
            "method": f"{what}: peak memory",
            "net": network.name,
            "batch": len(pixels),
            "peak_mb": round(peak, 1),
            "x_forward_memory": round(peak / peaks["forward"], 3),
        }
        for what, peak in peaks.items()
    ]
