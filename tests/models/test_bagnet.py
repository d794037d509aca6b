import torch
from torch import nn

import fovea
from checks import refused
from fovea.models.bagnet import Bag, BagNet, Same
from fovea.networks import geometry


def small(classes: int = 3, side: int = 93) -> "fovea.Network":
    torch.manual_seed(0)
    return fovea.load("bagnet77", classes=classes, options={"width": 0.0625, "side": side})


def test_maps_shrink_as_in_table_4() -> None:
    seen, last = Bag(0.0625)(torch.zeros(1, 3, 77, 77))
    assert seen.shape[2:] == (9, 9)
    assert last.shape[2:] == (7, 7)


def test_same_padding_puts_the_odd_pixel_after() -> None:
    conv = Same(1, 1, 3, 2, bias=False)
    nn.init.ones_(conv.weight)
    x = torch.zeros(1, 1, 1, 4)
    x[..., 0] = 1
    # 4 to 2 needs one pixel: none before, so that the first output sees pixels 0 to 2 and the second 2 to 4
    assert conv(x.expand(1, 1, 4, 4))[0, 0, 0].tolist() == [3.0, 0.0]


def test_cells_see_77_pixels() -> None:
    network = small(side=160)
    found = geometry.of(network, "last")
    assert found.size == (77, 77)
    assert found.stride == (8, 8)


def test_pixels_outside_a_cells_patch_change_nothing() -> None:
    network = small(side=157)
    module = network.module.eval().double()
    x = torch.randn(1, 3, 157, 157, dtype=torch.double)
    found = geometry.of(fovea.wrap(module), "last", (157, 157))
    cell = (found.grid[0] // 2, found.grid[1] // 2)
    x0, y0, x1, y1 = found.region(cell)
    other = torch.randn_like(x)
    other[:, :, y0:y1, x0:x1] = x[:, :, y0:y1, x0:x1]
    with torch.no_grad():
        before, after = (module(one).features[0, :, cell[0], cell[1]] for one in (x, other))
    assert (before - after).abs().max() < 1e-12


def test_heatmaps_and_patches_of_it() -> None:
    network = small(side=160)
    pictures = torch.randn(2, 3, 160, 160)
    assert fovea.explain(network, pictures, method="cam").values.shape[0] == 2
    assert len(fovea.localize(network, pictures)) == 2


def test_too_small_a_picture_is_refused() -> None:
    refused("29 x 29", BagNet(2, 0.0625), torch.zeros(1, 3, 20, 20))
    refused("width", fovea.load, "bagnet77", options={"width": 0})
