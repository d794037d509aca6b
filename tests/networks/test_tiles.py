"""Cells taken from tiles are the cells of the whole: random networks, at sizes that are no multiple of anything."""

import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.networks import geometry
from fovea.networks.geometry.tiles import Tiling, tiling

USUAL = (64, 64)


class Same(nn.Conv2d):
    """Padded by what is left over, as TensorFlow does: where its positions are hangs on the input's size."""

    def forward(self, x: Tensor) -> Tensor:
        sides = list[int]()
        for axis in (3, 2):
            length, kernel, stride = x.shape[axis], self.kernel_size[axis - 2], self.stride[axis - 2]
            missing = max((-(-length // stride) - 1) * stride + kernel - length, 0)
            sides += [missing // 2, missing - missing // 2]
        return super().forward(F.pad(x, sides))


def made(seed: int) -> nn.Module:
    """A few layers, drawn: kernels of 1 to 5, strides of 1 to 3, padded with zeros, by reflection, as SAME, or not."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    layers, channels = list[nn.Module](), 3
    for _ in range(draw.randint(2, 4)):
        kernel, stride, kind = (
            draw.randint(1, 5),
            draw.choice((1, 1, 2, 3)),
            draw.choice(("zeros", "none", "same", "pool")),
        )
        width = draw.randint(2, 5)
        if kind == "pool":
            layers.append(nn.MaxPool2d(max(kernel, 2), stride, kernel // 2 if kernel > 1 else 0))
        elif kind == "same":
            layers.append(Same(channels, width, kernel, stride))
        else:
            layers.append(nn.Conv2d(channels, width, kernel, stride, draw.randint(0, kernel) if kind == "zeros" else 0))
        channels = channels if kind == "pool" else width
        layers.append(nn.Hardswish())
    return nn.Sequential(*layers).eval()


def of(module: nn.Module, size: tuple[int, int]) -> Tiling:
    found = tiling(lambda near: [geometry.of(module, size=near, channels=3)], size, USUAL)
    assert found is not None
    return found


def put_together(module: nn.Module, picture: Tensor, side: int, least: int) -> Tensor:
    made = of(module, (picture.shape[2], picture.shape[3]))
    parts, whole = [], None
    for tile in made.tiles(side, least):
        assert min(stop - start for start, stop in (tile.rows, tile.columns)) >= least
        cells = module(picture[:, :, slice(*tile.rows), slice(*tile.columns)])
        parts.append((tile.outer(0), cells[(..., *tile.inner(0))]))
    whole = torch.full((1, parts[0][1].shape[1], *made.grids[0]), torch.nan)
    for (rows, columns), cells in parts:
        assert whole[..., rows, columns].isnan().all()  # no cell is taken twice
        whole[..., rows, columns] = cells
    return whole


@pytest.mark.parametrize("seed", range(24))
def test_tiles_together_are_the_whole(seed: int) -> None:
    draw, module = random.Random(seed), made(seed)
    picture = torch.randn(1, 3, draw.randint(97, 211), draw.randint(97, 211))
    with torch.no_grad():
        torch.testing.assert_close(
            put_together(module, picture, draw.randint(8, 90), draw.randint(1, 60)), module(picture), rtol=0, atol=1e-5
        )


def test_a_pixel_outside_changes_no_cell_of_a_tile() -> None:
    module, size = made(3), (120, 133)
    picture = torch.randn(1, 3, *size)
    tile = of(module, size).tiles(40)[5]
    edited = torch.randn(1, 3, *size)
    rows, columns = slice(*tile.rows), slice(*tile.columns)
    edited[:, :, rows, columns] = picture[:, :, rows, columns]
    before, after = (module(each)[(..., *tile.outer(0))] for each in (picture, edited))
    assert before.numel()
    assert torch.equal(before, after)


def test_several_maps_share_their_tiles() -> None:
    """As AnchorNet's branches: narrower cells, of which there are more, are taken from the same tiles."""
    module = nn.ModuleList([nn.Conv2d(3, 2, 5, 4), nn.Conv2d(3, 2, 17, 4), nn.Conv2d(3, 2, 30, 4)])
    picture = torch.randn(1, 3, 131, 118)
    found = tiling(lambda near: [geometry.of(layer, size=near, channels=3) for layer in module], (131, 118), USUAL)
    assert found is not None
    wholes = [torch.full((1, 2, *grid), torch.nan) for grid in found.grids]
    for tile in found.tiles(40):
        for number, layer in enumerate(module):
            cells = layer(picture[:, :, slice(*tile.rows), slice(*tile.columns)])
            wholes[number][(..., *tile.outer(number))] = cells[(..., *tile.inner(number))]
    for whole, layer in zip(wholes, module, strict=True):
        torch.testing.assert_close(whole, layer(picture), rtol=0, atol=1e-5)
    assert found.reach() == 30


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.mean((2, 3), keepdim=True).sigmoid()


def test_no_tiles_where_cells_see_everything() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, 2), Pooled())
    assert tiling(lambda near: [geometry.of(module, size=near, channels=3)], (200, 200), USUAL) is None


def test_cells_lie_around_the_middle_of_what_they_see() -> None:
    """Kernel 5, stride 4, nothing padded: the first cell sees 0 to 5, so it stands for 0.5 to 4.5."""
    assert of(nn.Conv2d(3, 1, 5, 4), (21, 13)).extent(0) == (0.5, 0.5, 12.5, 20.5)
