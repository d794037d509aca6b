import torch

import fovea
from checks import refused
from fovea.measures import lip_speed
from fovea.patches import Settings


def test_iou_by_hand() -> None:
    assert lip_speed.iou((0, 0, 2, 2), (1, 1, 3, 3)) == 1 / 7
    assert lip_speed.iou((0, 0, 2, 2), (2, 0, 4, 2)) == 0
    assert lip_speed.iou((0, 0, 3, 1), (0, 0, 3, 1)) == 1


def test_the_plain_loop_by_hand() -> None:
    values, boxes = torch.tensor([[1.0, 3.0, 2.0]]), [(0, 0, 2, 1), (1, 0, 3, 1), (2, 0, 4, 1)]  # neighbors: IoU 1/3
    assert lip_speed.plain(values, boxes, Settings(3, 0.5, 1.0)) == [1, 2, 0]
    assert lip_speed.plain(values, boxes, Settings(2, 0.5, 1.0)) == [1, 2]
    assert lip_speed.plain(values, boxes, Settings(1, 0.5, 1.0)) == [1]
    assert lip_speed.plain(values, boxes, Settings(3, 1 / 3, 1.0)) == [1]
    assert lip_speed.plain(values, boxes, Settings(3, 0.5, 0.4)) == [1, 2]


def test_a_row_for_each_setting_with_equal_picks() -> None:
    found = fovea.measure("bench lip", rounds=1)
    assert found.what == "bench lip"
    assert [(row["settings"], row["k"], row["t"], row["p"]) for row in found.rows[::2]] == [
        ("test", 12, 0.5, 0.05),
        ("training", 24, 0.8, 0.3),
    ]
    for row in found.rows:
        assert row["equal"] is True
        assert (row["maps"], row["grid"]) == (256, "21 x 21")
        assert row["ratio"] > 2  # on a busy machine 4.6 to 15.6 were seen
        assert row["ms_plain"] > row["ms"] > 0


def test_no_rounds() -> None:
    refused("rounds is 1 to 10,000", fovea.measure, "bench lip", rounds=0)
