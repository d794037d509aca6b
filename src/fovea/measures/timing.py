"""How long calls take, in turns with others, so that a machine busy with something else is so for all."""

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from fovea.networks import Network

Call = Callable[[], Any]
T = TypeVar("T")


def now(device: torch.device | None = None) -> float:
    """Seconds; what a GPU was asked for is done first."""
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def timed(call: Callable[[], T], device: torch.device | None = None) -> tuple[float, T]:
    """Seconds, and what the call gave."""
    start = now(device)
    given = call()
    return now(device) - start, given


def seconds(call: Call, device: torch.device | None = None, rounds: int = 1) -> float:
    """The median of the rounds."""
    return median(timed(call, device)[0] for _ in range(rounds))


def forward(network: Network, pixels: Tensor) -> Call:
    """A bare forward pass, as a call."""

    def call() -> Tensor:
        with torch.no_grad():
            return network(pixels)

    return call


def compare(bare: Call, calls: dict[tuple[str, str], Call], rounds: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Each call between two bare forwards, round after round: the median ratio and the median seconds."""
    for call in (bare, *calls.values()):
        call()
        call()
    taken: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in calls}
    order, generator = list(calls), random.Random(0)
    for turn in range(rounds):
        generator.shuffle(order)
        before = seconds(bare)
        for key in order:
            if turn >= 3 and median(ratio for ratio, _ in taken[key]) > 2.5:
                continue  # a slow one is known well enough
            spent, after = seconds(calls[key]), seconds(bare)
            taken[key].append((2 * spent / (before + after), spent))
            before = after
    forwards = {("bare", "forward"): (1.0, seconds(bare, rounds=max(rounds // 3, 3)))}
    return forwards | {key: (median(r for r, _ in each), median(s for _, s in each)) for key, each in taken.items()}
