"""Batches for training and testing: one mechanism, whatever the medium. What is held in memory is made once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice
from fovea.basics import ahead as made_ahead
from fovea.data import Sample
from fovea.models.twostream import Views
from fovea.networks import Network
from fovea.pictures import Prepare, sent
from fovea.training.sharing import Skipped, filled

Size = tuple[int, int]  # width, height
Device = torch.device
Progress = Callable[[int, int], None]
Inputs = Tensor | Views
Hold = bool | str  # in memory; "auto": where it fits
Make = Callable[[Sequence[int]], Tensor]  # by numbers
MOST_HELD = 8 * 2**30  # bytes that `hold = "auto"` keeps


@dataclass(frozen=True)
class Batch:
    inputs: Inputs  # N,C,H,W
    target: Tensor  # N
    index: Tensor  # N: which samples of the set
    shown: Sequence[tuple[Sample, Size]] = ()  # N, of a test set of pictures


@dataclass(frozen=True)
class Wanted:
    """One step's pictures: which, and the random numbers that each is cut and colored by."""

    index: Tensor  # N
    draws: Tensor = field(default_factory=lambda: torch.empty(0))  # N,11
    more: Tensor = field(default_factory=lambda: torch.empty(0))  # N,2: for feeds that choose among several patches
    turn: Tensor = field(default_factory=lambda: torch.empty(0))  # 1: the first of these, which stays on the host

    def to(self, device: torch.device) -> "Wanted":
        """The same on the device, which is not waited for."""
        index, draws, more = (sent(part, device) for part in (self.index, self.draws, self.more))
        return Wanted(index, draws, more, self.more.flatten()[:1])


class Feed:
    """A set as a network takes it: what training wants, step by step, or all of it in order for a test."""

    def __init__(self, samples: Sequence[Any], labels: Sequence[int], device: torch.device) -> None:
        """Samples that can be read; `skipped` are the others, with the reason."""
        self.samples, self.device = samples, device
        self.labels = torch.tensor(labels).to(device)
        self.skipped: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self.samples)

    def inputs(self, wanted: Wanted) -> Inputs:
        raise NotImplementedError

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        for step in wanted:
            there = step.to(self.device)
            yield Batch(self.inputs(there), self.labels[there.index], step.index)

    def in_order(self, size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """This process's share of the set."""
        return self.batches(map(Wanted, torch.split(torch.arange(rank, len(self), world), size)))


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same, each made while the one before it is trained on: in a backward pass Python has nothing to do."""
    made = made_ahead(lambda _: next(batches, None), count(), 1, 1)
    while (batch := next(made)) is not None:
        yield batch


class Kept:
    """What is made of so many things, by number: made once and held where that fits, made anew at every turn otherwise.
    `together` of them are made at once."""

    def __init__(self, make: Make, count: int, hold: Hold, progress: Progress, together: int = 1) -> None:
        self.make, self.held, first = make, None, make([0])
        if hold is True or (hold == "auto" and count * first[0].nbytes <= room(first.device)):

            def fill(rows: Tensor, mine: range) -> tuple[list[tuple[int, None]], Skipped]:
                for start in range(mine.start, mine.stop, together):
                    stop = min(start + together, mine.stop)
                    rows[start:stop] = make(range(start, stop))
                    progress(stop - mine.start, len(mine))
                return [(number, None) for number in mine], []

            self.held = filled((count, *first.shape[1:]), first.dtype, first.device, fill, together)[0]

    def __getitem__(self, numbers: Tensor) -> Tensor:
        """One row per number; of a table of numbers, one row per row."""
        if self.held is not None:
            return self.held[numbers.to(self.held.device)]
        return self.make(numbers.tolist()) if numbers.ndim == 1 else torch.stack([self[row] for row in numbers])


def preparing(network: Network) -> Prepare:
    if not isinstance(network.transform, Prepare):
        raise BadChoice(f"{network.name or 'the network'} has no transform that training takes apart: give a Prepare")
    return network.transform


def room(device: torch.device) -> int:
    """Bytes to hold at most; processes of one machine hold them together."""
    if device.type != "cuda":
        return MOST_HELD
    free = torch.cuda.mem_get_info(device)[0]
    return max(min(MOST_HELD, free // 2), free // 4)
