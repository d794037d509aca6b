"""A network that knows a picture by its mean color, and pictures whose similarity can be worked out by hand."""

import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fovea.networks import Network
from fovea.pictures import Prepare
from fovea.retrieval import index

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
SIDE = 24


class Colors(nn.Module):
    """Cells of 4 x 4 pixels, each its mean color; the embedding is the mean of the cells."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.Conv2d(3, 3, 4, 4, bias=False)
        self.cells.weight.data = torch.eye(3).view(3, 3, 1, 1).expand(3, 3, 4, 4).contiguous() / 16
        self.seen = 0  # pictures that have passed

    def forward_features(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return self.cells(x)

    def forward_head(self, cells: Tensor) -> Tensor:
        return cells.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def colors() -> Network:
    return Network(Colors().eval(), Prepare((SIDE, SIDE), (0.0,) * 3, (1.0,) * 3, None, "nearest"), name="colors")


class Slow(Colors):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.2)
        return super().forward(x)


def slow() -> Network:
    return Network(Slow().eval(), colors().transform)


def work_slowly(pictures: Path, file: Path) -> None:
    """For another process to be killed in."""
    index(slow(), pictures, file, batch=1)


def draw(path: Path, *shades: tuple[int, int, int]) -> Path:
    """Stripes of equal width, one a color."""
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
    width = SIDE // len(shades)
    for i, shade in enumerate(shades):
        pixels[:, i * width : (i + 1) * width] = shade
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def folder(root: Path) -> Path:
    """Half red and half green has the cosine 1 / sqrt 2 with red, two thirds red 2 / sqrt 5."""
    draw(root / "warm/red.png", RED)
    draw(root / "warm/mostly.png", RED, RED, GREEN)
    draw(root / "warm/half.png", RED, GREEN)
    draw(root / "cold/green.png", GREEN)
    draw(root / "cold/blue.png", BLUE)
    return root
