import pytest
import torch
from torch import Tensor, nn

import fovea


class ByHand(nn.Module):
    """Two channels, x and 2x, of 2 x 2 cells, and a linear layer with weights g for each: all can be worked out."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(1, 2, 1, bias=False)
        self.trunk.weight.data = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1)
        self.fc = nn.Linear(8, 2, bias=False)
        self.fc.weight.data = torch.tensor([[1.0, -1, 2, 1, 0, 1, -1, 3], [0.0] * 8])

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.trunk(x).flatten(1))


@pytest.fixture
def by_hand() -> fovea.Network:
    """A1 = 1 2 3 4, A2 = 2 4 6 8, g1 = 1 -1 2 1, g2 = 0 1 -1 3, y = 31."""
    return fovea.wrap(ByHand(), labels=["yes", "no"])


@pytest.fixture
def four() -> Tensor:
    return torch.tensor([1.0, 2, 3, 4]).view(1, 1, 2, 2)
