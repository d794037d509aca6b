"""The part of a network after the cut, for any of the pictures of a batch, and made ready for many filters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fovea.networks.layout import Layout

Head = Callable[[Tensor], Tensor]
MOST_FOLDED = 256  # cells
AT_ONCE = 8  # pictures, every cell of them by itself


@dataclass(frozen=True)
class Stages:
    """A head whose affine beginning stands apart."""

    affine: Head
    rest: Callable[..., Any]  # what that gives, and what else the head reads, to the output


@dataclass(frozen=True)
class SecondPart:
    """The part after the cut: features, and what else it reads of the trunk, to the output."""

    rest: Callable[..., Any]
    read: Head
    also: tuple[Any, ...]
    of_rows: tuple[bool, ...] | None  # which of these have a row per sample; None where that is not known of all
    written: tuple[bool, ...]  # the features and these: does the head write on them in place?
    stages: Callable[[Tensor], Stages | None] = lambda _: None  # its affine beginning apart, for features like these

    def __call__(self, features: Tensor) -> Tensor:
        given = (features, *self.also)
        return self.read(self.rest(*(v.clone() if w else v for v, w in zip(given, self.written, strict=True))))

    def take(self, rows: Tensor) -> "SecondPart":
        """The head of some samples."""
        also = (v[rows] if by_row else v for v, by_row in zip(self.also, self.of_rows or (), strict=True))
        return replace(self, also=tuple(also))


@dataclass(frozen=True)
class Fold:
    """A head whose affine beginning was run for every cell by itself."""

    closed: Tensor  # B,...  what it gives where all cells are closed
    columns: Tensor  # B,P,D  what each cell adds
    rest: SecondPart

    def __call__(self, f: Tensor) -> Tensor:
        added = torch.bmm(f.to(self.columns.dtype).unsqueeze(1), self.columns)
        return self.rest(self.closed + added.view_as(self.closed))

    def take(self, rows: Tensor) -> "Fold":
        return Fold(self.closed[rows], self.columns[rows], self.rest.take(rows))


@torch.no_grad()
def folded(head: SecondPart, features: Tensor, layout: Layout) -> Fold | None:
    """None where the head does not begin with an affine layer."""
    stages = head.stages(features) if layout.cells <= MOST_FOLDED else None
    if stages is None:
        return None
    cells, runs = layout.cells, list[Tensor]()
    only = torch.cat([torch.zeros(1, cells), torch.ones(1, cells), torch.eye(cells)]).to(features.device)
    for some in torch.split(features, AT_ONCE):  # in one run: to read weights once more takes as long as ten rows
        every = some.repeat_interleave(len(only), dim=0)
        runs += stages.affine(layout.times(every, only.repeat(len(some), 1))).chunk(len(some))
    closed, there, columns = torch.split(torch.stack(runs), [1, 1, cells], dim=1)  # B,1,...  B,1,...  B,P,...
    added, closed, there = (columns - closed).flatten(2), closed.squeeze(1), there.squeeze(1)
    if (closed.flatten(1) + added.sum(1) - there.flatten(1)).norm() > 1e-3 * there.norm():
        return None
    return Fold(closed, added, replace(head, rest=stages.rest, written=(False, *head.written[1:])))
