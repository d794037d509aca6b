"""Walks that go on thing by thing, so that they may end at any of them: the frontier of one TNet's picture."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fovea.models.glimpsing import Scene, Walk, running_mean, weighted_mean
from fovea.models.locations import Grid
from fovea.pictures import constant

TINY = 1e-10  # beside a probability whose logarithm is taken


class Region(NamedTuple):
    """What may be read, or was."""

    level: int  # counted from 0
    corner: tuple[int, int]  # x y in the scene's pixels
    extent: tuple[int, int]  # height, width
    cell: tuple[int, int]  # x y on the grid of its level
    parent: int = -1  # which of the things read it was chosen in
    log_probability: float = 0.0  # of that choice
    promise: float = 0.0  # what goes before it in best-first order promises more


@dataclass
class Frontier:
    """One picture. With `steps`, pairs of a thing read and the rank of a cell in it, what comes next is known
    beforehand (the paper's plan); without, it is the most promising region of any level that was not read yet.

    A region promises the product of the probabilities on the path to it, each beside that of a cell if all were alike:
    a probability above average makes going deeper worth more than going aside. Below the levels that the network was
    `trained` for, what has no more detail than was read of it, at `side` x `side`, is not gone into.
    """

    scene: Scene
    grid: Grid
    levels: int
    trained: int
    side: int
    steps: Sequence[tuple[int, int]] | None = None
    read: list[Region] = field(default_factory=list)
    each: list[Tensor] = field(default_factory=list)  # 1,classes: what each says alone
    scores: list[Tensor] = field(default_factory=list)  # 1: that weights come from, where the average is learned
    inside: list[list[Region]] = field(default_factory=list)  # of each thing read its regions, the most probable first
    frontier: list[tuple[float, int, Region]] = field(default_factory=list)
    known: set[tuple[int, tuple[int, int]]] = field(default_factory=set)

    @property
    def next(self) -> Region | None:
        """What comes next; nothing where all is read."""
        if not self.read:
            return Region(0, (0, 0), self.scene.size, (0, 0))
        if self.steps is not None:
            place = len(self.read) - 1
            parent, rank = self.steps[place] if place < len(self.steps) else (0, math.inf)
            return self.inside[parent][int(rank)] if rank < math.inf else None
        while self.frontier and self.frontier[0][2][:2] in self.known:  # neighbors' regions overlap, and may be equal
            heapq.heappop(self.frontier)
        return self.frontier[0][2] if self.frontier else None

    @property
    def pending(self) -> int | None:
        return None if self.next is None else self.next.level + 1

    def take(self, each: Tensor, score: Tensor | None, probability: Tensor | None) -> None:
        """What the network made of the next region: 1,classes  1  n*n."""
        region = self.next
        assert region is not None
        self.known.add(region[:2])
        self.read.append(region)
        self.each.append(each)
        self.scores += [] if score is None else [score]
        deeper = self.steps is not None or region.level + 1 < self.trained or max(region.extent) > self.side
        cells = probability.tolist() if probability is not None and deeper else []
        regions = [self._region(region, cell, share) for cell, share in enumerate(cells)]
        self.inside.append(sorted(regions, key=lambda inner: -inner.log_probability))
        for inner in self.inside[-1] if self.steps is None else ():
            heapq.heappush(self.frontier, (-inner.promise, len(self.read) * len(cells), inner))

    def _region(self, outer: Region, cell: int, share: float) -> Region:
        n, log = self.grid.n, math.log(share + TINY)
        (rows, height), (columns, width) = map(self.grid.along, outer.extent)
        corner = outer.corner[0] + columns[cell % n], outer.corner[1] + rows[cell // n]
        place = outer.cell[0] * n + cell % n, outer.cell[1] * n + cell // n
        promise = outer.promise + log + 2 * math.log(n)
        return Region(outer.level + 1, corner, (height, width), place, len(self.read) - 1, log, promise)

    @property
    def walk(self) -> Walk:
        each = torch.stack(self.each, 1)  # 1,V,classes
        after, share = weighted_mean(each, torch.stack(self.scores, 1)) if self.scores else (running_mean(each), None)
        boxes = [[x, y, x + width, y + height] for _, (x, y), (height, width), *_ in self.read]
        levels, parents = tuple(region.level + 1 for region in self.read), tuple(region.parent for region in self.read)
        logs = each.new_tensor([[region.log_probability for region in self.read[1:]]])
        return Walk(after[:, -1], after, each, constant(boxes, each.device)[None], levels, parents, logs, share)
