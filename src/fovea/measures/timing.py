"""How long calls take, in turns with others, so that a machine busy with something else is so for all."""

import random
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from fovea.basics import BadChoice, nearest
from fovea.networks import FILES, OFFLINE, Network, input_shape, load, ours, placed

Call = Callable[[], Any]
Key = tuple[str, str]  # what is called: a library and its method
Pair = tuple[float, float]  # a ratio, and seconds
T = TypeVar("T")
CLASSES, SIDE = 1000, 224  # of networks without weights at hand, and of inputs where no transform says it
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WARM_UP = 2  # calls of each that are not counted: the first ones choose kernels and take memory
FEWEST, LONG = 3, 60.0  # rounds that are taken however long they are; seconds after which they are enough


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


def bare(network: Network, pixels: Tensor) -> Call:
    """The same without what fovea adds: the module itself. `built` networks are in eval mode."""

    def call() -> Any:
        with torch.no_grad():
            return network.module(pixels)

    return call


def built(name: str, device: str = "cpu", precision: str = "fp32", seed: int = 0) -> Network:
    """A network to time, in eval mode: with the weights at hand, else with random ones, the same for the same seed."""
    if precision not in PRECISIONS:
        near = nearest(precision, PRECISIONS)
        raise BadChoice(f"no precision {precision!r}{near} (there are: {', '.join(PRECISIONS)})")
    at_hand = name in ours() or name.endswith(FILES) or (name in OFFLINE and find_spec(OFFLINE[name][0]) is not None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = load(name, pretrained=at_hand, classes=None if at_hand else CLASSES)
    network.module.to(PRECISIONS[precision]).eval()
    return placed(network, device)


def noise_for(network: Network, size: int, seed: int = 0) -> Tensor:
    """A batch for the network, as its transform would give it: its size, device and precision."""
    shape = input_shape(network, None if network.transform is not None else SIDE)
    pixels = torch.randn(size, *shape, generator=torch.Generator().manual_seed(seed))
    return pixels.to(network.device, network.dtype)


def compare(bare: Call, calls: dict[Key, Call], rounds: int, device: torch.device | None = None) -> dict[Key, Pair]:
    """Each call between two bare forwards, a minute of rounds at most: the median ratio and the median seconds."""
    for call in (bare, *calls.values()):
        for _ in range(WARM_UP):
            call()
    taken: dict[Key, list[Pair]] = {key: [] for key in calls}
    order, generator, begun = list(calls), random.Random(0), now()
    for turn in range(rounds):
        if turn >= FEWEST and now() - begun > LONG:
            break
        generator.shuffle(order)
        before = seconds(bare, device)
        for key in order:
            if turn >= FEWEST and median(ratio for ratio, _ in taken[key]) > 2.5:
                continue  # a slow one is known well enough
            spent, after = seconds(calls[key], device), seconds(bare, device)
            taken[key].append((2 * spent / (before + after), spent))
            before = after
    forwards = {("bare", "forward"): (1.0, seconds(bare, device, max(rounds // 3, 3)))}
    return forwards | {key: (median(r for r, _ in each), median(s for _, s in each)) for key, each in taken.items()}
