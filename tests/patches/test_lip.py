import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from fovea import BadChoice
from fovea.measures.lip_speed import iou, lattice, plain
from fovea.patches import Settings, lip

nan, inf = math.nan, math.inf


def cells_of(picks: lip.Picks) -> list[list[int]]:
    return [[cell for cell in row if cell >= 0] for row in picks.cells.tolist()]


def spans(length: int, width: int, step: int = 1) -> Tensor:
    starts = torch.arange(length) * step
    return torch.stack([starts, starts + width], dim=1)


def as_boxes(given: Tensor) -> list[tuple[float, ...]]:
    """For the plain loop, which knows boxes only: a span is a box of height 1."""
    return [(one[0], 0, one[1], 1) if len(one) == 2 else tuple(one) for one in given.tolist()]


def test_spans_by_hand() -> None:
    # spans of 4 at steps of 1 share 3, 2, 1, 0 of 5, 6, 7, 8 words: IoU 0.6, 0.33, 0.14, 0
    values = torch.tensor([[1.0, 9, 8, 7, 2, 6]])
    picks = lip.pick(values, spans(6, 4), Settings(count=3, overlap=0.5, share=1.0))
    assert picks.cells.tolist() == [[1, 3, 5]]  # 2 lies too near to 1; 5 comes before 4
    assert picks.boxes.tolist() == [[[1, 5], [3, 7], [5, 9]]]
    assert picks.values.tolist() == [[9, 7, 6]]
    assert picks.count.tolist() == [3]


def test_boxes_by_hand() -> None:
    # boxes of 2 x 2 at steps of 1: neighbors have IoU 2/6, diagonal ones 1/7
    values = torch.tensor([[[5.0, 9, 4], [3, 8, 7]]])
    boxes = lattice((2, 3), 2, 1)
    picks = lip.pick(values, boxes, Settings(count=3, overlap=0.3, share=1.0))
    assert picks.cells.tolist() == [[1, 5, 3]]  # 8 and 5 are neighbors of 9, 4 of 9 and 7
    assert picks.boxes.tolist() == [[[1, 0, 3, 2], [2, 1, 4, 3], [0, 1, 2, 3]]]


def test_an_overlap_of_exactly_t_is_too_much() -> None:
    values, pair = torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 9], [1, 10]])  # 8 of 10 shared
    assert cells_of(lip.pick(values, pair, Settings(2, 0.8, 1.0))) == [[0]]
    assert cells_of(lip.pick(values, pair, Settings(2, 0.801, 1.0))) == [[0, 1]]
    boxes = torch.tensor([[0, 4], [1, 5], [0, 4], [2, 6]])  # T of 1 takes every box that is another
    assert cells_of(lip.pick(torch.tensor([[4.0, 3, 2, 1]]), boxes, Settings(4, 1.0, 1.0))) == [[0, 1, 3]]


def test_where_there_are_no_more_picks() -> None:
    maps = torch.tensor([[1.0, 2.0, nan], [nan, 3.0, nan]])
    picks = lip.pick(maps, spans(3, 2, 2), Settings(3, 0.5, 1.0))
    assert picks.cells.tolist() == [[1, 0, -1], [1, -1, -1]]
    assert picks.boxes.tolist() == [[[2, 4], [0, 2], [0, 0]], [[2, 4], [0, 0], [0, 0]]]
    assert picks.values.tolist() == [[2, 1, 0], [3, 0, 0]]
    assert picks.count.tolist() == [2, 1]
    assert lip.pick(maps, spans(3, 2, 2), Settings(10**12, 0.5, 1.0)).cells.shape == (2, 3)  # as many as cells


@pytest.mark.parametrize(
    ("share", "cells", "candidates"), [(0.05, 441, 23), (0.05, 289, 15), (0.3, 441, 133), (0.07, 100, 7), (1e-9, 9, 1)]
)
def test_candidates_are_rounded_up(share: float, cells: int, candidates: int) -> None:
    assert Settings(1, 0.5, share).candidates(cells) == candidates


def test_the_papers_settings() -> None:
    assert [lip.for_test(side) for side in (63, 95, 111)] == [Settings(k, 0.5, 0.05) for k in (12, 5, 4)]
    assert [lip.for_training(side) for side in (63, 95, 111)] == [Settings(k, 0.8, 0.3) for k in (24, 10, 8)]
    assert lip.for_test(63, (448, 224)).count == 25
    assert lip.for_test(7, (59,)).count == 8
    assert lip.for_test(300).count == 1
    with pytest.raises(BadChoice, match="at least 1; got 0"):
        lip.for_test(0)


GRIDS = {
    "at 63 px": ((21, 21), lattice((21, 21), 63, 8)),
    "at 111 px": ((15, 15), lattice((15, 15), 111, 8)),
    "not square": ((4, 11), lattice((4, 11), 30, 8)),
    "one row": ((1, 9), lattice((1, 9), 5, 2)),
    "one column": ((9, 1), lattice((9, 1), 5, 2)),
    "one cell": ((1, 1), lattice((1, 1), 5, 2)),
    "spans": ((57,), spans(57, 7)),
    "apart": ((6, 6), lattice((6, 6), 8, 8)),
    "all the same": ((5, 5), lattice((5, 5), 32, 0)),
    "cut at the edges": ((9, 9), (lattice((9, 9), 20, 8) - 10).clamp(0, 64)),
    "of any sizes": ((7, 8), torch.rand(56, 4, generator=torch.Generator().manual_seed(1)).sort(1).values),
    "fractions": ((6, 7), lattice((6, 7), 30, 8) / 7 + 0.1),
    "some empty": ((3, 4), (lattice((3, 4), 8, 4) - 12).clamp(min=0)),
    "backwards": ((12,), spans(12, 5, 2).flip(0)),
    "uneven steps": ((8,), torch.tensor([0, 1, 3, 6, 10, 15, 21, 28])[:, None] + torch.tensor([0, 8])),
}
SETTINGS = [Settings(12, 0.5, 0.05), Settings(24, 0.8, 0.3), Settings(4, 0.5, 1e-6)]
SETTINGS += [Settings(count, overlap, 1.0) for count, overlap in ((3, 0.2), (1, 0.5), (500, 1.0), (5, 1e-9))]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("where", GRIDS)
def test_equal_to_the_plain_loop_and_as_promised(where: str, settings: Settings) -> None:
    grid, given = GRIDS[where]
    boxes = as_boxes(given)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, *grid, generator=generator)
    ties = torch.randint(-2, 3, (4, *grid), generator=generator).float()
    values = torch.cat([noise, ties, ties * -0.0, noise * 1e-42])  # the last are smaller than normal floats
    picks = lip.pick(values, given, settings)
    assert cells_of(picks) == [plain(one, boxes, settings) for one in values]

    assert cells_of(lip.pick(values.double(), given, settings)) == cells_of(picks)
    assert picks.cells[:, 0].tolist() == values.flatten(1).argmax(1).tolist()
    for one, cells, count, found in zip(values, cells_of(picks), picks.count.tolist(), picks.values, strict=True):
        assert count == len(cells) <= min(settings.count, settings.candidates(one.numel()))
        assert found[:count].tolist() == sorted(one.flatten()[cells].tolist(), reverse=True)
        assert all(iou(boxes[a], boxes[b]) < settings.overlap for a, b in combinations(cells, 2))
    assert torch.equal(picks.boxes[picks.cells >= 0], given[picks.cells[picks.cells >= 0]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float(dtype: torch.dtype) -> None:
    picks = lip.pick(torch.tensor([[0.5, 2.0, -1.0]], dtype=dtype), spans(3, 1), Settings(3, 0.5, 1.0))
    assert picks.cells.tolist() == [[1, 0, 2]]
    assert picks.values.dtype == dtype
    assert picks.values.tolist() == [[2.0, 0.5, -1.0]]
    close = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=dtype)  # only doubles tell them apart
    best = lip.pick(close, spans(2, 1), Settings(1, 0.5, 1.0)).cells.tolist()
    assert best == [[int(dtype == torch.float64)]]


def test_a_batch_is_its_maps_one_by_one() -> None:
    values = torch.randn(300, 6, 5, generator=torch.Generator().manual_seed(2))
    boxes, settings = lattice((6, 5), 20, 8), Settings(6, 0.4, 0.5)
    alone = [lip.pick(one[None], boxes, settings).cells for one in values]
    assert torch.equal(lip.pick(values, boxes, settings).cells, torch.cat(alone))
    assert torch.equal(lip.pick(values.mT.contiguous().mT, boxes, settings).cells, torch.cat(alone))
    assert lip.pick(values[:0], boxes, settings).boxes.shape == (0, 6, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_is_never_picked_and_infinities_are_numbers(dtype: torch.dtype) -> None:
    values = torch.tensor([[nan, -inf, 3, nan], [nan] * 4, [-inf] * 4, [inf, nan, -inf, inf]], dtype=dtype)
    values[0, 3] = -values[0, 3]  # a NaN with the other sign
    picks = lip.pick(values, spans(4, 1), Settings(4, 0.5, 1.0))
    assert cells_of(picks) == [[2, 1], [], [0, 1, 2, 3], [0, 3, 2]]
    assert picks.count.tolist() == [2, 0, 4, 3]
    assert not picks.values.isnan().any()
    # NaN counts among the cells: of four, the best half
    assert cells_of(lip.pick(values, spans(4, 1), Settings(4, 0.5, 0.5))) == [[2, 1], [], [0, 1], [0, 3]]


def test_gradients_reach_the_map_through_the_values() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0]], requires_grad=True)
    lip.pick(values, spans(3, 1), Settings(2, 0.5, 1.0)).values.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0, 1, 1]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu() -> None:
    values = torch.randn(5, 9, 9, generator=torch.Generator().manual_seed(4))
    boxes, settings = lattice((9, 9), 20, 8), Settings(6, 0.4, 0.5)
    here, there = lip.pick(values, boxes, settings), lip.pick(values.cuda(), boxes.cuda(), settings)
    for name in ("cells", "boxes", "values"):
        assert getattr(there, name).is_cuda
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name))


@pytest.mark.parametrize(
    ("count", "overlap", "share", "words"),
    [
        (0, 0.5, 0.5, r"count \(K\).* at least 1; got 0"),
        (-3, 0.5, 0.5, "got -3"),
        (2.5, 0.5, 0.5, "whole number.*got 2.5"),
        (1, 0.0, 0.5, r"overlap \(T\).* above 0 and at most 1; got 0.0"),
        (1, 1.01, 0.5, "got 1.01"),
        (1, nan, 0.5, r"overlap \(T\).* got nan"),
        (1, 0.5, 0, r"share \(P\).* above 0 and at most 1; got 0"),
        (1, 0.5, -inf, "got -inf"),
        (1, 0.5, nan, r"share \(P\).* got nan"),
    ],
)
def test_settings_out_of_range(count: int, overlap: float, share: float, words: str) -> None:
    with pytest.raises(BadChoice, match=words):
        Settings(count, overlap, share)


@pytest.mark.parametrize(
    ("values", "boxes", "words"),
    [
        (torch.zeros(3), spans(3, 1), "N,H,W or N,L.*got 3"),
        (torch.tensor(1.0), spans(3, 1), "got a single number"),
        (torch.zeros(1, 2, 3, 4), lattice((2, 3), 1, 1), "got 1,2,3,4"),
        (torch.zeros(1, 0), spans(0, 1), "at least one cell; got 1,0"),
        (torch.zeros(1, 3, dtype=torch.int64), spans(3, 1), r"floating-point.*int64.*\.float\(\)"),
        (torch.zeros(1, 3), spans(4, 1), "maps 1,3 need boxes 3,2: start stop of each cell.* got 4,2"),
        (torch.zeros(1, 2, 3), spans(6, 1), "boxes 6,4: x0 y0 x1 y1.* got 6,2"),
        (torch.zeros(1, 2), torch.tensor([[0, 1], [2, 1]]), "stops before it starts"),
        (torch.zeros(1, 2), torch.tensor([[0, 1], [0, inf]]), "finite"),
    ],
)
def test_shapes_that_do_not_fit(values: Tensor, boxes: Tensor, words: str) -> None:
    with pytest.raises(BadChoice, match=words):
        lip.pick(values, boxes, Settings(1, 0.5, 0.5))
