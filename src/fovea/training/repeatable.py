"""The same run twice: every random number follows from the seed and the step, every sum has its order."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def generator(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(mixed(*numbers))


def mixed(*numbers: int) -> int:
    """One seed out of several numbers, unlike that of any near ones (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state ^ number) + 0x9E3779B97F4A7C15 & (1 << 64) - 1
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
        state = (state ^ state >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
        state ^= state >> 31
    return state >> 1


def seed_all(device: torch.device, *numbers: int) -> None:
    """For what draws from the common generators: dropout, mixing, a network's own."""
    seed = mixed(*numbers)
    if device.type == "cpu":  # without what is written down for a GPU that may be used one day
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def repeatable(device: torch.device, threads: int | None) -> Iterator[None]:
    """On a CPU, the same sums in the same order every time; on a GPU, speed."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads or threads_before)
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    guards: Any = torch.utils.deterministic
    fill = guards.fill_uninitialized_memory
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
        guards.fill_uninitialized_memory = False  # a safeguard that costs a tenth of the time
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        guards.fill_uninitialized_memory = fill
        torch.backends.cudnn.benchmark = benchmark
