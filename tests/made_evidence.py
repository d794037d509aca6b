"""A network whose answer hangs on known squares of its input, and pictures to go with it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

import fovea
from fovea.pictures import Prepare

SIDE, SQUARE = 56, 8  # pixels: 7 x 7 squares, which are the patches that are shown and hidden
PREPARE = Prepare((SIDE, SIDE), (0.0,), (1.0,), None, "nearest")


class Squares(nn.Module):
    """Cells are the means of squares. The answer 'there' has their weighted sum (or, of several squares, the largest
    part of it), and 'gone' what that has to reach."""

    def __init__(self, weights: Mapping[int, float], reach: float, largest: bool = False) -> None:
        super().__init__()
        self.cells = nn.Sequential(nn.AvgPool2d(SQUARE), nn.Conv2d(1, 1, 1, bias=False))
        self.fc, self.largest = nn.Linear((SIDE // SQUARE) ** 2, 2), largest
        nn.init.ones_(self.cells[1].weight)
        nn.init.zeros_(self.fc.weight)
        self.fc.weight.data[0, list(weights)] = torch.tensor([*weights.values()])
        self.fc.bias.data = torch.tensor([0.0, reach])

    def forward(self, x: Tensor) -> Tensor:
        cells = self.cells(x).flatten(1)
        if not self.largest:
            return self.fc(cells)
        return torch.stack([(cells * self.fc.weight[0]).amax(1), self.fc.bias[1].expand(len(x))], 1)


def squares(weights: Mapping[int, float], reach: float, largest: bool = False) -> fovea.Network:
    module = Squares(weights, reach, largest).eval()
    return fovea.wrap(module, PREPARE, labels=["there", "gone"], layer="cells.1")


def lit(*places: int) -> Tensor:
    """1,1,56,56: 1 on these squares, which are counted in reading order, and 0 elsewhere."""
    cells = torch.zeros(1, 1, (SIDE // SQUARE) ** 2)
    cells[..., list(places)] = 1
    return cells.view(1, 1, SIDE // SQUARE, -1).repeat_interleave(SQUARE, 2).repeat_interleave(SQUARE, 3)


def counted(module: nn.Module) -> list[int]:
    """Of every pass through the module from now on, how many pictures it has."""
    rows = list[int]()
    module.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    return rows


def painted(boxes: Sequence[Sequence[float]], size: tuple[int, int]) -> Tensor:
    """True inside of boxes, which must not overlap: H,W."""
    times = torch.zeros(size, dtype=torch.int)
    for x0, y0, x1, y1 in boxes:
        times[round(y0) : round(y1), round(x0) : round(x1)] += 1
    assert int(times.max()) <= 1, "boxes overlap"
    return times > 0
