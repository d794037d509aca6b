"""What reading a few glimpses saves against reading the full picture: time and memory, in one run, turn by turn."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice
from fovea.measures import Figures, Run, measure
from fovea.measures.timing import seconds
from fovea.networks import Network, answered, as_found, macs, parameters, peak_mb


@measure(
    "bench zoom",
    title="Time and memory of glimpses against full pictures",
    about="Time and memory of a few glimpses against the full picture, in one run, in turns. Weights do not matter.",
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
) -> Figures:
    """One row per size of batch. Both networks take the same pictures, `size` x `size`.

    In every round each is timed once, `against` before and after, so that a machine busy with something else is so for
    both.
    """
    if not batches:
        raise BadChoice("name one size of batch or several; got none")
    network, full = (run.load(net, classes) for net in (*run.given.nets, against))
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
