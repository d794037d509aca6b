"""Where a TNet may look next, an n x n grid of overlapping regions, and what chooses among them: the location modules
of the paper's Tables 4 and 5, and controls that have learned nothing."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice, nearest
from fovea.models import bagnet
from fovea.pictures import constant, sent

CONTROLS = ("random", "center")


class Grid:
    """n x n regions, each a `fraction` of a side, that cover a window evenly."""

    def __init__(self, n: int, fraction: float) -> None:
        self.n, self.fraction = n, fraction

    def along(self, length: int) -> tuple[list[int], int]:
        """Where the regions of a window of this length begin, and how long they are; the odd pixel over the edge comes
        before."""
        own = max(round(length * self.fraction), 1)
        if self.n == 1:
            return [(length - own) // 2], own
        step = -(-(length - own) // (self.n - 1))
        over = own + step * (self.n - 1) - length
        if over >= own:  # a window of a few pixels: no region may lie outside it
            return [round(i * (length - own) / (self.n - 1)) for i in range(self.n)], own
        first = -(-over // 2)
        return [i * step - first for i in range(self.n)], own

    def cells_inside(self, height: int, width: int) -> Tensor:
        """Which cells of a map have their middle in which region: n*n,height*width; a region has at least one."""
        rows, columns = self._inside(height), self._inside(width)  # n,height  n,width
        both = rows[:, None, :, None] & columns[None, :, None, :]
        return both.reshape(self.n**2, height * width)

    def _inside(self, length: int) -> Tensor:
        starts = torch.linspace(0, 1 - self.fraction, self.n) if self.n > 1 else torch.tensor([(1 - self.fraction) / 2])
        middles = (torch.arange(length) + 0.5) / length
        inside = (middles >= starts[:, None] - 1e-6) & (middles <= starts[:, None] + self.fraction + 1e-6)
        nearest = (middles - starts[:, None] - self.fraction / 2).abs().argmin(1)
        return inside | (torch.arange(length) == nearest[:, None])


class Location(nn.Module, ABC):
    """How probable it is that each cell of the grid is attended. Nothing of its gradient reaches the features.

    `cells` are the rows, and columns, of the map that describe the grid's regions best (the paper's choice). None takes
    every cell of a region into account: the region's logit is the log of the sum of its cells', so that something
    small counts wherever in the region it is. `sharpness` is the length of the logits, 1 in the paper: none is
    then much more probable than another, and what is drawn is drawn almost evenly. Other lengths are of what tells the
    logits apart, without their mean; 0 leaves them as they are.
    """

    def __init__(
        self, channels: int, hidden: int, grid: Grid, cells: Sequence[int] | None, act: nn.Module, sharpness: float
    ) -> None:
        super().__init__()
        self.grid, self.cells, self.act = grid, None if cells is None else list(cells), act
        self.sharpness = sharpness
        self.across, self.down = nn.Linear(1, 1), nn.Linear(1, 1)  # coordinates to a learned range, their own at first
        self.begin()
        self.mix = nn.Conv2d(channels + 2, hidden, 1)
        self.logit = nn.Conv2d(hidden, 1, 1)

    def begin(self) -> None:
        """Coordinates as they are."""
        for layer in (self.across, self.down):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, seen: Tensor, vector: Tensor) -> Tensor:
        """Probabilities: N,n*n."""
        seen, vector = seen.detach(), vector.detach()
        if self.cells is not None:
            cells = constant(self.cells, seen.device)
            seen = seen[:, :, cells][:, :, :, cells]  # N,C,n,n
        seen = self._with_place(self._with_context(seen, vector))
        logits = self.logit(self.act(self.mix(seen)))[:, 0].float()  # N,h,w
        if self.cells is None:
            inside = sent(self.grid.cells_inside(logits.shape[1], logits.shape[2]), logits.device)  # n*n,h*w
            hidden = logits.flatten(1).unsqueeze(1).masked_fill(~inside, -math.inf)  # N,n*n,h*w
            logits = hidden.logsumexp(2)
        logits = logits.flatten(1)
        if self.sharpness:
            centered = logits if self.sharpness == 1 else logits - logits.mean(1, keepdim=True)
            logits = self.sharpness * F.normalize(centered, dim=1, eps=1e-12)
        return logits.softmax(1)

    @abstractmethod
    def _with_context(self, seen: Tensor, vector: Tensor) -> Tensor:
        """Cells that know something of the whole window."""

    def _with_place(self, seen: Tensor) -> Tensor:
        n, _, h, w = seen.shape
        rows, columns = (torch.linspace(-1, 1, k, device=seen.device, dtype=seen.dtype).view(-1, 1) for k in (h, w))
        down = self.down(rows).view(1, 1, h, 1).expand(n, 1, h, w)
        across = self.across(columns).view(1, 1, 1, w).expand(n, 1, h, w)
        return torch.cat([seen, down.to(seen.dtype), across.to(seen.dtype)], 1)


class ByVector(Location):
    """Table 4's: the context is the feature vector, beside every cell."""

    def __init__(
        self, channels: int, width: int, grid: Grid, cells: Sequence[int] | None, sharpness: float = 1.0
    ) -> None:
        super().__init__(channels + width, width, grid, cells, nn.LeakyReLU(bagnet.SLOPE), sharpness)

    def _with_context(self, seen: Tensor, vector: Tensor) -> Tensor:
        return torch.cat([seen, vector[:, :, None, None].expand(-1, -1, *seen.shape[2:])], 1)


class ByExcitation(Location):
    """Table 5's: the context comes by squeeze and excitation."""

    def __init__(self, channels: int, grid: Grid, cells: Sequence[int] | None, sharpness: float = 1.0) -> None:
        super().__init__(channels, channels, grid, cells, nn.SiLU(), sharpness)
        self.first = nn.Conv2d(channels, channels, 1)
        self.squeeze, self.excite = nn.Conv2d(channels, channels // 2, 1), nn.Conv2d(channels // 2, channels, 1)

    def _with_context(self, seen: Tensor, vector: Tensor) -> Tensor:
        seen = F.silu(self.first(seen))
        pooled = seen.mean((2, 3), keepdim=True)
        excited: Tensor = self.excite(F.silu(self.squeeze(pooled))).sigmoid()
        return seen * excited


class Control(nn.Module):
    """Places that are not learned, in place of those that are: drawn at random, or the cells nearest to the middle."""

    def __init__(self, grid: Grid, how: str, seed: int = 0) -> None:
        super().__init__()
        if how not in CONTROLS:
            raise BadChoice(f"places are {' or '.join(CONTROLS)}; got {how!r}{nearest(how, CONTROLS)}")
        self.grid, self.how, self.random = grid, how, torch.Generator().manual_seed(seed)

    def forward(self, seen: Tensor, vector: Tensor) -> Tensor:
        n = self.grid.n
        if self.how == "random":
            return torch.rand(len(seen), n * n, generator=self.random).to(seen.device).softmax(1)
        along = (torch.arange(n, device=seen.device) - (n - 1) / 2) ** 2
        turn = torch.arange(n * n, device=seen.device) * 1e-3  # of those as near, the first in reading order
        return (-(along[:, None] + along).flatten() - turn).softmax(0).expand(len(seen), -1)
