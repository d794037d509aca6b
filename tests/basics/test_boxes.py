import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea import BadChoice
from fovea.basics import boxes as regions


def test_box_is_half_open_and_around_the_largest_segment() -> None:
    values = np.zeros((6, 8))
    values[1:3, 2:5] = 1.0  # 6 pixels
    values[5, 0:4] = 1.0  # 4 pixels
    assert regions.box_of(values).tolist() == [2, 1, 5, 3]


def test_corners_are_connected() -> None:
    values = np.eye(4)
    assert regions.box_of(values).tolist() == [0, 0, 4, 4]


def test_of_equal_segments_the_first_in_reading_order() -> None:
    values = np.zeros((5, 5))
    values[0, 4] = values[4, 0] = 1.0
    assert regions.box_of(values).tolist() == [4, 0, 5, 1]


def test_threshold_is_a_share_of_the_range_above_zero() -> None:
    values = np.array([[-5.0, 0.0, 1.0, 2.0, 4.0]])
    assert regions.box_of(values, 0.5).tolist() == [3, 0, 5, 1]
    assert regions.box_of(values, 0.51).tolist() == [4, 0, 5, 1]
    assert regions.box_of(values, 0.25).tolist() == [2, 0, 5, 1]


@pytest.mark.parametrize(
    "values", [np.zeros((3, 3)), np.full((3, 3), 7.0), np.full((2, 2), -1.0), np.full((2, 2), np.nan)]
)
def test_a_blank_map_has_no_box(values: np.ndarray) -> None:
    assert regions.box_of(values).tolist() == [0, 0, 0, 0]


def test_spans_and_volumes() -> None:
    assert regions.box_of(np.array([0.0, 1, 1, 0])).tolist() == [1, 3]
    values = np.zeros((3, 4, 5))
    values[1, 2:4, 0:3] = 1
    assert regions.box_of(values).tolist() == [0, 2, 1, 3, 4, 2]


def test_wrong_threshold() -> None:
    with pytest.raises(BadChoice, match="between 0 and 1"):
        regions.box_of(np.eye(3), 1.5)


def test_iou_by_hand() -> None:
    found = regions.iou([[0, 0, 2, 2], [10, 10, 11, 11]], [[1, 1, 3, 3], [0, 0, 2, 2], [2, 0, 4, 2]])
    assert found.tolist() == [[pytest.approx(1 / 7), 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert regions.best_iou([0, 0, 0, 0], [(0, 0, 0, 0)]) == 0


box = st.tuples(*[st.integers(0, 20)] * 4).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]) + 1, max(b[1], b[3]) + 1)
)


@given(box, box)
def test_iou_is_symmetric_and_one_only_for_equals(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    there, back = regions.iou(a, b)[0, 0], regions.iou(b, a)[0, 0]
    assert there == back
    assert 0 <= there <= 1
    assert (there == 1) == (a == b)


def test_the_box_of_a_percentile_holds_all_that_is_above_it_connected_or_not() -> None:
    values = np.zeros((10, 10))
    values[1, 2] = values[2, 2] = values[8, 5] = values[8, 6] = 1.0  # 4 of 100 pixels
    assert regions.percentile_box(values, 97).tolist() == [2, 1, 7, 9]  # the 97th percentile is 1
    assert regions.percentile_box(values, 95).tolist() == [0, 0, 10, 10]  # the 95th is 0, which all pixels reach
    values[8] -= 0.5
    assert regions.percentile_box(values, 99).tolist() == [2, 1, 3, 3]


@pytest.mark.parametrize("values", [np.zeros((3, 3)), np.full((2, 2), 5.0), np.array([[0.0, np.nan], [1.0, 2.0]])])
def test_a_map_without_a_percentile_has_no_box(values: np.ndarray) -> None:
    assert regions.percentile_box(values).tolist() == [0, 0, 0, 0]


def test_wrong_percentile() -> None:
    with pytest.raises(BadChoice, match="between 0 and 100"):
        regions.percentile_box(np.eye(3), 101)
    with pytest.raises(BadChoice, match="rows and columns"):
        regions.percentile_box(np.arange(3.0))


@given(st.integers(0, 2**32 - 1), st.floats(0, 100))
def test_a_higher_percentile_has_a_box_inside(seed: int, percentile: float) -> None:
    values = np.random.default_rng(seed).random((7, 9))
    outer, inner = regions.percentile_box(values, percentile / 2), regions.percentile_box(values, percentile)
    assert (outer[:2] <= inner[:2]).all()
    assert (outer[2:] >= inner[2:]).all()
