"""One picture with parts of it hidden: what a network answers, on several backgrounds. Nothing is tried twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import go_on
from fovea.networks import Network, filling
from fovea.pictures import Placement, on_pixels

BACKGROUNDS = ("mean", "blur")  # of networks.FILLS
ACROSS = 7  # patches along the shorter side, as many as the last map of most networks has cells
MOST = 100  # patches; of a very long picture they are longer
AT_ONCE = {"cpu": 4, "cuda": 64}  # versions of the picture that pass the network at once
Patches = frozenset[int]  # counted in reading order
Box = tuple[int, int, int, int]  # x0 y0 x1 y1, half open, in pixels of the input


@dataclass
class Masked:
    """A picture as the network takes it, divided into patches, and what the network answers to some of them."""

    network: Network
    picture: Tensor  # 1,C,H,W
    answer: int
    fills: Mapping[str, Tensor]  # by background
    forwards: int = 0  # versions that have passed the network
    known: dict[tuple[Patches, str], Tensor] = field(default_factory=dict, repr=False)  # logits

    @classmethod
    def of(cls, network: Network, picture: Tensor, answer: int) -> "Masked":
        fills = {fill: filling(fill, network, picture).to(picture) for fill in BACKGROUNDS}
        return cls(network, picture, answer, fills)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the input."""
        return self.picture.shape[2], self.picture.shape[3]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, columns = (max(round(ACROSS * side / min(self.size)), 1) for side in self.size)
        rows, columns = min(rows, MOST // min(columns, ACROSS)), min(columns, MOST // min(rows, ACROSS))
        return min(rows, self.size[0]), min(columns, self.size[1])

    @property
    def count(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def every(self) -> Patches:
        return frozenset(range(self.count))

    @property
    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where rows and columns of patches begin and end."""
        (height, width), (rows, columns) = self.size, self.grid
        return np.arange(rows + 1) * height // rows, np.arange(columns + 1) * width // columns

    def mask(self, patches: Patches) -> Tensor:
        """True on these patches: H,W."""
        shown = np.zeros(self.count, bool)
        shown[list(patches)] = True
        down, across = map(np.diff, self.edges)
        return torch.from_numpy(shown.reshape(self.grid).repeat(down, 0).repeat(across, 1))

    def share(self, patches: Patches) -> float:
        """Of the pixels that the network was given."""
        return float(self.mask(patches).float().mean())

    def boxes(self, patches: Patches) -> list[Box]:
        """Patches side by side, and then rows of them that end alike, as one box each."""
        (rows, columns), (down, across) = self.grid, self.edges
        open_, found = dict[tuple[int, int], int](), list[Box]()  # runs of columns, by the row that they began in
        for row in range(rows + 1):
            inside = [row < rows and row * columns + column in patches for column in range(columns)]
            ends = np.flatnonzero(np.diff([False, *inside, False])).reshape(-1, 2).tolist()
            runs = {(left, right) for left, right in ends}
            for left, right in sorted(open_.keys() - runs):
                top = open_.pop((left, right))
                found.append((int(across[left]), int(down[top]), int(across[right]), int(down[row])))
            open_ |= {run: row for run in runs if run not in open_}
        return sorted(found, key=lambda box: (box[1], box[0]))

    def ranked(self, cells: NDArray[np.float32], place: Placement | None = None) -> NDArray[np.float32]:
        """A map's mean on every patch; `place` is where the map lies on the input, if not on all of it."""
        fine = on_pixels(cells, place or Placement.identity(self.size[1], self.size[0]))
        down, across = self.edges
        sums = np.add.reduceat(np.add.reduceat(fine, down[:-1], 0), across[:-1], 1)
        means: NDArray[np.float32] = (sums / np.outer(np.diff(down), np.diff(across))).astype(np.float32).ravel()
        return means

    def logits(self, sets: Sequence[Patches], background: str) -> Tensor:
        """What the network answers where only these patches are shown: M,classes."""
        new = [patches for patches in dict.fromkeys(sets) if (patches, background) not in self.known]
        size = AT_ONCE.get(self.picture.device.type, 64)
        for start in range(0, len(new), size):
            go_on()
            some = new[start : start + size]
            masks = torch.stack([self.mask(patches) for patches in some])[:, None].to(self.picture.device)
            with torch.no_grad():
                outputs = self.network(torch.where(masks, self.picture, self.fills[background])).float().cpu()
            self.known |= {(patches, background): row for patches, row in zip(some, outputs, strict=True)}
        self.forwards += len(new)
        return torch.stack([self.known[patches, background] for patches in sets])

    def margins(self, sets: Sequence[Patches], background: str) -> list[float]:
        """By how much the answer's logit is above all others."""
        logits = self.logits(sets, background)
        others = logits.clone()
        others[:, self.answer] = -torch.inf
        margins: list[float] = (logits[:, self.answer] - others.amax(1)).tolist()
        return margins
