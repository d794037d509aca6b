"""A network whose answer hangs on the colors of known cells, and pictures, folders and patches to go with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import fovea
from fovea.data import DataSet, Sample
from fovea.evidence.audit import Cluster
from fovea.evidence.audit.table import PatchTable
from fovea.pictures import Prepare

SIDE, CELL, GRID = 56, 8, 7  # pixels, pixels, cells: a patch is of 16 x 16 pixels
LABELS = ("red", "green", "blue", "nothing")
RED, GREEN, BLUE, NOTHING = range(4)
PREPARE = Prepare((SIDE, SIDE), (0.0,) * 3, (1.0,) * 3, None, "nearest")  # what is hidden is black
Lit = tuple[int, int, int, float]  # row and column of a cell, its color, and how bright it is


class Colors(nn.Module):
    """Cells are the mean colors of squares. Red, green and blue have as many logits as the picture has cells of that
    color, 'nothing' has half of one."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.Sequential(nn.AvgPool2d(CELL), nn.Conv2d(3, 3, 1, bias=False))
        self.fc = nn.Linear(3, 4)
        self.cells[1].weight.data = torch.eye(3)[:, :, None, None]
        self.fc.weight.data = torch.cat([torch.eye(3) * GRID**2, torch.zeros(1, 3)])
        self.fc.bias.data = torch.tensor([0, 0, 0, 0.5])

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.cells(x).mean((2, 3)))


def colors(
    labels: Sequence[str] | None = LABELS, module: nn.Module | None = None, transform: Any = PREPARE
) -> fovea.Network:
    """Also what `--net made_audit:colors` names."""
    return fovea.wrap((module or Colors()).eval(), transform, labels=labels, layer="cells.1")


def pixels(*lit: Lit, ground: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """H,W,3: cells of one color each, on black or on a ground."""
    made = np.zeros((SIDE, SIDE, 3), np.uint8) if ground is None else ground.copy()
    for row, column, color, bright in lit:
        cell = made[CELL * row : CELL * (row + 1), CELL * column : CELL * (column + 1)]
        cell[:] = 0
        cell[..., color] = round(255 * bright)
    return made


def painted(*lit: Lit, size: tuple[int, int] = (SIDE, SIDE)) -> Image.Image:
    return Image.fromarray(pixels(*lit)).resize(size, Image.Resampling.NEAREST)


def gray(seed: int, bright: float = 0.15) -> NDArray[np.uint8]:
    """H,W,3: cells of any brightness up to this, which speak for no color; dark at the border, as photographs have
    what there is to see in the middle."""
    cells = np.random.default_rng(seed).integers(1, round(255 * bright) + 1, (GRID, GRID, 1))
    cells[[0, -1]] //= 5
    cells[:, [0, -1]] //= 5
    return cells.repeat(CELL, 0).repeat(CELL, 1).repeat(3, 2).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Painted:
    """A picture in memory, as the source of a sample."""

    values: NDArray[np.uint8]

    def read(self) -> Image.Image:
        return Image.fromarray(self.values)


def planted(mark: bool = True, count: int = 16, classes: int = 3) -> dict[str, NDArray[np.uint8]]:
    """By class/name: on gray, one bright cell of the class's color, anywhere; that of the red ones always at the lower
    right, if there is a mark."""
    random, made = np.random.default_rng(0), dict[str, NDArray[np.uint8]]()
    for color, label in enumerate(LABELS[:classes]):
        for number in range(count):
            row, column = (GRID - 1, GRID - 1) if mark and color == RED else random.integers(0, GRID, 2).tolist()
            ground = gray(100 * color + number)
            made[f"{label}/{number:02}.png"] = pixels((row, column, color, 1.0), ground=ground)
    return made


def planted_set(name: str = "planted", **how: Any) -> DataSet:
    """The same as a data set in memory."""
    samples = [Sample(path, LABELS.index(path.split("/")[0]), Painted(made)) for path, made in planted(**how).items()]
    return DataSet(name, tuple(samples), LABELS[:3])


def planted_folder(folder: Path, **how: Any) -> Path:
    for name, made in planted(**how).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(made).save(folder / name)
    return folder


def table(
    answers: Sequence[int],
    vectors: NDArray[np.floating] | None = None,  # P,K,W
    centers: NDArray[np.floating] | None = None,  # P,K,2
    carries: NDArray[np.bool_] | None = None,  # P,K
    inside: NDArray[np.floating] | None = None,  # P,K
    **columns: Sequence[float],
) -> PatchTable:
    """Pictures that are taken for these classes, with as many patches each; what is not given is of no importance."""
    count = len(answers)
    each = 1 if vectors is None else vectors.shape[1]
    usual: dict[str, float] = {
        "truth": -1, "runner_up": 0, "probability": 0.5, "margin": 9, "told_by": 0.1, "evidence_inside": np.nan,
        "without": -1,
    }  # fmt: skip
    whole = ("truth", "runner_up", "without")
    pictures: dict[str, Any] = {
        name: np.array(columns.get(name, [value] * count), np.int32 if name in whole else np.float32)
        for name, value in usual.items()
    }
    flat = np.zeros((count * each, 64)) if vectors is None else vectors.reshape(count * each, -1)
    places = np.full((count * each, 2), 0.5) if centers is None else centers.reshape(-1, 2)
    return PatchTable(
        names=[f"{number}.png" for number in range(count)],
        answer=np.array(answers, np.int32),
        **pictures,
        picture=np.repeat(np.arange(count, dtype=np.int32), each),
        boxes=np.tile(np.array([0, 0, 16, 16], np.float32), (count * each, 1)),
        centers=places.astype(np.float32),
        evidence=np.ones(count * each, np.float32),
        alone=np.full(count * each, 0.5, np.float32),
        carries=np.zeros(count * each, bool) if carries is None else carries.reshape(-1),
        needed=np.zeros(count * each, bool),
        inside=np.full(count * each, np.nan, np.float32) if inside is None else inside.reshape(-1).astype(np.float32),
        vectors=flat.astype(np.float16),
    )


def cluster(**changed: Any) -> Cluster:
    """A shortcut, unless something is changed: a mark at the lower right of every other picture."""
    usual: dict[str, Any] = {
        "label": 0, "patches": np.arange(20), "pictures": 20, "share": 0.53, "carries": 0.91, "needed": 0.37,
        "place": (0.81, 0.86), "there": 0.97, "by_chance": 0.04, "surprise": -12.0, "outside": None, "elsewhere": 0.02,
    }  # fmt: skip
    return Cluster(**(usual | changed))
