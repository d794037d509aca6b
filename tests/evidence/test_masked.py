import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import fovea
from conftest import Pooled, Through, seeded
from fovea.evidence import BACKGROUNDS, Masked
from fovea.pictures import Placement
from made_evidence import counted, lit, painted, squares


def masked(height: int = 56, width: int = 56) -> Masked:
    """Nothing passes this network."""
    return Masked(fovea.wrap(nn.Identity(), labels=2), torch.zeros(1, 1, height, width), 0, {})


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((224, 224), (7, 7)),
        ((56, 56), (7, 7)),
        ((20, 20), (7, 7)),  # patches of 2 and of 3 pixels
        ((224, 256), (7, 8)),
        ((224, 448), (7, 14)),
        ((448, 224), (14, 7)),
        ((100, 300), (7, 14)),  # 21 columns would be 147 patches
        ((300, 100), (14, 7)),
        ((32, 3200), (7, 14)),
        ((3200, 32), (14, 7)),
        ((5, 5), (5, 5)),  # no patch without a pixel
        ((1, 1), (1, 1)),
        ((3, 9), (3, 9)),
    ],
)
def test_patches_are_about_square_and_not_too_many(size: tuple[int, int], grid: tuple[int, int]) -> None:
    found = masked(*size)
    assert found.grid == grid
    assert found.count == len(found.every) == grid[0] * grid[1] <= 100
    for edges, side in zip(found.edges, size, strict=True):
        steps = np.diff(edges)
        assert (edges[0], edges[-1]) == (0, side)
        assert steps.min() > 0
        assert np.ptp(steps) <= 1  # as even as can be


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(1, 70),
    width=st.integers(1, 400),
    seed=st.integers(0, 999),
    share=st.sampled_from([0.1, 0.5, 0.9]),
)
def test_masks_boxes_and_shares_agree(height: int, width: int, seed: int, share: float) -> None:
    found = masked(height, width)
    chosen = np.flatnonzero(np.random.default_rng(seed).random(found.count) < share)
    patches = frozenset(chosen.tolist())
    mask = found.mask(patches)
    assert torch.equal(painted(found.boxes(patches), (height, width)), mask)
    assert found.share(patches) == pytest.approx(int(mask.sum()) / mask.numel())
    assert found.share(patches) + found.share(found.every - patches) == pytest.approx(1)
    alone = [found.mask(frozenset([patch])) for patch in sorted(patches)]
    assert not alone or torch.equal(torch.stack(alone).int().sum(0), mask.int())


def test_boxes_by_hand() -> None:
    """Squares of 8 pixels: runs in a row are one box, and equal runs below one another, too."""
    found = masked()
    assert found.boxes(frozenset()) == []
    assert found.boxes(found.every) == [(0, 0, 56, 56)]
    assert found.boxes(frozenset([0])) == [(0, 0, 8, 8)]
    assert found.boxes(frozenset([8, 9, 15, 16])) == [(8, 8, 24, 24)]
    assert found.boxes(frozenset([6, 7])) == [(48, 0, 56, 8), (0, 8, 8, 16)]  # a row's end and the next one's begin
    assert found.boxes(frozenset([0, 1, 7])) == [(0, 0, 16, 8), (0, 8, 8, 16)]
    assert found.boxes(frozenset([0, 14])) == [(0, 0, 8, 8), (0, 16, 8, 24)]
    assert found.share(frozenset([0, 1, 7])) == pytest.approx(3 / 49)
    uneven = masked(20, 20)  # edges are 0 2 5 8 11 14 17 20
    assert uneven.boxes(frozenset([0, 8])) == [(0, 0, 2, 2), (2, 2, 5, 5)]
    assert uneven.share(frozenset([0, 8])) == pytest.approx((4 + 9) / 400)


def test_a_patch_has_the_mean_of_the_map_on_it() -> None:
    """A map that has a cell for every pixel."""
    cells = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    found = masked(20, 30)
    (down, across), ranked = found.edges, found.ranked(cells).reshape(found.grid)
    for row, column in np.ndindex(found.grid):
        inside = cells[down[row] : down[row + 1], across[column] : across[column + 1]]
        assert ranked[row, column] == pytest.approx(inside.mean(), abs=1e-5)


def test_a_coarse_map_by_hand() -> None:
    """Two cells on 14 pixels, whose middles are at 3.5 and 10.5: between them a line, held outside."""
    ranked = masked(14, 14).ranked(np.array([[0.0, 7.0]], dtype=np.float32)).reshape(7, 7)
    assert np.allclose(ranked, ranked[0])
    assert ranked[0].tolist() == pytest.approx([0, 0, 1.5, 3.5, 5.5, 7, 7], abs=1e-5)
    assert np.allclose(masked(14, 14).ranked(np.full((3, 2), 5, np.float32)), 5)


def test_a_map_of_a_window() -> None:
    """Patches of 2 pixels, a map that lies on the pixels 7 to 13 of both sides: nothing outside of it."""
    place = Placement((14, 14), (7, 7), (1.0, 1.0), (7.0, 7.0))
    ranked = masked(14, 14).ranked(np.ones((7, 7), np.float32), place).reshape(7, 7)
    line = np.array([0, 0, 0, 0.5, 1, 1, 1])
    assert np.allclose(ranked, np.outer(line, line))


def test_nothing_passes_the_network_twice() -> None:
    network = fovea.wrap(seeded(Pooled), labels=5)
    passed = list[Tensor]()
    network.module.register_forward_pre_hook(lambda _, given: passed.extend(given[0]))
    found = Masked.of(network, torch.randn(1, 3, 56, 56, generator=torch.Generator().manual_seed(0)), 0)
    draw = np.random.default_rng(0)
    sets = [frozenset(np.flatnonzero(draw.random(49) < 0.3).tolist()) for _ in range(6)]
    for tried in ([*sets, sets[0]], sets[::-1], [sets[2], *sets[:2]], [frozenset(sorted(sets[3]))]):
        for background in BACKGROUNDS:
            found.margins(tried, background)
    assert found.forwards == len(passed) == len(sets) * len(BACKGROUNDS)
    assert not any(torch.equal(a, b) for i, a in enumerate(passed) for b in passed[:i])


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_what_is_not_shown_is_the_background(background: str) -> None:
    module = seeded(Pooled)
    picture = torch.randn(1, 3, 56, 56, generator=torch.Generator().manual_seed(0))
    found = Masked.of(fovea.wrap(module, labels=5), picture, 0)
    fill = found.fills[background].expand_as(picture)
    half = frozenset(range(21))  # the upper three rows: 24 pixels
    by_hand = torch.cat([picture[:, :, :24], fill[:, :, 24:]], 2)
    with torch.no_grad():
        expected = torch.cat([module(version) for version in (picture, fill, by_hand)])
    logits = found.logits([found.every, frozenset(), half], background)
    torch.testing.assert_close(logits, expected)
    assert not torch.allclose(expected[0], expected[1])


def test_backgrounds_by_hand() -> None:
    """The mean is 0 after normalization; a blurred picture keeps its sum, and little of what is fine in it."""
    found = Masked.of(squares({24: 1.0}, 0.8), lit(24), 0)
    assert tuple(found.fills) == BACKGROUNDS
    assert float(found.fills["mean"].abs().sum()) == 0
    assert float(found.fills["blur"].sum()) == pytest.approx(64, rel=1e-3)
    assert 0.5 < float(found.fills["blur"][0, 0, 24:32, 24:32].mean()) < 0.65


def test_margins_by_hand() -> None:
    """Logits are 3, 1 and 2 of a white picture, and 0 of a gray one."""
    module = Through(lambda x: x.mean((1, 2, 3))[:, None] * torch.tensor([3.0, 1, 2]))
    for answer, margin in enumerate((1.0, -2.0, -1.0)):
        found = Masked.of(fovea.wrap(module.eval(), labels=3), torch.ones(1, 1, 56, 56), answer)
        assert found.margins([found.every, frozenset(), frozenset(range(7))], "mean") == pytest.approx(
            [margin, 0, margin / 7]
        )


def test_sets_in_any_number_pass_a_few_at_a_time() -> None:
    network = squares({24: 1.0}, 0.8)
    rows, found = counted(network.module), Masked.of(network, lit(24), 0)
    shares = found.logits([frozenset([patch]) for patch in range(11)] + [frozenset([24])], "mean")[:, 0]
    assert shares.tolist() == [0.0] * 11 + [1.0]
    assert (sum(rows), found.forwards) == (12, 12)
