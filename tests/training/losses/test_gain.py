import math

import pytest
import torch
from torch import Tensor

from fovea.models.glimpsing import Walk
from fovea.training.losses.gain import Gain


def walk(each: Tensor, chance: Tensor, levels: tuple[int, ...], parents: tuple[int, ...]) -> Walk:
    n, v, _ = each.shape
    return Walk(each.mean(1), each, each, torch.zeros(n, v, 4), levels, parents, chance.log())


# one picture, two classes: the overview, two places in it, and two places in the first of those
EACH = torch.tensor([[[0.0, 2.0], [4.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 4.0]]])
CHANCE = torch.tensor([[0.5, 0.25, 0.2, 0.1]])


def value(right: float, wrong: float) -> float:
    return -math.log(1 + math.exp(wrong - right))


def judged(values: tuple[float, float], chances: tuple[float, float], temperature: float, sharpness: float) -> float:
    """Cross-entropy of two places' probabilities with the softmax of their values."""
    best = 1 / (1 + math.exp((values[1] - values[0]) / temperature))
    first = 1 / (1 + (chances[1] / chances[0]) ** sharpness)
    return -(best * math.log(first) + (1 - best) * math.log(1 - first))


def test_two_places_by_hand() -> None:
    # with the overview, the means of the logits are (2, 1) and (0, 1)
    expected = judged((value(2, 1), value(0, 1)), (0.5, 0.25), 0.5, 3.0)
    out = walk(EACH[:, :3], CHANCE[:, :2], (1, 2, 2), (-1, 0, 0))
    assert float(Gain(temperature=0.5, sharpness=3.0)(out, torch.tensor([0]))) == pytest.approx(expected, rel=1e-5)
    mixed = torch.tensor([[0.7, 0.3]])  # of the class that it has most of
    assert float(Gain(temperature=0.5, sharpness=3.0)(out, mixed)) == pytest.approx(expected, rel=1e-5)


def test_deeper_places_are_judged_with_all_above_them() -> None:
    # overview and first place with one more: (2, 2/3) and (4/3, 2)
    above = judged((value(2, 1), value(0, 1)), (0.5, 0.25), 1.0, 1.0)
    below = judged((value(2, 2 / 3), value(4 / 3, 2)), (0.2, 0.1), 1.0, 1.0)
    out = walk(EACH, CHANCE, (1, 2, 2, 3, 3), (-1, 0, 0, 1, 1))
    loss = Gain(temperature=1.0, sharpness=1.0)
    assert float(loss(out, torch.tensor([0]))) == pytest.approx(above + below, rel=1e-5)


def test_a_teacher_names_the_class() -> None:
    out, loss = walk(EACH, CHANCE, (1, 2, 2, 3, 3), (-1, 0, 0, 1, 1)), Gain()
    taught = torch.tensor([[-1.0, 3.0]])
    assert float(loss(out, torch.tensor([0]), taught)) == float(loss(out, torch.tensor([1])))
    assert float(loss(out, torch.tensor([0]), taught)) != float(loss(out, torch.tensor([0])))


def test_going_down_its_slope_leads_to_the_place_that_gains_most() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    out = walk(EACH[:, :3], logits.softmax(1), (1, 2, 2), (-1, 0, 0))
    Gain()(out, torch.tensor([0])).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] < 0 < logits.grad[0, 1]
