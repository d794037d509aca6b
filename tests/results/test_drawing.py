import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator
from PIL import Image

from fovea.results import drawing, marks


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
    theirs = [mark for mark in MaxNLocator(4, steps=(1, 2, 5, 10)).tick_values(low, high) if low <= mark <= high]
    assert low == high or ticks == pytest.approx(theirs)


def test_colors_are_matplotlibs() -> None:
    steps = np.arange(256)
    theirs = (colormaps[drawing.COLORS](steps)[:, :3] * 255).astype(np.float32)
    assert np.array_equal(drawing.color((steps + 0.5) / 255), theirs)


def test_full_size_is_the_pictures_own(busy: Image.Image) -> None:
    large = busy.resize((3000, 2000))
    assert max(drawing.blend(large, np.ones((2, 3))).size) == drawing.LARGEST
    assert drawing.blend(large, np.ones((2, 3)), size="full").size == large.size
    assert drawing.blend(large, np.ones((2, 3)), size=900).size == (900, 600)


def overlapping(places: list[tuple[float, ...]], others: list[tuple[float, ...]]) -> float:
    def shared(a: tuple[float, ...], b: tuple[float, ...]) -> float:
        return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))

    return sum(shared(a, b) for a in places for b in others)


CROWDS = {
    "same corner": [(50, 50, 250, 250), (50, 50, 150, 150), (50, 50, 200, 120)],
    "the same box": [(100, 80, 300, 200)] * 4,
    "tiny": [(200, 200, 204, 204), (203, 203, 206, 206), (0, 0, 3, 3), (597, 397, 600, 400)],
    "the whole picture": [(0, 0, 600, 400), (0, 0, 300, 200), (299, 199, 600, 400)],
    "a row": [(x, 100, x + 60, 160) for x in range(0, 120, 20)],
    "thin": [(0, 200, 600, 203), (300, 0, 303, 400)],
}


@pytest.mark.parametrize("boxes", CROWDS.values(), ids=list(CROWDS))
@pytest.mark.parametrize("size", [14, 28])
def test_numbers_lie_on_the_picture_and_hide_no_line_and_no_other(boxes: list[tuple[int, ...]], size: int) -> None:
    found = [marks.Mark(box, str(number)) for number, box in enumerate(boxes, 9)]
    places = marks.tag_places(found, size, (600, 400))
    assert all(x0 >= 0 and y0 >= 0 and x1 <= 600 and y1 <= 400 for x0, y0, x1, y1 in places)
    assert all(overlapping([place], [*places[:i], *places[i + 1 :]]) == 0 for i, place in enumerate(places))
    assert overlapping(places, [line for mark in found for line in mark.lines]) == 0


def test_more_evidence_has_a_thicker_line_and_only_the_best_boxes_are_drawn() -> None:
    image = Image.new("RGB", (600, 400), "white")
    boxes = [(10 + 80 * i, 100, 70 + 80 * i, 300) for i in range(7)]
    drawn = np.asarray(marks.with_boxes(image, boxes, [7, 6, 5, 4, 3, 2, 1])).astype(int)
    inks = [tuple(int(ink[i : i + 2], 16) for i in (1, 3, 5)) for ink in marks.INKS]
    across = [(drawn[250, :, :] == ink).all(-1).sum() for ink in inks]
    assert across == sorted(across, reverse=True)
    assert across[0] > across[-1] > 0
    assert (drawn[:, 500:] == 255).all()


@pytest.mark.parametrize("ink", ["black", "white", "#e69f00"])
def test_boxes_show_on_any_background(ink: str) -> None:
    drawn = Image.new("RGB", (300, 200), ink)
    before = np.asarray(drawn).astype(int)
    marks.draw_box(drawn, (50, 50, 150, 150), drawn.size)
    assert np.abs(np.asarray(drawn)[100, 50:60].astype(int) - before[100, 50:60]).max() > 200
