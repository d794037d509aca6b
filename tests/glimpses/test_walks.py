import numpy as np
import pytest
import torch

from fovea.glimpses import covered, where_it_looked, without_overview
from fovea.models.glimpsing import Walk


def test_what_boxes_cover_together() -> None:
    boxes = torch.tensor([
        [[0.0, 0, 4, 4], [2, 2, 6, 6]],  # 16 + 16 - 4
        [[0, 0, 4, 4], [0, 0, 4, 4]],
        [[-2, -2, 2, 2], [9, 0, 12, 3]],  # 2 x 2 and 1 x 3 are in the picture
        [[0, 0, 10, 8], [1, 1, 2, 2]],
    ])  # fmt: skip
    assert covered(boxes, (8, 10)).tolist() == pytest.approx([28 / 80, 16 / 80, 4 / 80 + 3 / 80, 1])


def test_a_glimpse_finds_a_thing_whose_middle_is_in_it() -> None:
    boxes = torch.tensor([[[0, 0, 8, 8], [0, 0, 4, 4], [2, 2, 4, 4]]] * 3).float()
    blank = torch.zeros(3, 3, 2)
    out = Walk(blank[:, 0], blank, blank, boxes, (1, 2, 3), (-1, 0, 1), torch.zeros(3, 2))
    things = [torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[0.0, 0, 7, 7], [6, 6, 7, 7]]), torch.zeros(0, 4)]
    found = where_it_looked(out, things)
    assert found["found_at_2"][:2].tolist() == [1, 1]
    assert found["found_at_3"][:2].tolist() == [0, 1]
    assert found["contains_at_2"][:2].tolist() == [1, 0]
    assert all(np.isnan(values[2]) for values in found.values())  # of a picture without boxes nothing is said


def test_glimpses_without_the_overview() -> None:
    each = torch.tensor([[[4.0, 0.0], [0.0, 2.0], [0.0, 4.0]]])  # N,V,classes
    boxes, logs = torch.zeros(1, 3, 4), torch.zeros(1, 2)

    def walk(levels: tuple[int, ...], share: list[float] | None = None) -> Walk:
        given = None if share is None else torch.tensor([share])
        return Walk(each.mean(1), each, each, boxes, levels, (-1, 0, 0), logs, given)

    def alone(one: Walk) -> list[float]:
        found = without_overview(one)
        assert found is not None
        return [round(value, 4) for value in found[0].tolist()]

    assert alone(walk((1, 2, 2))) == [0, 3]
    assert alone(walk((1, 2, 2), [0.5, 0.25, 0.25])) == [0, 3]
    assert alone(walk((1, 2, 2), [0.2, 0.2, 0.6])) == [0, 3.5]
    whole = [round(value, 4) for value in each.mean(1)[0].tolist()]
    assert alone(walk((2, 2, 2))) == whole  # there is no overview
    assert alone(walk((1, 2, 2), [0, 0.5, 0.5])) == whole  # it is not in the answer
    assert without_overview(walk((1, 1, 1))) is None
