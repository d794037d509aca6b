from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from checks import refused
from commands import Run
from fovea.data import Box, Shot, Shots, open_clips
from fovea.measures import clips
from fovea.models.videonet import VideoNet, VideoNetOutput, VideoOptions
from fovea.networks import Network
from fovea.pictures import Placement, Prepare

SMALL = "moving:source=digits,canvas=32,digit=14,step=7"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run("measure", monkeypatch, capsys)


@dataclass(frozen=True)
class Dot:
    """A frame of 8 x 8 pixels, black but for a square of 2; `box` is what is said of it."""

    x: int
    y: int
    box: Box | None

    def read(self) -> Image.Image:
        image = Image.new("RGB", (8, 8))
        image.paste((255, 255, 255), (self.x, self.y, self.x + 2, self.y + 2))
        return image


def dots(*places: tuple[int, tuple[int, int], bool]) -> Shots:
    """Clips of two equal frames: a class, where the square is, and whether the box is around it."""
    shots = []
    for i, (label, (x, y), around) in enumerate(places):
        box = (x, y, x + 2, y + 2) if around else ((x + 4) % 8, y, (x + 4) % 8 + 2, y + 2)
        shots.append(Shot(f"{i}", label, (Dot(x, y, box), Dot(x, y, box))))
    return Shots("dots", tuple(shots), ("left", "right"))


class Sum(VideoNet):
    """The features are means of 2 x 2 pixels, and the embedding their weighted sums over cells and frames."""

    def __init__(self) -> None:
        super().__init__(nn.AvgPool2d(2), (8, 8), 3, (4, 4), VideoOptions(None, None, 1, 1, 1, 2, 0.0))
        self.shallow = nn.Sequential(nn.ReLU())
        across = torch.arange(1.0, 5).expand(4, 4).flatten()  # 1 to 4 from left to right
        self.weights = torch.stack([across, torch.ones(16)])  # 2,16

    def forward(self, x: torch.Tensor) -> VideoNetOutput:
        n, t = x.shape[:2]
        maps = self.shallow(self.look(x).flatten(0, 1))
        cells = maps.mean(1).flatten(1).unflatten(0, (n, t)).sum(1)  # N,16
        return VideoNetOutput(cells @ self.weights.T, maps)


def plain() -> Network:
    prepare = Prepare((8, 8), (0.0,) * 3, (1.0,) * 3, None, "nearest")
    return Network(Sum().eval(), prepare, None, "shallow", "plain", attrgetter("embedding"))


def test_maxima_in_boxes_by_hand() -> None:
    """Every map has its maximum on the square; of four clips one has its box elsewhere. A box holds 1 cell of 16."""
    data = dots((0, (0, 2), True), (0, (0, 4), True), (1, (6, 0), True), (1, (6, 6), False))
    found = fovea.measure("clips", plain(), data)
    assert [row["method"] for row in found.rows] == ["l2caf-oblivious", "gradcam", "gradcam-abs"]
    for row in found.rows:
        assert {key: row[key] for key in ("net", "data", "clips", "frames")} == {
            "net": "plain", "data": "dots", "clips": 4, "frames": 2,
        }  # fmt: skip
        assert row["in_box"] == 0.75
        assert row["chance"] == 1 / 16
        assert row["recall_at_1"] == 1.0
        assert row["nmi"] == pytest.approx(1.0)
    assert [(row["frame"], row["in_box"]) for row in found.details["by_frame"]] == [(0, 0.75), (1, 0.75)] * 3


def test_clips_of_mixed_up_classes_are_not_found() -> None:
    data = dots((0, (0, 2), True), (1, (0, 4), True), (0, (6, 0), True), (1, (6, 6), True))
    assert fovea.measure("clips", plain(), data).rows[0]["recall_at_1"] == 0.0


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_a_blank_map_has_no_maximum() -> None:
    """A network that sees nothing has maps of zeros, and no frame is a hit though a box lies at the first pixel."""
    network = plain()
    module = network.module
    module.weights = torch.zeros(2, 16)
    data = dots((0, (0, 0), True), (0, (0, 0), True), (1, (0, 0), True), (1, (0, 0), True))
    found = fovea.measure("clips", network, data, method=["gradcam", "gradcam-abs"])
    assert [row["in_box"] for row in found.rows] == [0.0, 0.0]


def test_cells_that_have_their_middle_in_a_box() -> None:
    """Cells of 2 input pixels, shown at twice their size: middles at 2, 6, 10 and 14."""
    placement = Placement((16, 16), (8, 8), (2.0, 2.0), (0.0, 0.0))
    found = clips.cells_in((4, 4), placement, (2, 5, 10, 7))
    assert np.argwhere(found).tolist() == [[1, 0], [1, 1]]


def test_without_boxes_there_is_retrieval_alone() -> None:
    shots = tuple(
        Shot(shot.name, shot.label, tuple(Dot(3 * shot.label, 0, None) for _ in range(2)))
        for shot in dots((0, (0, 0), True), (0, (0, 0), True), (1, (0, 0), True), (1, (0, 0), True)).samples
    )
    (row,) = fovea.measure("clips", plain(), Shots("dots", shots, ("left", "right")), method=["gradcam"]).rows
    assert row["recall_at_1"] == 1.0
    assert row["in_box"] is None
    assert row["chance"] is None


def test_what_is_refused() -> None:
    refused("two classes, and two clips", fovea.measure, "clips", plain(), open_clips(f"{SMALL},count=4,motions=3"))
    refused("give a video/NAME", fovea.measure, "clips", fovea.wrap(nn.Identity()), open_clips(f"{SMALL},count=32"))
    refused("batch is 1 to 65,536; got 0", fovea.measure, "clips", plain(), open_clips(f"{SMALL},count=32"), batch=0)
