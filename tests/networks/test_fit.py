"""How pictures of other proportions come in: where marks come back, what is not looked at, and in which order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import refused
from conftest import Pooled, Stacked
from fovea.networks import network as networks
from fovea.pictures import Prepare, Shown
from fovea.pictures.fits import FIT, FITS

PREPARE = Prepare((64, 64), (0.0,) * 3, (1.0,) * 3, 0.875, "bilinear")
WIDE, SIDE = (320, 80), 30


class Bright(nn.Module):
    """Its first class is how bright the picture is, cell by cell; its second is nothing."""

    def __init__(self, flexible: bool) -> None:
        super().__init__()
        self.cells, self.flexible, self.ran = nn.Conv2d(3, 2, 8, 8), flexible, 0
        nn.init.constant_(self.cells.weight, 1.0)
        nn.init.constant_(self.cells.bias, 1.0)  # type: ignore[arg-type]
        self.last = nn.Linear(2, 2, bias=False)
        self.last.weight.data = torch.tensor([[1.0, 0.0], [0.0, 0.0]])

    def forward(self, x: Tensor) -> Tensor:
        self.ran += 1
        if not self.flexible and x.shape[-2:] != (64, 64):
            raise ValueError("64 x 64 pixels only")
        return self.last(self.cells(x).mean((2, 3)))


def bright(flexible: bool = True, prepare: Prepare = PREPARE) -> fovea.Network:
    """As it would be loaded: nobody has said how pictures come in."""
    return replace(fovea.wrap(Bright(flexible), prepare, labels=["bright", "no"]), fit="")


def marked(x: int, y: int, size: tuple[int, int] = WIDE, side: int = SIDE) -> Image.Image:
    image = Image.new("RGB", size)
    image.paste((255, 255, 255), (x, y, x + side, y + side))
    return image


@pytest.mark.parametrize("flexible", [True, False])
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("x", "y"), [(0, 0), (145, 25), (290, 50)])
def test_a_mark_comes_back_where_it_is(fit: str, flexible: bool, x: int, y: int) -> None:
    """Outside the middle 70 x 70 pixels a crop sees nothing of it, and its map says nothing."""
    (seen,) = fovea.explain(bright(flexible), marked(x, y), method="cam", target="bright", fit=fit)
    window = seen.to_dict()["seen"]
    values = seen.pixels()
    assert values.shape == WIDE[::-1]
    assert window == ([125, 5, 195, 75] if fit == "crop" else pytest.approx([0, 0, *WIDE], abs=0.01))
    if fit == "crop" and not 125 < x + SIDE / 2 < 195:
        assert np.ptp(values[5:75, 125:195]) < 1e-5
        assert not values[:, :124].any()
        return
    row, column = np.argwhere(values == values.max()).mean(0)
    cells = {"crop": 9, "squash": 40, "whole": 20 if flexible else 40}[fit]  # pixels of the picture that a cell covers
    assert abs(column + 0.5 - (x + SIDE / 2)) < cells
    assert abs(row + 0.5 - (y + SIDE / 2)) < cells
    x0, y0, x1, y1 = seen.boxes[0].tolist()
    assert (x0 - cells <= x, y0 - cells <= y, x1 + cells >= x + SIDE, y1 + cells >= y + SIDE) == (True,) * 4


def test_padding_gets_no_map() -> None:
    """A picture in padding as bright as its mark: the padding's cells, beside those of the picture, count nowhere."""
    white = bright(False, replace(PREPARE, mean=(1.0,) * 3, interpolation="nearest"))  # padded with its mean color
    (seen,) = fovea.explain(white, marked(120, 0, side=80), method="cam", target="bright", fit="whole")
    assert seen.grid == (8, 8)
    assert seen.map()[0, 0] == seen.map().max()  # of padding alone
    values = seen.evidence()
    assert values.shape == WIDE[::-1]
    assert values[:, 140:170].max() > 0
    assert not values[:, :99].any()
    x0, _, x1, _ = seen.boxes[0].tolist()
    assert 100 <= x0 < 140 < 180 < x1 <= 220


def test_order_is_kept_across_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(64, 64), (128, 64), (64, 128), (300, 100), (64, 64), (128, 64), (90, 64), (64, 128), (64, 64), (40, 10)]
    random = np.random.default_rng(0)
    pictures = [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]
    net = bright()
    shapes: list[tuple[int, ...]] = []
    run = Bright.forward
    monkeypatch.setattr(Bright, "forward", lambda self, x: shapes.append(tuple(x.shape)) or run(self, x))
    together = fovea.explain(net, pictures, method="cam", target="bright", batch=4)
    assert (3, 3, 64, 64) in shapes  # those that are alike went together
    alone = [fovea.explain(net, picture, method="cam", target="bright") for picture in pictures]
    assert [shown.placement.picture for shown in together.shown if isinstance(shown, Shown)] == sizes  # type: ignore[union-attr]
    assert [heatmap.grid for heatmap in together] == [maps.grid for maps in alone]
    for heatmap, maps in zip(together, alone, strict=True):
        assert torch.allclose(heatmap.values, maps.values[0], atol=1e-5)
    predicted = net.predict(pictures, batch=4)
    assert [row.predictions for row in predicted] == [shown.predictions for shown in together.shown]
    assert torch.allclose(net(pictures), torch.cat([net(picture) for picture in pictures]), atol=1e-5)


def test_one_that_cannot_be_read_among_shapes(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for i, size in enumerate([(64, 64), (128, 64), (64, 64)]):
        marked(0, 0, size, 10 * (i + 1)).save(f"{folder}/{2 * i}.png")
    Path(folder, "1.png").write_text("hello")
    with pytest.warns(UserWarning, match="1.png"):
        found = bright().predict(folder)
    assert [prediction.name[-5:] for prediction in found] == ["0.png", "2.png", "4.png"]
    assert [name[-5:] for name, _ in found.skipped] == ["1.png"]


def test_what_is_usual_is_one_thing() -> None:
    """Of networks trained on crops FIT, squashed where they take one size only; of others, and of a user's own
    transform, what they are."""
    loaded, photo = bright(), marked(0, 0)
    assert loaded.fitted().fit == FIT
    assert fovea.explain(loaded, photo).settings["input"] == "whole, in its proportions"
    assert fovea.explain(bright(False), photo).settings["input"] == "squashed"
    assert fovea.explain(bright(False), photo, fit="whole").settings["input"] == "whole, padded"
    assert fovea.explain(loaded.fitted("crop"), photo).settings["input"] == "cropped"
    assert fovea.explain(loaded.squashed(), photo).settings["input"] == "squashed"
    assert fovea.explain(bright(prepare=replace(PREPARE, crop=None)), photo).settings["input"] == "squashed"
    own = fovea.wrap(Bright(True), PREPARE, labels=2)
    assert own.fitted() is own
    assert fovea.explain(own, photo).settings["input"] == "cropped"
    assert fovea.explain(own, photo, fit="whole").settings["input"] == "whole, in its proportions"
    for fit in FITS:
        assert loaded.fitted(fit).fitted("crop").transform == PREPARE
    zooms = replace(loaded, abilities=frozenset({"glimpses"}))
    assert zooms.fitted() is zooms
    refused("has windows of its own, and takes pictures as it was trained", zooms.fitted, "whole")


def test_a_pair_has_one_size() -> None:
    maps = fovea.explain(bright(), [marked(0, 0), marked(0, 0, (64, 64))], target="pair")
    assert maps.values.shape[2:] == (8, 8)


def test_other_sizes_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net = bright()
    assert net.step() == 16  # of 64 x 64 a quarter at most
    ran = net.module.ran  # type: ignore[union-attr]
    assert ran == 1  # at the other size alone: how many classes there are is known
    assert net.fitted("whole").transform.step == 16  # type: ignore[union-attr]
    assert net.module.ran == ran  # type: ignore[union-attr]
    assert fovea.wrap(Stacked(), Prepare((24, 24)), labels=5).step() == 0  # a fixed number of cells
    assert fovea.wrap(Pooled(), Prepare((48, 64)), labels=5).step() == 8
    assert fovea.wrap(Pooled(), PREPARE, labels=5).step() == 16
    monkeypatch.setattr(networks, "STEPS", ())
    assert fovea.wrap(Pooled(), PREPARE, labels=5).step() == 0


def test_how_often_a_network_runs_before_its_first_map_and_its_second() -> None:
    net, shapes = fovea.load("timm/test_efficientnet", pretrained=False), list[tuple[int, ...]]()
    stem = net.module.get_submodule("conv_stem")
    stem.register_forward_hook(lambda _, given, __: shapes.append(tuple(given[0].shape)))
    for most in (4, 1):  # another size tried, twice for the cut and its check, the map itself
        shapes.clear()
        fovea.explain(net, Image.new("RGB", (320, 240)))
        assert len(shapes) <= most, shapes


@pytest.mark.parametrize("own", [(224, 224), (240, 240), (128, 256), (64, 48)])
@pytest.mark.parametrize(
    "size", [(1, 1), (1, 500), (500, 1), (3000, 300), (300, 3000), (640, 480), (3, 2), (1000, 999)]
)
def test_inputs_are_bounded_and_in_proportion(own: tuple[int, int], size: tuple[int, int]) -> None:
    """About as many pixels as the network's own; all of the picture is in it, padded where it is very long."""
    step = 8 if min(own) < 100 else 32
    prepare = Prepare(own, crop=None, whole=True, step=step)
    tensor, placement = prepare(Image.new("RGB", size)), prepare.placement(*size)
    height, width = tensor.shape[1:]
    assert (height - own[0]) % step == (width - own[1]) % step == 0
    assert height * width <= 1.4 * own[0] * own[1]
    assert placement.input == (width, height)
    assert placement.window == pytest.approx((0, 0, *size), abs=0.01 * max(size))
    x, y = placement.scale
    assert 2 / 3 < x / y < 1.5 or min(size) * 20 < max(size)  # squashed by less than a step


def test_gray_networks_take_the_whole_picture() -> None:
    tensor = Prepare((64, 64), (0.5,), (0.5,), None, whole=True, step=16)(Image.new("RGB", (128, 64), "white"))
    assert tensor.shape == (1, 48, 96)
    assert torch.equal(tensor, torch.ones(1, 48, 96))
    padded = Prepare((64, 64), (0.5,), (0.5,), None, whole=True)(Image.new("RGB", (128, 64), "white"))
    assert padded[:, :16].abs().max() < 0.01
    assert torch.equal(padded[:, 16:48], torch.ones(1, 32, 64))
