"""What explaining costs, in bare forwards measured in the same minute, beside the peers that are installed."""

import dataclasses
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import fovea
from fovea.cutting import cut
from fovea.explaining import METHODS, look_at
from fovea.explaining.look import Look
from fovea.heatmap import Shown
from fovea.network import Network, as_found
from fovea.placement import Placement
from fovea.targets import aims

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
        network = fovea.load(name.strip(), pretrained=False)
        for j, size in enumerate(batches):
            pixels = torch.randn(size, 3, 224, 224, generator=torch.Generator().manual_seed(0))
            rows += _rows(network, pixels, rounds)
            rows += _recipe_rows(network, pixels) if size == 1 else []
            rows += _memory_rows(name.strip(), size)
            progress(i * len(batches) + j + 1, len(nets) * len(batches))
    return rows


def _rows(network: Network, pixels: Tensor, rounds: int) -> list[dict[str, Any]]:
    calls = {**_ours(network, pixels), **_peers(network.module, pixels)}
    forward = _forward(network.module, pixels)
    times = compare(forward, calls, rounds if len(pixels) == 1 else max(rounds // 3, 3))
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
    for _ in range(rounds):
        before = _seconds(forward)
        for key, call in calls.items():
            own, after = _seconds(call), _seconds(forward)
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
    names = (*FOUR, "l2caf-oblivious")
    single = {("fovea", name): lambda name=name: fovea.explain(network, pixels, name) for name in names}
    every = {("fovea", "four methods x top 5"): lambda: fovea.explain(network, pixels, FOUR, "top5")}
    return {**single, **every}


def _peers(module: nn.Module, pixels: Tensor) -> dict[tuple[str, str], Call]:
    """Grad-CAM of the class that each picture's output puts first, by each library's own documented way."""
    with torch.no_grad():
        classes = module(pixels).argmax(1).tolist()
    layer = getattr(module, "layer4", None) or module.get_submodule("bn2")
    calls: dict[tuple[str, str], Call] = {}
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
        on_head = dataclasses.replace(exact, solver="iterative", descent=fovea.PAPER)
        vanilla = dataclasses.replace(exact, solver="vanilla", descent=fovea.PAPER)
        for what, method in (("exact, whole call", exact), ("paper's recipe, whole network", vanilla)):
            fovea.explain(network, pixels, exact)
            start = time.perf_counter()
            seen = fovea.explain(network, pixels, method)
            seconds = time.perf_counter() - start
            row = _row("fovea", f"{name}: {what}", network, 1, seconds / forward, seconds * 1e3)
            yield {
                **row,
                "iterations": seen.iterations,
                "loss": None if seen.loss is None else round(seen.loss.mean().item(), 4),
            }
        for what, method in (("exact, solve", exact), ("paper's recipe on the head, solve", on_head)):
            seconds = median(_solve_seconds(network, pixels, method) for _ in range(3))
            yield _row("fovea", f"{name}: {what}", network, 1, seconds / forward, seconds * 1e3)


def _solve_seconds(network: Network, pixels: Tensor, method: fovea.L2CAF) -> float:
    with as_found(network):
        opened = cut(network, pixels).open(pixels)
        (aim,) = aims(None, network, opened.output)
        return _seconds(lambda: method(Look(opened), aim))


def _memory_rows(net: str, size: int) -> list[dict[str, Any]]:
    """Peak memory beyond the loaded network, each in a process of its own: one bare forward, one explanation."""
    context = multiprocessing.get_context("spawn")
    peaks = {}
    for what in ("forward", *FOUR, "l2caf-oblivious"):
        with context.Pool(1) as pool:
            peaks[what] = pool.apply(peak_megabytes, (net, size, what))
    return [
        {
            "library": "bare" if what == "forward" else "fovea",
            "method": f"{what}: peak memory",
            "net": net,
            "batch": size,
            "peak_mb": round(peak, 1),
            "x_forward_memory": round(peak / peaks["forward"], 3),
        }
        for what, peak in peaks.items()
    ]


def peak_megabytes(net: str, size: int, what: str) -> float:
    """How far this process's memory rises above what it takes with the network loaded."""
    network = fovea.load(net, pretrained=False)
    pixels = torch.randn(size, 3, 224, 224)
    small = pixels[:1, :, :64, :64]  # code and tables are loaded on a small input first
    shown = [Shown("x", Placement.identity(224, 224), pixels[0])] * size
    run = _forward(network.module, pixels)
    if what == "forward":
        _forward(network.module, small)()
    else:
        fovea.explain(network, small, what)
        run = lambda: look_at(network, pixels, shown, [METHODS[what]], None)  # noqa: E731
    before = _resident()
    run()
    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before, 1.0)


def _resident() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
