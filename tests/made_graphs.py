"""What tests of exported graphs share."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fovea.graphs import session
from fovea.pictures import Prepare

PAGE = Path(__file__).parents[1] / "docs/export.md"
PREPARE = Prepare((64, 64), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), None)


def blocks(marker: str) -> str:
    """The code of the docs that a marker announces."""
    (found,) = re.findall(rf"<!-- {marker}: runs in tests -->\n```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    return str(found)


def run(path: Path, pixels: Tensor, target: list[int], name: str = "pixels") -> dict[str, Any]:
    given = session(path, 1)
    found = given.run(None, {name: pixels.numpy(), "target": np.array(target)})
    return dict(zip([output.name for output in given.get_outputs()], found, strict=True))


def noise(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, height, width, 3), generator=generator, dtype=torch.uint8)


class Normed(nn.Module):
    """A norm after the pooling, as ConvNeXt's: no closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.GELU())
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(self.trunk(x).mean((2, 3))))
