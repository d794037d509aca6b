"""Evidence that is local, of any classifier: the cells of AnchorNet's three grids as crops that it sees alone.

Each crop is cut out of the input, enlarged to the input's size and classified by itself, so a pixel outside of it has
no say at all: what AnchorNet has by its making, an ordinary network has by being asked often. "few-crops" goes from
coarse to fine: a grid with wide steps, then around the best, ever closer, until a tenth of the crops are read."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice, announce, duration, is_new, tell
from fovea.networks import Network, as_found, shares_of
from fovea.patches.scales import Look, Scale
from fovea.pictures import windows

SIDES, STEP, OF = (63, 95, 111), 8, 224  # of AnchorNet's patches, in an input of 224 pixels
FEW = 10  # a picture's crops in those that are read from coarse to fine
COARSE = 5  # cells between those that are read first
AT_ONCE = {"cuda": 512}  # crops in a pass
USUAL = 4  # what a layer writes stays in blocks that are used again: 32 at once take twice as long
SHORT = 2.0  # seconds per picture that need no words


class Grid(NamedTuple):
    """Where the crops of one side lie: rows and columns of them, and their boxes (P,4)."""

    side: int
    shape: tuple[int, int]
    boxes: Tensor


def grids(size: Sequence[int], side: int | None = None) -> list[Grid]:
    """AnchorNet's, for an input of this height and width, or the one of this side."""
    height, width = size
    times = min(size) / OF
    step = max(1, round(STEP * times))
    sides = [max(1, round(each * times)) for each in SIDES] if side is None else [side]
    if not 1 <= sides[0] <= min(size):
        raise BadChoice(f"a patch has between 1 and {min(size)} pixels a side; got side={side}")
    found = []
    for one in sides:
        y, x = (torch.arange(0, whole - one + 1, step) for whole in (height, width))
        top, left = torch.meshgrid(y, x, indexing="ij")
        boxes = torch.stack([left, top, left + one, top + one], 2).view(-1, 4)
        found.append(Grid(one, (len(y), len(x)), boxes))
    return found


def look_by_crops(network: Network, batch: Tensor, label: Tensor | None, side: int | None, few: bool) -> Look:
    """A batch as a classifier sees it crop by crop. A crop's value is the probability of the decided class, which is
    the whole picture's unless given; the scale whose best crop has the highest localizes."""
    every = torch.arange(len(batch), device=batch.device)
    with as_found(network), torch.no_grad():
        output = network(batch)
        decided = output.argmax(1) if label is None else label.to(output.device)
        reader = _Reader(network, batch, few, grids(batch.shape[2:], side))
        scales = tuple(reader.scale(grid, decided) for grid in reader.grids)
    best = torch.stack([scale.values.flatten(1).nan_to_num(-torch.inf).amax(1) for scale in scales])
    probability = shares_of(network, output)[every, decided]
    what = f"{'a tenth of ' * few}the crops of {'/'.join(str(grid.side) for grid in reader.grids)} pixels, seen alone"
    return Look(scales, best.argmax(0), decided, probability, output, True, what)


class _Reader:
    """Classifies crops, and tells how far it is."""

    def __init__(self, network: Network, batch: Tensor, few: bool, wanted: list[Grid]) -> None:
        self.network, self.batch, self.few, self.grids = network, batch, few, wanted
        self.total, self.done = len(batch) * sum(map(self._most, wanted)), 0

    def _most(self, grid: Grid) -> int:
        return max(-(-len(grid.boxes) // FEW), len(_coarse(grid))) if self.few else len(grid.boxes)

    def scale(self, grid: Grid, decided: Tensor) -> Scale:
        count, cells = len(self.batch), len(grid.boxes)
        values = self.batch.new_full((count, cells), torch.nan, dtype=torch.float32)
        parts = list[Tensor]()  # sums of what was said of each picture

        def read(owner: Tensor, which: Tensor) -> None:
            """Fills in these cells of these pictures (M each)."""
            logits = self._read(grid, owner, which)
            shares = shares_of(self.network, logits).float()
            there = owner.to(values.device), which.to(values.device)
            values[there] = shares.gather(1, decided[there[0]].unsqueeze(1))[:, 0]
            parts.append(logits.new_zeros(count, logits.shape[1]).index_add_(0, there[0], logits))

        if self.few:
            _from_coarse_to_fine(grid, values, read, self._most(grid))
        else:
            owner, which = torch.meshgrid(torch.arange(count), torch.arange(cells), indexing="ij")
            read(owner.flatten(), which.flatten())
        numbers = (~values.isnan()).sum(1, keepdim=True)
        return Scale(grid.side, values.view(count, *grid.shape), grid.boxes, torch.stack(parts).sum(0) / numbers)

    def _read(self, grid: Grid, owner: Tensor, which: Tensor) -> Tensor:
        """What the network says of crops: M,classes."""
        found, most, size = [], AT_ONCE.get(self.batch.device.type, USUAL), self.batch.shape[2:]
        for start in range(0, len(owner), most):
            tell(f"crop {self.done:,} of {self.total:,}")
            began, some = perf_counter(), slice(start, start + most)
            cut = windows.pixels(self.batch, owner[some], grid.boxes[which[some], :2], (grid.side, grid.side))
            large = F.interpolate(cut, size, mode="bilinear", align_corners=False)
            found.append(self.network(large.contiguous(memory_format=torch.channels_last)))
            self.done += len(cut)
            self._announce((perf_counter() - began) / len(cut))
        return torch.cat(found)

    def _announce(self, seconds: float) -> None:
        """What a picture takes, by the first crops."""
        each = self.total // len(self.batch)
        if seconds * each > SHORT and is_new(f"crops {id(self.network)}"):
            hint = "" if self.few else f"; few-crops reads a {FEW}th of them"
            announce(f"crops: {each:,} passes per picture, {duration(seconds * each)}{hint}")


def _from_coarse_to_fine(grid: Grid, values: Tensor, read: Callable[[Tensor, Tensor], None], most: int) -> None:
    """Reads at most so many cells of every picture: some far apart, then the neighbors of the best, ever nearer."""
    pictures, coarse = range(len(values)), _coarse(grid)
    read(torch.arange(len(values)).repeat_interleave(len(coarse)), torch.tensor(coarse).repeat(len(values)))
    reach = [COARSE // 2] * len(values)
    left = [most - len(coarse)] * len(values)
    while True:
        asked = []
        known, best = ~values.isnan().cpu(), values.nan_to_num(-torch.inf).argmax(1).tolist()
        for picture in pictures:
            near = list[int]()
            while reach[picture] and not near:
                near = [cell for cell in _around(best[picture], reach[picture], grid.shape) if not known[picture, cell]]
                reach[picture] -= not near
            asked += [(picture, cell) for cell in near[: left[picture]]]
            left[picture] -= len(near[: left[picture]])
        if not asked:
            return
        owner, which = torch.tensor(asked).T
        read(owner, which)


def _coarse(grid: Grid) -> list[int]:
    """Cells that are read first."""
    rows, columns = grid.shape
    return [row * columns + column for row in _spread(rows) for column in _spread(columns)]


def _spread(count: int) -> list[int]:
    """Places among so many, evenly from the first to the last, at most COARSE apart."""
    return torch.linspace(0, count - 1, -(-(count - 1) // COARSE) + 1).round().int().tolist()


def _around(cell: int, reach: int, shape: tuple[int, int]) -> list[int]:
    row, column = divmod(cell, shape[1])
    steps = [(down, right) for down in (-reach, 0, reach) for right in (-reach, 0, reach) if down or right]
    places = [(row + down, column + right) for down, right in steps]
    return [r * shape[1] + c for r, c in places if 0 <= r < shape[0] and 0 <= c < shape[1]]
