"""Resizing by eight kernels and turning hues, beside torch's and torchvision's own."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as V

from fovea.pictures import cut
from fovea.training.kernels import KERNELS, resized, turned

WHOLE = torch.tensor([[0.0, 0.0, 1.0, 1.0]])


def by(name: str, picture: Tensor, size: tuple[int, int], window: Tensor = WHOLE, flip: bool = False) -> Tensor:
    draw = torch.tensor([(list(KERNELS).index(name) + 0.5) / len(KERNELS)])
    return resized(picture, window, torch.tensor([flip]), size, draw)


def noise(height: int, width: int) -> Tensor:
    return torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(0)) * 255


def test_there_are_eight() -> None:
    assert len(KERNELS) == 8


@pytest.mark.parametrize("name", KERNELS)
def test_a_flat_picture_stays_flat(name: str) -> None:
    found = by(name, torch.full((1, 1, 7, 9), 100.0), (5, 13), torch.tensor([[0.1, 0.2, 0.8, 0.9]]))
    assert torch.allclose(found, torch.tensor(100.0), atol=1e-3)


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in ("mitchell", "gaussian")])
def test_a_picture_of_the_same_size_stays_as_it_is(name: str) -> None:
    picture = noise(6, 8)
    assert torch.allclose(by(name, picture, (6, 8)), picture, atol=1e-3)
    assert torch.allclose(by(name, picture, (6, 8), flip=True), picture.flip(3), atol=1e-3)


def test_bilinear_is_what_windows_are_cut_with_otherwise() -> None:
    window, picture = torch.tensor([[0.2, 0.25, 0.7, 0.9]]), noise(20, 30)
    inner = by("bilinear", picture, (8, 12), window)
    assert torch.allclose(inner, cut(picture, window, (8, 12)), atol=1e-2)


def test_area_is_the_mean_of_what_it_leaves_out() -> None:
    picture = noise(6, 8)
    assert torch.allclose(by("area", picture, (3, 4)), torch.nn.functional.avg_pool2d(picture, 2), atol=1e-3)
    row = torch.tensor([[[[0.0, 10.0, 20.0, 30.0]]]])
    assert by("area", row, (1, 6))[0, 0, 0].tolist() == pytest.approx([0, 5, 10, 20, 25, 30])


def test_nearest_takes_the_pixel_it_lies_in() -> None:
    row = torch.arange(4.0).repeat(1, 1, 1, 1)
    assert by("nearest", row, (1, 8))[0, 0, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert by("nearest", torch.arange(8.0).repeat(1, 1, 1, 1), (1, 4))[0, 0, 0].tolist() == [1, 3, 5, 7]


def test_bicubic_by_hand() -> None:
    """Halfway between two pixels, Keys' weights are -1/16, 9/16, 9/16, -1/16."""
    row = torch.tensor([[[[0.0, 16.0, 32.0, 0.0]]]])
    middle = by("bicubic", row, (1, 1), torch.tensor([[0.25, 0.0, 0.75, 1.0]]))
    assert float(middle) == pytest.approx(9 + 18)


def test_each_picture_has_its_own_kernel() -> None:
    both, size = noise(6, 8).expand(2, -1, -1, -1), (3, 5)
    found = resized(both, WHOLE.expand(2, 4), torch.tensor([False, False]), size, torch.tensor([0.0, 0.99]))
    first, last = (by(name, both[:1], size) for name in (next(iter(KERNELS)), list(KERNELS)[-1]))
    assert torch.equal(found, torch.cat([first, last]))


@pytest.mark.parametrize("shift", [-0.5, -0.2, 0.0, 0.1, 0.35])
def test_hues_turn_as_torchvisions(shift: float) -> None:
    pixels = noise(9, 7)
    pixels[:, :, 0] = pixels[:, :1, 0]  # a gray row has no hue
    expected = V.adjust_hue(pixels / 255, shift) * 255
    assert torch.allclose(turned(pixels, torch.tensor([shift])), expected, atol=1e-2)
