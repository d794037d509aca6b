import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fovea
from conftest import Through, seeded
from fovea.evidence import BACKGROUNDS, LeastSearch, Masked
from fovea.evidence.enough import LADDER
from made_evidence import SIDE, counted, lit, painted, squares

PLENTY = 400  # passes
THERE = 0


def searched(masked: Masked, rank: np.ndarray, keeps: bool, budget: int = PLENTY) -> frozenset[int] | None:
    return LeastSearch(masked, rank.astype(np.float32), keeps, budget).run()


def hot(*places: int) -> np.ndarray:
    """A map that is right."""
    rank = np.zeros(49)
    rank[list(places)] = 1
    return rank


def network(seed: int = 0, classes: int = 4) -> fovea.Network:
    """Convolutions and two layers of which the second sees all cells, so that patches count together."""
    torch.manual_seed(seed)
    trunk = nn.Sequential(nn.Conv2d(3, 6, 5, 4, 2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
    head = nn.Sequential(nn.Linear(6 * 49, 16), nn.ReLU(), nn.Linear(16, classes))
    with torch.no_grad():
        head[0].weight.mul_(6)
    return fovea.wrap(nn.Sequential(trunk, head).eval(), labels=classes)


def noise(seed: int = 0) -> Tensor:
    return torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def versions(masked: Masked, patches: frozenset[int], shown: bool) -> Tensor:
    """By boxes, and not by masks: the picture with the patches alone, or without them, on every background."""
    inside = painted(masked.boxes(patches), masked.size)
    rows = [torch.where(inside == shown, masked.picture, fill) for fill in masked.fills.values()]
    return torch.cat(rows)


@pytest.mark.parametrize("place", [0, 24, 48, 30])
def test_an_answer_that_hangs_on_one_patch(place: int) -> None:
    """Blurred, 0.56 of the square is left, and it takes 0.8."""
    masked = Masked.of(squares({place: 1.0}, 0.8), lit(place), THERE)
    assert searched(masked, hot(place), keeps=True) == {place}
    assert searched(masked, hot(place), keeps=False) == {place}


@pytest.mark.parametrize("keeps", [True, False])
def test_a_map_that_is_wrong_finds_the_same_or_nothing(keeps: bool) -> None:
    """What is found is right whatever the map; where the map leads elsewhere, it may be that nothing is found."""
    found = list[object]()
    for place in range(49):
        masked = Masked.of(squares({place: 1.0}, 0.8), lit(place), THERE)
        found += [searched(masked, rank, keeps) for rank in (-hot(place), np.zeros(49))]
        assert found[-1] in ({place}, None)
        assert found[-2] in ({place}, None)
    assert found.count(None) < len(found)


@pytest.mark.parametrize("places", [(24, 25), (0, 48), (10, 38)])
def test_two_patches_of_which_both_are_needed(places: tuple[int, int]) -> None:
    """1 + 1 reaches 1.8, and 1 + 0.56 does not: both are enough, and without either it is another answer."""
    masked = Masked.of(squares(dict.fromkeys(places, 1.0), 1.8), lit(*places), THERE)
    assert searched(masked, hot(*places), keeps=True) == set(places)
    needed = searched(masked, hot(*places), keeps=False)
    assert needed is not None
    assert len(needed) == 1
    assert needed < set(places)


@pytest.mark.parametrize("places", [(24, 25), (0, 48), (10, 38)])
def test_two_patches_of_which_one_suffices(places: tuple[int, int]) -> None:
    """The larger of both reaches 0.8: one is enough, and both must go for another answer."""
    masked = Masked.of(squares(dict.fromkeys(places, 1.0), 0.8, largest=True), lit(*places), THERE)
    enough = searched(masked, hot(*places), keeps=True)
    assert enough is not None
    assert len(enough) == 1
    assert enough < set(places)
    assert searched(masked, hot(*places), keeps=False) == set(places)


def test_an_answer_that_only_the_whole_keeps() -> None:
    """49 squares of 1 reach 48.5; all but one do not. Without any of them it is another answer."""
    masked = Masked.of(squares(dict.fromkeys(range(49), 1.0), 48.5), lit(*range(49)), THERE)
    rank = np.random.default_rng(0).random(49)
    assert searched(masked, rank, keeps=True) is None
    needed = searched(masked, rank, keeps=False)
    assert needed is None  # blurred, the picture is as bright as before


def test_an_answer_that_nothing_changes() -> None:
    """'there' is the answer to whatever picture."""
    masked = Masked.of(squares({24: 1.0}, -1.0), lit(24), THERE)
    assert searched(masked, hot(24), keeps=False) is None
    assert searched(masked, hot(24), keeps=True) == frozenset()  # nothing has to be shown


def test_backgrounds_that_disagree() -> None:
    """0.5 is reached by the blurred square, too: what is hidden by blur alone changes nothing, so nothing is needed."""
    masked = Masked.of(squares({24: 1.0}, 0.5), lit(24), THERE)
    assert masked.margins([frozenset()], "blur")[0] > 0 > masked.margins([frozenset()], "mean")[0]
    assert searched(masked, hot(24), keeps=False) is None
    assert searched(masked, hot(24), keeps=True) == {24}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keeps", [True, False])
def test_what_is_found_does_on_every_background(seed: int, keeps: bool) -> None:
    net, picture, draw = network(seed), noise(seed), np.random.default_rng(seed)
    with torch.no_grad():
        answer = int(net.module(picture).argmax())
    masked = Masked.of(net, picture, answer)
    rank = draw.normal(size=49)
    found = searched(masked, rank, keeps)
    hottest = np.argsort(-rank, kind="stable")
    does = []
    for share in LADDER:
        prefix = frozenset(hottest[: max(round(share * 49), 1)].tolist())
        with torch.no_grad():
            answers = net.module(versions(masked, prefix, keeps)).argmax(1)
        does += [len(prefix)] * bool(((answers == answer) == keeps).all())
    if found is None:
        assert not does
        return
    with torch.no_grad():
        answers = net.module(versions(masked, found, keeps)).argmax(1)
    assert bool(((answers == answer) == keeps).all())
    assert len(found) <= min(does, default=49)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("seed", [3, 5, 9, 31])
def test_nothing_of_what_is_found_can_be_left_out(seed: int, keeps: bool) -> None:
    """With passes enough, not one patch of it."""
    net, picture = network(seed), noise(seed)
    answer = int(net(picture).argmax())
    masked = Masked.of(net, picture, answer)
    found = searched(masked, np.random.default_rng(seed).normal(size=49), keeps, 5000)
    assert found is not None
    assert len(found) > 1
    for patch in found:
        less = found - {patch}
        sets = [less if keeps else masked.every - less]
        margins = [masked.margins(sets, background)[0] for background in BACKGROUNDS]
        assert not all((margin > 0) == keeps for margin in margins)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("seed", [3, 5, 9])
def test_no_more_passes_than_allowed(seed: int, keeps: bool) -> None:
    """Also where there are fewer than the first tries take, or none."""
    net, picture, rank = network(seed), noise(seed), np.random.default_rng(seed).normal(size=49).astype(np.float32)
    answer, rows = int(net(picture).argmax()), counted(net.module)
    for budget in (-5, *range(60)):
        rows.clear()
        masked = Masked.of(net, picture, answer)
        search = LeastSearch(masked, rank, keeps, budget)
        found = search.run()
        assert sum(rows) == masked.forwards <= max(budget, 0)
        assert search.left == budget - sum(rows)
        assert found is None or budget > len(LADDER)


def test_what_one_search_has_tried_is_known_to_the_next() -> None:
    net, picture = network(), noise()
    rows, masked = counted(net.module), Masked.of(net, picture, int(net(picture).argmax()))
    rank = np.random.default_rng(0).normal(size=49)
    first = searched(masked, rank, True)
    before = sum(rows)
    assert searched(masked, rank, True) == first
    assert sum(rows) == before > 0


def test_more_passes_find_no_more() -> None:
    """On the whole: a longer search never ends with a larger part than a short one that found something."""
    for seed in range(8):
        net, picture, rank = network(seed), noise(seed), np.random.default_rng(seed).normal(size=49)
        answer = int(net(picture).argmax())
        sizes = []
        for budget in (16, 30, 60, 200):
            found = searched(Masked.of(net, picture, answer), rank, True, budget)
            sizes.append(49 if found is None else len(found))
        assert sizes == sorted(sizes, reverse=True)


def test_a_box_is_found_where_the_hottest_patches_are_elsewhere() -> None:
    """All of a block of 3 x 3 squares must be shown. The 36 hottest patches are others, but no box has more than that
    around the block: each of the others meets one of four cold patches."""
    block = [16, 17, 18, 23, 24, 25, 30, 31, 32]
    masked = Masked.of(squares(dict.fromkeys(block, 1.0), 8.8), lit(*block), THERE)
    rank = 2.0 - hot(*block)
    rank[[3, 21, 26, 38]] = -50
    assert searched(masked, rank, keeps=True) == set(block)


@pytest.mark.parametrize("size", [(20, 20), (30, 90), (90, 30), (5, 5), (1, 40)])
def test_inputs_of_other_shapes(size: tuple[int, int]) -> None:
    """The answer is there where anything is bright."""
    module = Through(lambda x: torch.stack([x.amax((1, 2, 3)), torch.full((len(x),), 0.95)], 1))
    picture = torch.zeros(1, 1, *size)
    picture[0, 0, -1, -1] = 1
    net = fovea.wrap(seeded(lambda: module), labels=["there", "gone"])
    masked = Masked.of(net, picture, THERE)
    rank = np.zeros(masked.count)
    rank[-1] = 1
    assert searched(masked, rank, keeps=True) == {masked.count - 1}
    assert searched(masked, rank, keeps=False) in ({masked.count - 1}, None)
