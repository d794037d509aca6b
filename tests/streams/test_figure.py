from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import fovea
from fovea.basics import whole_pixels
from fovea.results import drawing
from fovea.streams import BAR, RIGHT, TEXT, TILE, WRONG, Looked, Said
from fovea.streams.figure import _drawn, _lines
from made_twostream import BOX, made, planted_image, scrambled


def looked(steps: int = 3, boxes: int = 1, truth: str | None = None) -> Looked:
    network = scrambled(made(steps, (BOX,) * boxes))
    return fovea.look_longer(network, planted_image(), truth=truth)[0]


def pixels_of(image: Image.Image, color: str) -> int:
    wanted = tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))
    return int((np.asarray(image) == wanted).all(2).sum())


def saying(one: Looked, labels: list[str]) -> Looked:
    """The same with other words at the steps, and the first of them everywhere else."""
    steps = zip(one.patches[0].steps, labels, strict=True)
    patch = replace(
        one.patches[0],
        said=Said(labels[0], 0.5),
        steps=tuple(replace(step, said=Said(label, 0.5)) for step, label in steps),
    )
    first = Said(labels[0], 0.5)
    return replace(one, patches=(patch,), said=first, whole_said=first, local_said=first)


def test_right_and_wrong_are_told_apart() -> None:
    """Shapes and words differ, not only colors; without a truth, agreeing with the answer takes its place."""
    right = saying(looked(truth="red_bird"), ["red_bird"] * 3).draw()
    wrong = saying(looked(truth="red_bird"), ["green_bird"] * 3).draw()
    mixed = saying(looked(truth="red_bird"), ["red_bird", "green_bird", "red_bird"]).draw()
    assert pixels_of(right, WRONG) == 0
    assert pixels_of(wrong, RIGHT) == 0
    assert pixels_of(right, RIGHT) > pixels_of(mixed, RIGHT) > 0
    assert 0 < pixels_of(mixed, WRONG) < pixels_of(wrong, WRONG)
    unknown = saying(looked(), ["red_bird", "green_bird", "red_bird"]).draw()
    assert pixels_of(unknown, WRONG) > 0
    assert pixels_of(unknown, RIGHT) > 0


def test_bars_are_as_long_as_the_weights() -> None:
    one = looked()

    def weighing(*weights: float) -> Image.Image:
        steps = tuple(replace(step, weight=w) for step, w in zip(one.patches[0].steps, weights, strict=True))
        return replace(one, patches=(replace(one.patches[0], steps=steps),)).draw()

    whole, half = pixels_of(weighing(1.0, 0.0, 0.0), BAR), pixels_of(weighing(0.5, 0.25, 0.25), BAR)
    assert half == pytest.approx(2 * whole, rel=0.05)  # the longest is as long as there is room


def test_ten_steps_take_two_rows() -> None:
    short, five, ten = (looked(steps).draw() for steps in (3, 5, 10))
    assert short.width < five.width == ten.width < 1500
    assert ten.height > five.height
    assert looked(5, boxes=2).draw().height > five.height


def test_labels_of_any_length_stay_in_their_tile() -> None:
    for label in ("jay", "Black footed Albatross", "Supercalifragilisticexpialidocious", "a very long name " * 9):
        lines = _lines(label, " 0.87", TILE)
        assert len(lines) <= 2
        assert all(drawing.font(TEXT).getlength(line) <= TILE for line in lines)
        assert lines[-1].endswith("0.87")
        assert lines[0].startswith(label[:2])


@pytest.mark.parametrize(
    ("box", "wanted"),
    [
        ((1.6, 2.4, 8.5, 9.5), (2, 2, 8, 10)),
        ((-3.0, -3.0, 99.0, 99.0), (0, 0, 20, 10)),
        ((5.2, 5.2, 5.3, 5.3), (5, 5, 6, 6)),
        ((20.0, 10.0, 20.0, 10.0), (19, 9, 20, 10)),
    ],
)
def test_whole_pixels(box: tuple[float, float, float, float], wanted: tuple[int, int, int, int]) -> None:
    assert whole_pixels(box, (20, 10)) == wanted


def test_odd_pictures() -> None:
    """Very long, very small, gray: there is always a strip."""
    network = made()
    for size in ((400, 4), (4, 400), (2, 2)):
        figure = fovea.look_longer(network, Image.new("RGB", size, "grey"))[0].draw()
        assert figure.width > 500


def test_steps_share_a_scale_and_show_how_they_differ() -> None:
    """Two cells: 1 and 0, then 0.5 and 0. The second is half as strong; from their mean they differ by a quarter."""
    maps = np.array([[[1.0, 0.0]], [[0.5, 0.0]]], np.float32)
    white = Image.new("RGB", (2, 1), "white")
    (first, above), (second, below) = (
        [np.asarray(tile).astype(int) for tile in tiles] for tiles in _drawn(white, maps)
    )
    assert np.abs(255 - first[0, 0]).sum() > np.abs(255 - second[0, 0]).sum() > 0
    assert (first[-1, -1] == 255).all()
    assert above[0, 0].tolist() == pytest.approx([255 - 0.8 * (255 - x) for x in (213, 94, 0)], abs=2)
    assert below[0, 0].tolist() == pytest.approx([255 - 0.8 * (255 - x) for x in (0, 114, 178)], abs=2)
    assert (above[-1, -1] == 255).all()
    assert [len(tiles) for tiles in _drawn(white, maps[:1])] == [1]  # one step differs from nothing
