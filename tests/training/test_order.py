"""Batches balanced by class."""

from collections import Counter

import pytest
import torch

import fovea
from fovea.training.order import Balanced

LABELS = [0] * 5 + [1] * 7 + [2] * 3 + [3] * 4 + [4]  # the last class has too few


def order(batches: int, seed: int = 0) -> list[list[int]]:
    found = Balanced(LABELS, 6, 2).order(batches, torch.Generator().manual_seed(seed))
    return found.view(batches, 6).tolist()


def test_every_batch_holds_so_many_of_each_of_its_classes() -> None:
    for batch in order(40):
        assert len(set(batch)) == 6
        assert sorted(Counter(LABELS[i] for i in batch).values()) == [2, 2, 2]
        assert [LABELS[i] for i in batch][::2] == [LABELS[i] for i in batch][1::2]  # each class together


def test_classes_come_equally_often_and_pictures_of_a_class_too() -> None:
    drawn = [i for batch in order(40) for i in batch]
    by_class = Counter(LABELS[i] for i in drawn)
    assert set(by_class) == {0, 1, 2, 3}
    assert max(by_class.values()) - min(by_class.values()) <= 2
    for label in range(4):
        counts = [drawn.count(i) for i, own in enumerate(LABELS) if own == label]
        assert max(counts) - min(counts) <= 1


def test_the_order_follows_from_the_seed() -> None:
    assert order(5, seed=3) == order(5, seed=3)
    assert order(5, seed=3) != order(5, seed=4)


@pytest.mark.parametrize(
    ("batch", "per_class", "shares", "told"),
    [(7, 2, 1, "multiple of 2"), (2, 2, 1, "at least 4"), (12, 2, 1, "needs 6 classes"), (8, 2, 4, "multiple of 8")],
)
def test_batches_that_cannot_be_balanced(batch: int, per_class: int, shares: int, told: str) -> None:
    with pytest.raises(fovea.BadChoice, match=told):
        Balanced(LABELS, batch, per_class, shares)
