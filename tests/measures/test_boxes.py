import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import zoom

from fovea.basics import best_iou, box_of, iou, normalized, segments
from fovea.measures.boxes import (
    FIXED,
    THRESHOLDS,
    Localized,
    box_accuracy,
    iou_by_threshold,
    max_box_acc,
    max_box_acc_v2,
    right_apart,
    scores,
)


def test_one_threshold_for_the_whole_set() -> None:
    """Each picture has its own best threshold; only the one that serves most counts."""
    ious = np.array([[0.9, 0.1, 0.1], [0.1, 0.9, 0.6], [0.1, 0.2, 0.9], [0.4, 0.9, 0.1]])
    assert box_accuracy(ious).tolist() == [0.25, 0.5, 0.5]
    assert max_box_acc(ious) == (0.5, 1)
    assert max_box_acc(ious, 0.3) == (0.5, 0)


def test_version_two_averages_over_ious() -> None:
    ious = np.array([[0.35, 0.0], [0.6, 0.75]])
    # IoU 0.3: 1.0 at the first; 0.5: 0.5; 0.7: 0.5 at the second
    assert max_box_acc_v2(ious) == pytest.approx((1.0 + 0.5 + 0.5) / 3)


def test_scores_need_class_and_box() -> None:
    largest = np.array([[0.6], [0.6], [0.4], [0.9]])
    got = scores(
        Localized(largest, largest), np.array([True, False, True, False]), np.array([True, True, True, False]), [0.3]
    )
    assert got["top1"] == 0.5
    assert got["top5"] == 0.75
    assert got["top1_loc"] == 0.25
    assert got["top5_loc"] == 0.5
    assert got["gt_known"] == got["max_box_acc"] == 0.75
    assert got["threshold"] == 0.3


def test_a_threshold_that_was_chosen_on_other_pictures() -> None:
    """Pictures 0 and 2 are best at the first threshold, 1 and 3 at the second: each half is judged at the other's."""
    ious = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.6], [0.7, 0.9]])
    assert right_apart(ious).tolist() == [False, False, True, True]
    assert right_apart(ious[:1]).tolist() == [False]  # there is no other


def test_three_rules_for_a_threshold() -> None:
    largest = np.array([[0.1, 0.6, 0.9], [0.9, 0.1, 0.9], [0.9, 0.6, 0.1]])
    right = np.array([True, True, False])
    got = scores(Localized(largest, largest), right, None, [0.1, 0.2, 0.3])
    assert (got["threshold"], got["gt_known"], got["top1_loc"]) == (0.1, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert (got["gt_known_fixed"], got["top1_loc_fixed"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    # 0 and 2 at the first one, best for 1; 1 at the second, best for 0 and 2
    assert (got["gt_known_apart"], got["top1_loc_apart"]) == (pytest.approx(1 / 3), 0)


def test_a_threshold_is_a_share_of_what_lies_between_a_maps_ends() -> None:
    """At 0.2, from 1.0 to 2.0, what is at least 1.2 is in the box: 1.3 is and 1.1 is not. Below 0 it counts from 0."""
    first = [(0, 0, 2, 1)]
    for row in ([1.3, 2.0, 1.1, 1.0], [0.25, 1.0, 0.15, -3.0]):
        largest, _ = iou_by_threshold(np.array([row]), first, (FIXED,))
        assert largest.tolist() == [1.0]


def test_every_threshold_agrees_with_the_box_of_the_map() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        values, truth = generator.random((12, 17)), [(2, 3, 9, 11), (0, 0, 4, 4)]
        largest, any_one = iou_by_threshold(values, truth, (0.2, 0.5, 0.8))
        assert largest.tolist() == [pytest.approx(best_iou(box_of(values, t), truth)) for t in (0.2, 0.5, 0.8)]
        assert (any_one >= largest).all()


def test_a_blank_map_is_never_right() -> None:
    largest, any_one = iou_by_threshold(np.zeros((4, 4)), [(0, 0, 4, 4)])
    assert largest.max() == any_one.max() == 0


@given(st.integers(0, 10_000), st.sampled_from([1, 3, 6]))
@settings(max_examples=40, deadline=None)
def test_shortcuts_change_nothing(seed: int, power: int) -> None:
    """Smooth maps, rough ones, plateaus: the same as all segments of every threshold's mask."""
    random = np.random.default_rng(seed)
    cells = random.random((random.integers(1, 6), random.integers(1, 6))) ** power
    values = np.kron(cells, np.ones((3, 4))) if seed % 2 else zoom(cells, 4, order=1)
    truth = [(2, 1, 9, 7), (0, 0, 3, 3)]
    largest, any_one = iou_by_threshold(values, truth)
    scaled = normalized(values)
    for i in range(0, len(THRESHOLDS), 7):
        if scaled.max() <= 0:
            assert (largest[i], any_one[i]) == (0, 0)
            continue
        boxes, sizes = segments(scaled >= THRESHOLDS[i])
        each = iou(boxes, truth).max(1)
        assert (largest[i], any_one[i]) == (each[sizes.argmax()], each.max())


def test_a_peak_as_high_as_a_threshold_is_above_it() -> None:
    """Two blobs, the lower of exactly 0.7 in single precision: at 0.7 both are there, apart."""
    values = np.zeros((4, 12), dtype=np.float32)
    values[1:3, 1:3], values[1:3, 8:10] = 1.0, 0.7
    largest, any_one = iou_by_threshold(values, [(8, 1, 10, 3)], (0.7, 0.9))
    assert any_one.tolist() == [1.0, 0.0]
    assert largest[0] == 0.0  # of two as large, the first
