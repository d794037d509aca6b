"""Windows of a decoded picture are those of the same picture as a tensor; what is read is counted to the pixel."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fovea.basics import clipped, union
from fovea.glimpses import Blank, Box, Counted, PictureScene
from fovea.models.glimpsing import Pixels
from fovea.pictures import Decoded, Prepare

GRAY = Prepare((4, 4), (0.5,), (0.5,), None)
COLOR = Prepare((4, 4), (0.5, 0.4, 0.6), (0.5, 0.25, 0.2), None)


def scene_of(values: np.ndarray, prepare: Prepare, antialias: bool = True) -> PictureScene:
    image = Image.fromarray(values.astype(np.uint8)).convert("RGB")
    return PictureScene(Decoded(image), prepare, torch.device("cpu"), torch.float32, antialias)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3))


def corners(*points: tuple[int, int]) -> torch.Tensor:
    return torch.tensor([points])


def test_a_window_at_its_own_size_is_its_pixels() -> None:
    values = np.arange(0, 240, 10).reshape(4, 6)
    seen = scene_of(values, GRAY).read(corners((1, 0), (3, 2)), (2, 2), 2)
    expected = torch.tensor([[[10, 20], [70, 80]], [[150, 160], [210, 220]]]) / 255 * 2 - 1
    assert torch.allclose(seen[:, 0], expected)


def test_over_the_edge_there_are_zeros() -> None:
    seen = scene_of(np.full((4, 4, 3), 255), COLOR).read(corners((-1, -1), (3, 3), (40, 0)), (2, 2), 2)
    white = torch.tensor([1.0, 2.4, 2.0])  # (1 - mean) / std
    assert torch.allclose(seen[0], white[:, None, None] * torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    assert torch.allclose(seen[1], white[:, None, None] * torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert not seen[2].any()


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(("extent", "side"), [((20, 30), 7), ((5, 6), 16), ((40, 52), 16), ((9, 9), 9)])
def test_a_picture_is_read_as_its_tensor_is(antialias: bool, extent: tuple[int, int], side: int) -> None:
    """Also over the edge and far shrunk; PIL rounds to whole gray values, and the padding's color too."""
    values = noise(40, 52)
    prepare = Prepare((40, 52), COLOR.mean, COLOR.std, None)  # a picture of the network's own size
    scene = scene_of(values, prepare, antialias)
    at = corners((0, 0), (7, 3), (-4, -3), (30, 25))
    batch = prepare.normalize(torch.from_numpy(values).permute(2, 0, 1)).unsqueeze(0)
    expected = Pixels(batch, antialias).read(at, extent, side)
    assert (scene.read(at, extent, side) - expected).abs().max() < 2 / 255 / min(COLOR.std)


def test_over_the_edge_of_a_picture_far_larger_than_the_network_takes() -> None:
    """There a window is put together coarser than the picture is, but no coarser than the network sees it."""
    shades = np.linspace(0, 255, 64)[:, None, None] * np.ones((1, 48, 3))
    wide = np.pad(shades, ((0, 0), (16, 0), (0, 0)), mode="edge")  # the same with more of it at the left
    edge, inside = (
        scene_of(values, GRAY).read(corners((x, 16)), (32, 32), 4) for values, x in ((shades, -16), (wide, 0))
    )
    assert not edge[..., 0].any()
    assert torch.allclose(edge[..., 3], inside[..., 3], atol=0.02)  # between them the edge, which blends


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("size", [(64, 96), (20, 30)])
def test_a_picture_of_another_size_is_seen_as_the_network_learned_to(size: tuple[int, int], antialias: bool) -> None:
    """Brought to the network's own size whole, and then read."""
    prepare = Prepare((32, 32), COLOR.mean, COLOR.std, None, "bicubic")
    scene = scene_of(noise(*size), prepare, antialias)
    ready = Pixels(prepare(scene.source.image).unsqueeze(0), antialias)
    whole = scene.read(corners((0, 0)), size, 10) - ready.read(corners((0, 0)), (32, 32), 10)
    assert whole.abs().max() < 2 / 255 / min(COLOR.std)


def test_detail_finer_than_the_networks_own_size_is_seen() -> None:
    """Stripes a pixel wide, of which nothing is left at the network's 4 x 4."""
    values = np.zeros((64, 64))
    values[:, ::2] = 255
    seen = scene_of(values, GRAY).read(corners((0, 0), (10, 20)), (8, 8), 8)
    assert torch.allclose(seen[:, 0, :, ::2], torch.tensor(1.0))
    assert torch.allclose(seen[:, 0, :, 1::2], torch.tensor(-1.0))


def test_what_was_read_is_counted() -> None:
    """8 x 8: all of it at half its resolution, then two windows of 4 x 4, one with a column over the edge."""
    seen = Counted(scene_of(np.zeros((8, 8)), GRAY))
    seen.read(corners((0, 0)), (8, 8), 4)
    assert (seen.resolution, seen.share(0), seen.pixels(0)) == (0.5, 1.0, 64)
    seen.read(corners((0, 0), (-1, 2)), (4, 4), 4)
    assert seen.resolution == 1
    assert seen.pixels(0) == 64 + 16 + 12
    assert seen.share(0) == (16 + 12 - 6) / 64  # they share 3 x 2


def test_a_small_picture_is_at_full_resolution_from_the_start() -> None:
    seen = Counted(scene_of(np.zeros((8, 8)), GRAY))
    seen.read(corners((0, 0)), (8, 8), 16)
    seen.read(corners((0, 0)), (4, 4), 16)
    assert (seen.resolution, seen.share(0)) == (1, 1)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(*[st.integers(-3, 12)] * 4), min_size=1, max_size=6))
def test_the_union_is_that_of_painted_pixels(drawn: list[Box]) -> None:
    boxes = [clipped((x, y, x + abs(w), y + abs(h)), (10, 9)) for x, y, w, h in drawn]
    painted = np.zeros((9, 10), dtype=bool)
    for x0, y0, x1, y1 in boxes:
        painted[y0:y1, x0:x1] = True
    assert union(boxes) == painted.sum()


def test_a_blank_picture_of_any_size() -> None:
    blank = Blank((10**6, 10**6), torch.zeros(1, 3, 1, 1))
    assert blank.read(corners((5, 5), (9, 9)), (10, 10), 4).shape == (2, 3, 4, 4)
