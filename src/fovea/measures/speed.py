"""What explaining costs, in bare forwards measured in the same minute, beside the peers that are installed."""

import dataclasses
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import fovea
from fovea.heatmaps.explain import METHODS
from fovea.heatmaps.iterative import PAPER
from fovea.heatmaps.look import Look
from fovea.heatmaps.targets import aims
from fovea.networks.cost import peak_megabytes
from fovea.networks.cutting import cut
from fovea.networks.loading import OFFLINE
from fovea.networks.network import Network, as_found

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own chatter
Call = Callable[[], Any]
FOUR = ("cam", "gradcam", "gradcam-abs", "l2caf")


def threads() -> int:
    return torch.get_num_threads()


def explain(
    nets: list[str], batches: list[int], rounds: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[dict[str, Any]]:
    """Rows of the comparison: fovea's methods, the peers' Grad-CAM, the paper's recipe, peak memory."""
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(nets):
        network = fovea.load(name.strip(), pretrained=name.strip() in OFFLINE)
        for j, size in enumerate(batches):
            pixels = torch.randn(size, 3, 224, 224, generator=torch.Generator().manual_seed(0))
            rows += _rows(network, pixels, rounds)
            rows += _recipe_rows(network, pixels) if size == 1 else []
            rows += _memory_rows(network, pixels)
            progress(i * len(batches) + j + 1, len(nets) * len(batches))
    return rows


def _rows(network: Network, pixels: Tensor, rounds: int) -> list[dict[str, Any]]:
    calls = {**_ours(network, pixels), **_peers(network.module, pixels)}
    forward = _forward(network.module, pixels)
    times = compare(forward, calls, 2 * rounds if len(pixels) == 1 else rounds)
    return [
        _row(library, method, network, len(pixels), ratio, seconds / len(pixels) * 1e3)
        for (library, method), (ratio, seconds) in times.items()
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


def compare(
    forward: Call, calls: dict[tuple[str, str], Call], rounds: int
) -> dict[tuple[str, str], tuple[float, float]]:
    """Each call between two bare forwards, round after round: the median ratio and the median seconds."""
    for call in (forward, *calls.values()):
        call()
        call()
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in calls}
    order, generator = list(calls), random.Random(0)
    for turn in range(rounds):
        generator.shuffle(order)
        before = _seconds(forward)
        for key in order:
            if turn >= 3 and median(ratio for ratio, _ in ratios[key]) > 2.5:
                continue  # a slow one is known well enough
            own, after = _seconds(calls[key]), _seconds(forward)
            ratios[key].append((2 * own / (before + after), own))
            before = after
    bare = {("bare", "forward"): (1.0, median(_seconds(forward) for _ in range(max(rounds // 3, 3))))}
    return bare | {key: (median(r for r, _ in found), median(s for _, s in found)) for key, found in ratios.items()}


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _forward(module: nn.Module, pixels: Tensor) -> Call:
    def call() -> Tensor:
        with torch.no_grad():
            out: Tensor = module(pixels)
            return out

    return call


def _ours(network: Network, pixels: Tensor) -> dict[tuple[str, str], Call]:
    calls: dict[tuple[str, str], Call] = {}
    for name in (*FOUR, "l2caf-oblivious"):
        call = partial(fovea.explain, network, pixels, name)
        with suppress(fovea.BadNetwork):  # cam is not for every head
            call()
            calls["fovea", name] = call
    if all(("fovea", name) in calls for name in FOUR):
        calls["fovea", "four methods x top 5"] = partial(fovea.explain, network, pixels, FOUR, "top5")
    return calls


def _peers(module: nn.Module, pixels: Tensor) -> dict[tuple[str, str], Call]:
    """Grad-CAM of the class that each picture's output puts first, by each library's own documented way."""
    with torch.no_grad():
        classes = module(pixels).argmax(1).tolist()
    layer = dict(module.named_modules()).get("layer4", dict(module.named_modules()).get("bn2"))
    calls: dict[tuple[str, str], Call] = {}
    if layer is None:
        return calls  # where to look is for the user to say there
    if find_spec("torchcam"):
        from torchcam.methods import GradCAM as TorchCAM

        def torchcam() -> Any:
            with TorchCAM(module, layer) as extractor:
                return extractor(classes, module(pixels))

        calls["torchcam", "gradcam"] = torchcam
    if find_spec("captum"):
        from captum.attr import LayerGradCam

        calls["captum", "gradcam"] = lambda: LayerGradCam(module, layer).attribute(pixels, target=classes)
    if find_spec("pytorch_grad_cam"):
        from pytorch_grad_cam import GradCAM as GradCAMPackage
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

        def grad_cam() -> Any:
            with GradCAMPackage(module, [layer]) as extractor:
                return extractor(pixels, [ClassifierOutputTarget(c) for c in classes])

        calls["grad-cam", "gradcam"] = grad_cam
    return calls


def _recipe_rows(network: Network, pixels: Tensor) -> Iterator[dict[str, Any]]:
    """Exact L2-CAF against the paper's recipe (Adam, 1e-5 over 50 iterations), with the losses they reach.

    "whole network" is what a user waits for; "solve" leaves the common pass through the trunk out of both.
    """
    forward = median(_seconds(_forward(network.module, pixels)) for _ in range(9))
    for name in ("l2caf-sum", "l2caf-oblivious"):
        exact = METHODS[name]
        assert isinstance(exact, fovea.L2CAF)
        if fovea.explain(network, pixels, exact).solver != "exact":
            continue  # this head has to be iterated
        on_head = dataclasses.replace(exact, solver="iterative", descent=PAPER)
        vanilla = dataclasses.replace(exact, solver="vanilla", descent=PAPER)
        for what, method, times in (("exact, whole call", exact, 9), ("paper's recipe, whole network", vanilla, 1)):
            call = partial(fovea.explain, network, pixels, method)
            seen = call()
            seconds = median(_seconds(call) for _ in range(times))
            row = _row("fovea", f"{name}: {what}", network, 1, seconds / forward, seconds * 1e3)
            loss = None if seen.loss is None else float(f"{seen.loss.item():.6g}")
            yield {**row, "iterations": seen.iterations, "loss": loss}
        for what, method in (("exact, solve", exact), ("paper's recipe on the head, solve", on_head)):
            seconds = median(_solve_seconds(network, pixels, method) for _ in range(3))
            yield _row("fovea", f"{name}: {what}", network, 1, seconds / forward, seconds * 1e3)


def _solve_seconds(network: Network, pixels: Tensor, method: fovea.L2CAF) -> float:
    with as_found(network):
        opened = cut(network, pixels).open(pixels)
        (aim,) = aims(None, network, opened.output)
        return _seconds(lambda: method(Look(opened), aim))


def _memory_rows(network: Network, pixels: Tensor) -> list[dict[str, Any]]:
    """Peak memory of one explanation against one bare forward."""
    calls: dict[str, Call] = {"forward": _forward(network.module, pixels)}
    calls |= {name: call for (_, name), call in _ours(network, pixels).items() if " " not in name}
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
