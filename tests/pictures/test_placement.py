import numpy as np
import pytest

from fovea.basics.boxes import box_of
from fovea.pictures import Placement, box_on_pixels, by_centers, middles, on_pixels


@pytest.mark.parametrize(
    ("cells", "placement", "row"),
    [
        # two cells over eight pixels: flat at the ends, a straight line between the cells' centers at 2 and 6
        ([0, 4], Placement.identity(8, 1), [0, 0, 0.5, 1.5, 2.5, 3.5, 4, 4]),
        ([1, 3], Placement((8, 1), (4, 1), (1.0, 1.0), (2.0, 0.0)), [0, 0, 1, 1.5, 2.5, 3, 0, 0]),  # cropped
        ([1, 3], Placement((4, 1), (4, 1), (-1.0, 1.0), (4.0, 0.0)), [3, 2.5, 1.5, 1]),  # flipped
        ([0, 1], Placement((8, 1), (4, 1), (-1, 1), (6, 0)), [0, 0, 1, 0.75, 0.25, 0, 0, 0]),  # both
        ([1, 3], Placement((8, 2), (4, 4), (2.0, 0.5), (0.0, 0.0)), [1, 1, 1.25, 1.75, 2.25, 2.75, 3, 3]),  # squashed
    ],
)
def test_cells_on_pixels_by_hand(cells: list[float], placement: Placement, row: list[float]) -> None:
    found = on_pixels(np.array([cells], dtype=np.float32), placement)
    assert found.shape == placement.picture[::-1]
    assert found[0].tolist() == pytest.approx(row)


def test_values_stand_at_the_middles_of_patches() -> None:
    """An input of 12 pixels, patches of 4 from 0, 4 and 8 on: their middles are 2, 6 and 10."""
    cells = np.zeros((3, 3), np.float32)
    cells[0, 2] = 1
    assert middles((3, 3), 4, Placement.identity(12, 12)) == (0, 0, 12, 12)
    found = by_centers(cells, 4, Placement.identity(12, 12))
    assert found.shape == (12, 12)
    assert found[0, 11] == 1
    assert found[1, 9] == 0.875  # x = 9.5, an eighth of the way back from 10 to 6
    assert found[5, 10] == 0.125  # y = 5.5, seven eighths of the way to the next row
    assert found[:, :6].max() == 0


def test_nothing_where_no_patch_has_its_middle() -> None:
    """AnchorNet's widest branch at 224: patches of 111, 8 apart, middles from 55.5 to 167.5."""
    place = Placement.identity(224, 224)
    assert middles((15, 15), 111, place) == (51.5, 51.5, 171.5, 171.5)
    found = by_centers(np.ones((15, 15), np.float32), 111, place)
    assert found[60, 60] == pytest.approx(1)
    assert (found[50], found[173], found[:, 50]) == (pytest.approx(0), pytest.approx(0), pytest.approx(0))


def test_in_a_picture_twice_as_wide() -> None:
    place = Placement((16, 4), (8, 4), (2.0, 1.0), (0.0, 0.0))
    found = by_centers(np.array([[1.0, 0.0]], np.float32), 4, place)
    assert found.shape == (4, 16)
    assert found[2, 3] == 1
    assert 0 < found[2, 8] < 0.5
    assert found[2, 13] == 0


def test_boxes_on_very_large_pictures_are_found_on_a_coarser_grid() -> None:
    cells = np.random.default_rng(0).random((7, 7)).astype(np.float32)
    placement = Placement((1000, 700), (224, 224), (700 / 224, 700 / 224), (150.0, 0.0))
    exact = box_on_pixels(cells, placement, box_of)
    assert np.array_equal(exact, box_of(on_pixels(cells, placement)))
    sizes: list[tuple[int, ...]] = []

    def watched(pixels: np.ndarray) -> np.ndarray:
        sizes.append(pixels.shape)
        return box_of(pixels)

    coarse = box_on_pixels(cells, placement, watched, most=50_000)
    assert sizes == [(175, 250)]
    assert np.abs(coarse - exact).max() <= 4
    assert not box_on_pixels(np.zeros((7, 7), np.float32), placement, box_of).any()
    assert placement.to_draw is placement  # at 700,000 pixels there is no need
    assert Placement.identity(14_000, 14_000).to_draw.picture == (1167, 1167)
