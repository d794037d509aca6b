"""What is read next, worked out by hand: a grid of 2 x 2 quarters over a picture of 16 x 16."""

import math

import pytest
import torch

from fovea.models.frontier import Frontier
from fovea.models.glimpsing import Pixels
from fovea.models.locations import Grid
from fovea.models.tnet import planned

QUARTERS = Grid(2, 0.5)
SURE, EVEN = (0.7, 0.1, 0.1, 0.1), (0.25, 0.25, 0.25, 0.25)


def frontier(levels: int = 3, steps: list[tuple[int, int]] | None = None, grid: Grid = QUARTERS) -> Frontier:
    return Frontier(Pixels(torch.zeros(1, 1, 16, 16)), grid, levels, 3, 4, steps)


def read(frontier: Frontier, *shares: tuple[float, ...]) -> None:
    """The next things, each with the probabilities of its regions."""
    for share in shares:
        assert frontier.next is not None
        deepest = frontier.next.level + 1 == frontier.levels
        frontier.take(torch.zeros(1, 2), None, None if deepest else torch.tensor(share))


def places(frontier: Frontier) -> list[tuple[int, tuple[int, int]]]:
    return [(region.level, region.corner) for region in frontier.read]


def test_the_overview_comes_first_then_the_most_probable_region() -> None:
    walk = frontier()
    assert walk.next is not None
    assert walk.next[:3] == (0, (0, 0), (16, 16))
    read(walk, (0.1, 0.2, 0.6, 0.1))
    assert walk.next[:3] == (1, (0, 8), (8, 8))
    assert walk.next.log_probability == pytest.approx(math.log(0.6))
    assert walk.next.promise == pytest.approx(math.log(0.6 * 4))
    assert walk.pending == 2


def test_deeper_where_the_path_is_above_average_and_aside_where_it_is_not() -> None:
    """0.4 x 4 = 1.6; inside it 0.7 x 4 = 2.8 makes 4.48, ahead of its neighbor's 0.3 x 4 = 1.2. Inside of that one
    all are alike, 1.6 x 0.4 = 0.64 for the rest of the first, so the neighbor's turn comes before them."""
    walk = frontier()
    read(walk, (0.4, 0.3, 0.2, 0.1), SURE)
    assert walk.next is not None
    assert walk.next[:2] == (2, (0, 0))
    read(walk, ())
    assert walk.next[:2] == (1, (8, 0))
    assert walk.next.promise == pytest.approx(math.log(1.2))
    read(walk, EVEN)
    assert walk.next[:2] == (2, (8, 0))  # 1.2 x 1, the first of four alike, before 0.2 x 4 = 0.8 of level 1
    read(walk, ())
    assert [region.parent for region in walk.read] == [-1, 0, 1, 0, 3]
    assert walk.walk.levels == (1, 2, 3, 2, 3)
    assert walk.walk.boxes[0, 1:].tolist() == [[0, 0, 8, 8], [0, 0, 4, 4], [8, 0, 16, 8], [8, 0, 12, 4]]
    assert walk.walk.log_probability[0].exp().tolist() == pytest.approx([0.4, 0.7, 0.3, 0.25])


def test_nothing_is_read_twice_and_everything_at_last() -> None:
    walk = frontier(grid=Grid(3, 0.5))  # regions at 0, 4, 8 of 16, each with three at 0, 2, 4: they overlap
    while walk.next is not None:
        read(walk, (1 / 9,) * 9)
    found = places(walk)
    assert len(found) == len(set(found)) == 1 + 9 + 49  # 7 x 7 places of level 2, where 81 were pointed at
    assert walk.pending is None


def test_below_the_levels_of_training_only_where_there_is_more_detail() -> None:
    """Read at 4 x 4, windows of 16 and 8 pixels have more, and those of 4 pixels, the third level's, have not."""
    walk = frontier(levels=5)
    while walk.next is not None:
        read(walk, EVEN)
    assert [sum(region.level == level for region in walk.read) for level in range(5)] == [1, 4, 16, 0, 0]


def test_the_papers_plan_goes_level_by_level() -> None:
    steps = planned(4, 3, 4)
    assert steps == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert planned(7, 3, 4) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0)]
    walk = frontier(steps=steps)
    read(walk, (0.1, 0.2, 0.4, 0.3), SURE, (0.1, 0.1, 0.1, 0.7), (), ())
    assert places(walk) == [(0, (0, 0)), (1, (0, 8)), (1, (8, 8)), (2, (0, 8)), (2, (12, 12))]
    assert walk.pending is None
