import numpy as np
import pytest
from PIL import Image

from fovea.results import drawing


@pytest.fixture
def busy() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 600, 3), dtype=np.uint8))


def test_the_photograph_stays_where_the_map_is_zero_and_shines_through_where_it_is_not(busy: Image.Image) -> None:
    values = np.zeros((40, 60), dtype=np.float32)
    values[:, 30:] = 1
    drawn = np.asarray(drawing.blend(busy, values)).astype(int)
    left, right = np.asarray(busy).astype(int)[:, :280], np.asarray(busy).astype(int)[:, 320:]
    assert (drawn[:, :280] == left).all()
    yellow = drawing.color(np.ones(1))[0]
    assert np.abs(drawn[:, 320:] - (0.2 * right + 0.8 * yellow)).max() < 3
    assert drawn[:, 320:].std() > 0.15 * right.std()


@pytest.mark.parametrize("ink", ["black", "white", "grey"])
def test_what_the_network_did_not_see_is_hatched_on_any_background(ink: str) -> None:
    image = Image.new("RGB", (600, 400), ink)
    drawn = np.asarray(drawing.blend(image, np.zeros((4, 6)), (150.0, 0.0, 450.0, 400.0)).convert("L")).astype(int)
    assert np.ptp(drawn[:, 160:440]) == 0
    for unseen in (drawn[:, :140], drawn[:, 460:]):
        assert np.ptp(unseen) > 60
        assert np.median(unseen) == drawn[200, 300]  # and what lies there is still seen
    whole = np.asarray(drawing.blend(image, np.zeros((4, 6)), (0.4, 0.0, 599.6, 400.0)))
    assert np.ptp(whole) == 0


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 0.37), (0, 3.2e-5), (0.11, 0.9), (0, 7321.0), (2, 2), (0.99, 1.004)]
)
def test_ticks_are_few_and_round_and_in_the_range(low: float, high: float) -> None:
    ticks = drawing.ticks(low, high, 4)
    assert 1 <= len(ticks) <= 6
    assert all(low <= tick <= high for tick in ticks)
    assert all(len(f"{tick:g}".replace("e-05", "").strip("0.").replace(".", "")) <= 4 for tick in ticks)
    assert (0 in ticks) == (low == 0)


def test_full_size_is_the_pictures_own(busy: Image.Image) -> None:
    large = busy.resize((3000, 2000))
    assert max(drawing.blend(large, np.ones((2, 3))).size) == drawing.LARGEST
    assert drawing.blend(large, np.ones((2, 3)), size="full").size == large.size
    assert drawing.blend(large, np.ones((2, 3)), size=900).size == (900, 600)
