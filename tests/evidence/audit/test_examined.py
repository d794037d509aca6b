import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import left_as_found, raises
from conftest import Pooled, seeded
from fovea.evidence.audit.examined import WIDTH, Examination, Examined, Vectors
from fovea.networks import groups
from fovea.pictures import Prepare
from made_audit import BLUE, GREEN, GRID, NOTHING, PREPARE, RED, SIDE, Colors, Lit, colors, gray, painted, pixels

CELLS = GRID**2


def examined(
    network: fovea.Network,
    pictures: Sequence[Image.Image],
    boxes: Sequence[Sequence[Sequence[float]]] | None = None,
    truth: int | None = None,
    batch: int = 16,
) -> list[tuple[Examined, Vectors]]:
    found = []
    for group in groups(network, list(pictures), batch):
        assert group.batch is not None
        own = [() for _ in pictures] if boxes is None else boxes
        parts = network, group.batch, group.shown, [truth] * len(group.places), group.of(own)
        found += Examination(*parts).examined()
    return found


def one(*lit: Lit, boxes: Sequence[Sequence[float]] = ()) -> Examined:
    ((found, _),) = examined(colors(), [painted(*lit)], [boxes])
    return found


def share(logit: float, *logits: float) -> Any:
    return pytest.approx(math.exp(logit) / sum(map(math.exp, (logit, *logits))), rel=1e-5)


def noise(count: int, side: int = 24) -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (side, side, 3), np.uint8)) for _ in range(count)]


def pooled() -> fovea.Network:
    module = seeded(Pooled)
    module.fc.weight.data *= 12
    return fovea.wrap(module, Prepare((24, 24), crop=None), labels=5)


def test_all_of_a_picture_by_hand() -> None:
    """Logits: red 1, green 0.8, nothing 0.5, blue 0. The patch around the red cell does not reach the green one."""
    found = one((3, 3, RED, 1), (1, 5, GREEN, 0.8))
    assert (found.answer, found.runner_up, found.right) == (RED, GREEN, None)
    assert (found.probability, found.margin) == (share(1, 0.8, 0.5, 0), pytest.approx(0.2, abs=1e-5))
    (first,) = found.patches  # nothing else speaks for red
    assert first.box == (20, 20, 36, 36)
    assert first.center == (0.5, 0.5)
    assert first.evidence == pytest.approx(CELLS)  # which is a logit once it is averaged over the cells
    assert first.alone == share(1, 0, 0.5, 0)
    assert (first.carries, first.needed, first.inside) == (True, True, None)
    assert (found.inside, found.without) == (None, None)


def test_a_patch_may_carry_the_answer_and_not_be_needed() -> None:
    """Two red cells: each is enough, and none is needed."""
    first, second, *others = one((1, 1, RED, 1), (5, 5, RED, 0.9)).patches
    assert (first.box, second.box) == ((4, 4, 20, 20), (36, 36, 52, 52))
    assert [(patch.carries, patch.needed) for patch in (first, second)] == [(True, False)] * 2
    assert not any(patch.carries or patch.needed for patch in others)


def test_a_patch_may_be_needed_and_not_carry_the_answer() -> None:
    """0.4 each, of which one does not come up to 'nothing'."""
    first, second, *_ = one((1, 1, RED, 0.4), (5, 5, RED, 0.4)).patches
    assert [(patch.carries, patch.needed) for patch in (first, second)] == [(False, True)] * 2


def test_places_are_across_and_down_and_boxes_on_the_users_pixels() -> None:
    """Row 1, column 10 of 7 x 14 cells, in a picture half as wide and twice as high as the input."""
    wide = colors(transform=Prepare((SIDE, 2 * SIDE), (0.0,) * 3, (1.0,) * 3, None, "nearest"))
    picture = np.zeros((SIDE, 2 * SIDE, 3), np.uint8)
    picture[8:16, 80:88, 0], picture[40:48, 16:24, 0] = 255, 128
    given = Image.fromarray(picture).resize((SIDE, 2 * SIDE), Image.Resampling.NEAREST)
    ((found, _),) = examined(wide, [given], truth=RED)
    assert found.patches[0].center == pytest.approx((84 / 112, 12 / 56))
    assert found.patches[0].box == pytest.approx((76 / 2, 4 * 2, 92 / 2, 20 * 2))
    assert found.right


@pytest.mark.parametrize("seed", range(3))
def test_what_is_told_is_what_the_network_answers(seed: int) -> None:
    """Every patch cut out of the input, and everything but it, answered by the network itself."""
    network, picture = pooled(), noise(seed + 1)[-1]
    boxes = [(3.0, 2.0, 15.0, 11.0), (10.0, 6.0, 30.0, 22.0)]
    ((found, _),) = examined(network, [picture], [boxes], truth=2)
    tensor = network.prepare(picture)[0]

    def answered(*shown: Sequence[float], but: bool = False) -> Tensor:
        mask = torch.zeros(24, 24, dtype=torch.bool)
        for x0, y0, x1, y1 in shown:
            mask[int(y0) : int(y1), int(x0) : int(x1)] = True
        return network(torch.where(mask != but, tensor, torch.zeros(1))[None])[0].detach()

    whole = network(tensor[None])[0].detach()
    assert [found.answer, found.runner_up] == whole.topk(2).indices.tolist()
    assert found.probability == pytest.approx(float(whole.softmax(0).max()), rel=1e-4)
    assert found.right == (found.answer == 2)
    assert found.without == int(answered(*boxes, but=True).argmax())
    covered = torch.zeros(24, 24)
    for x0, y0, x1, y1 in boxes:
        covered[int(y0) : int(y1), int(x0) : int(x1)] = 1
    assert len(found.patches) == 4
    for patch in found.patches:
        x0, y0, x1, y1 = map(int, patch.box)
        assert (x1 - x0, y1 - y0) == (7, 7)
        alone, hidden = answered(patch.box), answered(patch.box, but=True)
        assert patch.alone == pytest.approx(float(alone.softmax(0)[found.answer]), rel=1e-4)
        assert patch.carries == (int(alone.argmax()) == found.answer)
        assert patch.needed == (int(hidden.argmax()) != found.answer)
        assert patch.inside == pytest.approx(float(covered[y0:y1, x0:x1].mean()))
    falling = [patch.evidence for patch in found.patches]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize(
    ("boxes", "inside", "of_first", "without"),
    [
        ([(24, 24, 32, 32)], 0.5, 0.25, RED),  # one of the two red cells; a quarter of the patch around it
        ([(24, 24, 32, 32), (8, 40, 16, 48)], 1, 0.25, NOTHING),
        ([(24, 24, 28, 32)], 0.25, 0.125, RED),
        ([(24, 24, 32, 32), (24, 24, 32, 32)], 0.5, 0.25, RED),  # no pixel counts twice
        ([(-100, -100, 200, 200)], 1, 1, NOTHING),
        ([(-8, 24, 32, 32)], 0.5, 0.375, RED),  # which begins beside the picture
        ([(0, 0, 8, 8)], 0, 0, RED),
        ([(60, 60, 80, 80)], 0, 0, RED),  # beside the picture
    ],
)
def test_boxes_by_hand(boxes: list[tuple[float, ...]], inside: float, of_first: float, without: int) -> None:
    found = one((3, 3, RED, 1), (5, 1, RED, 1), boxes=boxes)
    assert (found.inside, found.without) == (pytest.approx(inside), without)
    assert found.patches[0].inside == pytest.approx(of_first)


def test_halves_of_a_picture_share_its_evidence() -> None:
    given, halves = noise(4), ([(0, 0, 11, 24)], [(11, 0, 24, 24)])
    left, right = (examined(pooled(), given, [half] * 4) for half in halves)
    for (a, _), (b, _) in zip(left, right, strict=True):
        assert a.inside is not None
        assert b.inside is not None
        assert 0 < a.inside < 1
        assert a.inside + b.inside == pytest.approx(1)


@pytest.mark.parametrize(
    ("lit", "told_by"),
    [
        ([(3, 3, RED, 1)], 1 / CELLS),
        ([(0, 0, RED, 1), (0, 3, RED, 1), (6, 6, RED, 1)], 2 / CELLS),  # 1 of 3 is less than half
        ([(i, i, RED, 1) for i in range(4)], 2 / CELLS),
        ([(i, i, RED, 1) for i in range(5)], 3 / CELLS),
        ([(0, 0, RED, 1), (1, 1, RED, 0.2), (2, 2, RED, 0.2)], 1 / CELLS),
        ([(0, 0, RED, 1), (1, 1, RED, 1), (2, 2, GREEN, 1), (3, 3, GREEN, 0.8)], 1 / CELLS),  # green speaks against it
        ([], 1),  # 'nothing', which no cell speaks for
    ],
)
def test_told_by_by_hand(lit: list[Lit], told_by: float) -> None:
    assert one(*lit).told_by == pytest.approx(told_by)


def test_what_speaks_for_both_tells_nothing() -> None:
    """Two yellow cells, and one that is red: the red one tells red from green."""
    picture = pixels((0, 0, RED, 1), (2, 2, RED, 1), (5, 5, RED, 0.8))
    picture[:24, :24, GREEN] = picture[:24, :24, RED]
    ((found, _),) = examined(colors(), [Image.fromarray(picture)])
    assert (found.answer, found.runner_up, found.told_by) == (RED, GREEN, pytest.approx(1 / CELLS))


def test_vectors_are_of_the_patch_alone() -> None:
    """The same square on other grounds is nearer than another square, and what is beside a patch does not matter."""
    grounds = [pixels((3, 3, color, 1), ground=gray(seed)) for color, seed in ((RED, 1), (RED, 2), (GREEN, 1))]
    beside = grounds[0].copy()
    beside[:20] = 0
    made = [Image.fromarray(values) for values in (*grounds, beside)]
    a, b, other, same = (vectors[0] for _, vectors in examined(colors(), made))
    assert a @ b > 0.95
    assert a @ b > a @ other + 0.3
    np.testing.assert_array_equal(a, same)


def test_vectors_leave_out_what_is_hidden() -> None:
    """All cells have blue, of which no class is made; of a patch of four cells one is red, or green: (1/4 0 1) and
    (0 1/4 1), whose cosine is 16 / 17."""
    module = Colors()
    module.fc.weight.data[:, BLUE] = 0
    module.cells[1].bias = nn.Parameter(torch.tensor([0.0, 0, 1]))
    given = [painted((3, 3, color, 1)) for color in (RED, GREEN)]
    (_, a), (_, b) = examined(colors(module=module), given)
    assert a[0] @ b[0] == pytest.approx(16 / 17, abs=0.03)  # 64 random directions keep it about so


def test_vectors_are_as_long_whatever_the_network() -> None:
    for network in (colors(), pooled()):
        for found, vectors in examined(network, [painted((2, 2, BLUE, 1)), *noise(2)]):
            assert vectors.shape == (len(found.patches), WIDTH)
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), (vectors != 0).any(1), rtol=1e-5)


def test_pictures_beside_one_another_change_nothing() -> None:
    network, given = pooled(), noise(7)
    boxes = [[(2.0, 3.0, 12.0, 20.0)] if i % 3 else [] for i in range(7)]
    wanted = examined(network, given, boxes, batch=1)
    for order, batch in ((range(7), 7), (range(7), 3), (range(6, -1, -1), 4)):
        own = list(order)
        found = examined(network, [given[i] for i in own], [boxes[i] for i in own], batch=batch)
        for place, (row, vectors) in zip(own, found, strict=True):
            same, known = wanted[place]
            close(row.model_dump(exclude={"name"}), same.model_dump(exclude={"name"}))
            np.testing.assert_allclose(vectors, known, atol=1e-5)


def close(a: Any, b: Any) -> None:
    """Equal, numbers but for their last digits."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        a, b = list(a.values()), list(b.values())
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            close(x, y)
    else:
        assert a == (pytest.approx(b, rel=1e-4, abs=1e-5) if isinstance(b, float) else b)


def test_one_pass_for_the_maps_two_for_each_patch_and_one_for_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    network, rows, whole = colors(), list[int](), nn.AvgPool2d.forward
    given = [painted((i, i, RED, 1)) for i in range(3)]
    monkeypatch.setattr(nn.AvgPool2d, "forward", lambda self, x: rows.append(len(x)) or whole(self, x))
    examined(network, given)  # which cuts the network
    rows.clear()
    examined(network, given, [[], [(0, 0, 9, 9)], []])
    assert sum(rows) == 3 + 2 * 3 + 1  # one patch each speaks for the answer


def test_a_network_is_left_as_it_was() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(6, 3),
    )  # fmt: skip
    network = fovea.wrap(module, Prepare((24, 24)), labels=3)
    module.train()
    with left_as_found(module):
        trained = examined(network, noise(3))
    module.eval()
    assert [row for row, _ in trained] == [row for row, _ in examined(network, noise(3))]


class Brightened(Colors):
    """Nothing on a patch makes it divide by zero."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x / x.amax((1, 2, 3), keepdim=True))


def test_a_network_that_gives_no_number_for_a_patch_is_refused() -> None:
    network = colors(module=Brightened(), transform=PREPARE)
    raises(fovea.BadNetwork, "gives an output that is not a number", examined, network, [painted((3, 3, RED, 1))])
