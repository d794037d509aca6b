"""What reading a few glimpses saves against reading the full picture: time and memory, in one run, turn by turn."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice
from fovea.glimpses import Route, ZoomAnswer, zoom_steps
from fovea.measures import Figures, Run, measure
from fovea.measures.timing import seconds
from fovea.networks import Network, answered, as_found, macs, parameters, peak_mb
from fovea.results import Step

FEW, ZOOMS = 4, 20  # glimpses that are timed together, zooms with a budget in each round


@measure(
    "bench zoom",
    title="Time and memory of glimpses against full pictures",
    about="Time and memory of reading a few glimpses, beside reading the whole picture, in turns in one run. Weights "
    "do not matter.",
    example="--net tnet-b0 --glimpses 4 --batches 1",
    nets="names",
    data="none",
    trained=False,
    usual={"net": ("tnet-b0",), "device": "cpu"},
)
def bench_zoom(
    run: Run,
    *,
    against: str = "timm/efficientnet_b0",
    size: int = 896,
    glimpses: Sequence[int] = (4,),
    batches: Sequence[int] = (1, 16),
    classes: int = 62,
    rounds: int = 5,
    budget_ms: float | None = None,
) -> Figures:
    """One row per size of batch. Both networks take the same pictures, `size` x `size`.

    In every round each is timed once, `against` before and after, so that a machine busy with something else is so for
    both. With `budget_ms` there is a single row instead: how many of 20 zooms into a file per
    round ended in time.
    """
    if not batches:
        raise BadChoice("name one size of batch or several; got none")
    network, full = (run.load(net, classes) for net in (*run.given.nets, against))
    if budget_ms is not None:
        return _within(network, budget_ms, size, ZOOMS * rounds, run)
    if not network.can("glimpses"):
        raise BadChoice(f"{network.name or 'the network'} does not zoom; name one that reads glimpses, as tnet-b0")
    rows: list[dict[str, Any]] = []
    for batch in batches:
        pixels = torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(0))
        pixels = pixels.to(network.device, network.dtype)
        for count in glimpses:
            rows.append(_row(network, full, pixels, count, rounds))
            run.progress(len(rows), len(batches) * len(glimpses))
    settings = {
        "device": network.device.type,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "size": size,
        "x_time": "median over the rounds of the time of one forward of the batch, in the mean of the full network's "
        "before and after",
        "peak_mb": "the most that the tensors made during one forward take up at once; the batch itself and the "
        "weights, made before, are counted on neither side",
        "macs": "multiplications a picture (TNet, Eq. 11)",
        "weights": "random",
    }
    return Figures("bench zoom", settings, rows)


def _within(network: Network, budget: float, size: int, count: int, run: Run) -> Figures:
    """How many zooms end within a budget and one glimpse, from before a file is opened to its answer."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "noise.png")
        values = np.random.default_rng(0).integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8)
        Image.fromarray(values).resize((size, size), Image.Resampling.BICUBIC).save(path)
        one = [_timed(zoom_steps(network, path, Route(number))) for number in (0, FEW) * 5]
        glimpse = median((more[0] - none[0]) / FEW for none, more in zip(one[::2], one[1::2], strict=True))
        steps, zooms = zoom_steps(network, [path] * count, Route(budget_ms=budget)), list[tuple[float, ZoomAnswer]]()
        for done in range(1, count + 1):
            zooms.append(_timed(steps))
            run.progress(done, count)
    spent, glimpses = [ms for ms, _ in zooms], [len(answer.glimpses) for _, answer in zooms]
    row = {
        "net": network.name or "network",
        "budget_ms": budget,
        "zooms": count,
        "in_time": sum(ms <= budget + glimpse for ms in spent) / count,
        "ms_median": round(median(spent), 1),
        "ms_95": round(float(np.quantile(spent, 0.95)), 1),
        "ms_most": round(max(spent), 1),
        "ms_per_glimpse": round(glimpse, 1),
        "glimpses": sum(glimpses) / count,
    }
    settings = {
        "device": network.device.type,
        "threads": torch.get_num_threads(),
        "size": size,
        "in_time": "share of zooms that took the budget and one glimpse at most, from before the file was opened",
        "ms_per_glimpse": f"median of 5 times that {FEW} glimpses took, by their number",
        "weights": "random",
    }
    return Figures("bench zoom", settings, [row])


def _timed(steps: Iterator[Step[ZoomAnswer]]) -> tuple[float, ZoomAnswer]:
    """The next picture's milliseconds and answer."""
    began = perf_counter()
    (answer,) = next(steps).results
    return 1000 * (perf_counter() - began), answer


def _row(network: Network, against: Network, pixels: Tensor, glimpses: int, rounds: int) -> dict[str, Any]:
    def read() -> Any:
        with torch.no_grad():
            return answered(network, pixels, glimpses)

    def whole() -> Any:
        with torch.no_grad():
            return answered(against, pixels)

    with as_found(network), as_found(against):
        peaks = [peak_mb(call, pixels.device) for call in (read, whole)]  # warms both up
        ratios, own, full = list[float](), list[float](), [seconds(whole, pixels.device)]
        for _ in range(rounds):
            own.append(seconds(read, pixels.device))
            full.append(seconds(whole, pixels.device))
            ratios.append(2 * own[-1] / (full[-2] + full[-1]))
        counts = macs(network, pixels[:1], glimpses), macs(against, pixels[:1])
    batch = len(pixels)
    return {
        "net": network.name or "network",
        "against": against.name or "network",
        "batch": batch,
        "glimpses": glimpses,
        "ms_per_picture": round(median(own) / batch * 1e3, 2),
        "ms_against": round(median(full) / batch * 1e3, 2),
        "x_time": round(median(ratios), 3),
        "peak_mb": round(peaks[0], 1),
        "peak_mb_against": round(peaks[1], 1),
        "x_memory": round(peaks[0] / peaks[1], 3),
        "macs": counts[0],
        "macs_against": counts[1],
        "x_macs": round(counts[0] / counts[1], 3),
        "params": parameters(network.module),
        "params_against": parameters(against.module),
    }
