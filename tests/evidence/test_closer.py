import math
from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image

import fovea
from checks import left_as_found
from fovea.evidence import Evidence
from fovea.pictures import Prepare, is_big
from made_evidence import SIDE, counted, lit, squares

TIMES = 4  # pixels of the picture for one of the input, along a side


def photograph(*places: int, times: int = TIMES) -> Image.Image:
    """Squares are lit in it, as in the input that it becomes."""
    pixels = (lit(*places)[0, 0].numpy() * 255).astype(np.uint8)
    return Image.fromarray(pixels).resize((times * SIDE,) * 2, Image.Resampling.NEAREST)


def looked(network: fovea.Network, *given: Image.Image | Path, **how: object) -> Evidence:
    (found,) = fovea.look(network, list(given), trust=False, **how)
    return found


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_window_by_hand() -> None:
    """Square 24 is the middle, 96 to 128 of 224 pixels; a window as large as the input around it is 84 to 140. There it
    is 12 to 44 of 56 pixels, so that square 24 of the window is lit, too."""
    found = looked(squares({24: 1.0}, 0.8), photograph(24))
    assert found.closer is not None
    (window,) = found.closer.windows
    assert window.box == pytest.approx((84, 84, 140, 140), abs=1)
    assert (window.label, window.probability) == ("there", pytest.approx(sigmoid(0.2), abs=1e-5))
    assert (found.closer.label, found.closer.probability) == ("there", pytest.approx(sigmoid(0.2), abs=1e-5))
    assert (found.closer.pixels, found.closer.forwards) == (56 * 56, 1)
    assert found.closer.share == pytest.approx(1 / 16)
    assert found.closer.to_dict()["windows"][0]["box"] == [round(side, 2) for side in window.box]


def test_a_closer_look_may_change_the_answer() -> None:
    """Square 16 is dark in the whole, and lit in the window: 1 - 5 there. Both are told, and the mean of both."""
    network = squares({24: 1.0, 16: -5.0}, 0.8)
    found = looked(network, photograph(24))
    assert (found.label, found.probability) == ("there", pytest.approx(sigmoid(0.2), abs=1e-5))
    assert found.closer is not None
    (window,) = found.closer.windows
    assert (window.label, window.probability) == ("gone", pytest.approx(sigmoid(4.8), abs=1e-4))
    assert found.closer.label == "gone"
    assert found.closer.probability == pytest.approx((sigmoid(4.8) + sigmoid(-0.2)) / 2, abs=1e-4)
    assert f"it becomes gone ({found.closer.probability:.2f})" in found.words
    network.temperature = 2.0
    calibrated = looked(network, photograph(24)).closer
    assert calibrated is not None
    assert calibrated.probability == pytest.approx((sigmoid(2.4) + sigmoid(-0.1)) / 2, abs=1e-4)


@pytest.mark.parametrize(
    ("size", "closer"), [((56, 56), False), ((83, 83), False), ((84, 84), True), ((224, 70), False), ((30, 30), False)]
)
def test_only_where_there_are_more_pixels(size: tuple[int, int], closer: bool) -> None:
    """Half as many again along both sides, at least."""
    network, picture = squares({24: 1.0}, 0.8), photograph(24).resize(size)
    assert (looked(network, picture).closer is not None) == closer
    assert looked(network, picture, glimpses=0).closer is None


def test_tensors_have_no_more_pixels() -> None:
    (found,) = fovea.look(squares({24: 1.0}, 0.8), lit(24))
    assert found.closer is None


@pytest.mark.parametrize("size", [(100, 224), (224, 100), (224, 224), (90, 90)])
@pytest.mark.parametrize("glimpses", [1, 2, 4])
def test_windows_lie_in_the_picture_and_are_as_large_as_the_input(size: tuple[int, int], glimpses: int) -> None:
    draw = np.random.default_rng(sum(size))
    picture = Image.fromarray(draw.integers(0, 256, size[::-1], dtype=np.uint8))
    network = squares(dict(enumerate(draw.normal(size=49).tolist())), 0.0)
    rows = counted(network.module)
    with left_as_found(network.module):
        found = looked(network, picture, glimpses=glimpses)
    assert found.closer is not None
    boxes = [window.box for window in found.closer.windows]
    assert 0 < len(boxes) == len(set(boxes)) == found.closer.forwards <= glimpses
    assert len(boxes) in rows
    covered = np.zeros(size[::-1], dtype=bool)
    for x0, y0, x1, y1 in boxes:
        assert 0 <= x0 < x1 <= size[0]
        assert 0 <= y0 < y1 <= size[1]
        assert (x1 - x0, y1 - y0) == (pytest.approx(SIDE), pytest.approx(SIDE))
        covered[math.floor(y0) : math.ceil(y1), math.floor(x0) : math.ceil(x1)] = True
    assert found.closer.pixels == pytest.approx(covered.sum(), rel=0.05)  # windows begin at halves of pixels, too
    assert found.closer.share == found.closer.pixels / (size[0] * size[1])


def test_windows_of_a_hot_corner_stay_in_the_picture() -> None:
    """Square 0 is 0 to 32 of 224 pixels; a window around it would begin before the picture does."""
    found = looked(squares({0: 1.0}, 0.8), photograph(0))
    assert found.closer is not None
    assert found.closer.windows[0].box == (0, 0, 56, 56)
    assert looked(squares({48: 1.0}, 0.8), photograph(48)).closer.windows[0].box == (168, 168, 224, 224)


def test_two_places_are_two_windows() -> None:
    """Squares 8 and 40 have their middles at 48 and 176 pixels along both sides."""
    network, picture = squares({8: 1.0, 40: 1.0}, 0.8), photograph(8, 40)
    both, one = (looked(network, picture, glimpses=count).closer for count in (4, 1))
    assert both is not None
    assert one is not None
    boxes = sorted(window.box for window in both.windows)
    assert [pytest.approx(box, abs=1) for box in boxes] == [(20, 20, 76, 76), (148, 148, 204, 204)]
    assert (both.pixels, both.share, both.forwards) == (2 * 56 * 56, pytest.approx(1 / 8), 2)
    assert (len(one.windows), one.share) == (1, pytest.approx(1 / 16))


def test_how_closely_is_told_where_the_picture_is_too_large_for_full_resolution() -> None:
    found = looked(squares({24: 1.0}, 0.8), photograph(24, times=16))
    assert found.closer is not None
    x0, _, x1, _ = found.closer.windows[0].box
    assert found.closer.resolution == pytest.approx(SIDE / (x1 - x0))
    assert found.closer.resolution < 0.5
    assert f"at {found.closer.resolution:.2f} of full resolution" in found.words


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """As a big file: in tiles, in color."""
    pixels = np.asarray(photograph(24).convert("RGB"))
    shape = {"width": pixels.shape[1], "height": pixels.shape[0], "count": 3, "dtype": "uint8", "photometric": "RGB"}
    path = tmp_path / "scene.tif"
    with rasterio.open(path, "w", driver="GTiff", tiled=True, blockxsize=64, blockysize=64, **shape) as file:
        file.write(pixels.transpose(2, 0, 1))
    return path


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_a_big_file_is_looked_at_as_if_it_were_small(scene: Path, tmp_path: Path) -> None:
    assert is_big(scene)
    network = squares({24: 1.0, 16: -5.0}, 0.8)
    plain = tmp_path / "plain.png"
    photograph(24).convert("RGB").save(plain)
    results = fovea.look(network, [scene, plain])
    big, small = (result.to_dict() for result in results)
    assert (big["label"], small["label"]) == ("there", "there")
    assert big["probability"] == pytest.approx(small["probability"], abs=0.02)  # pixels are read coarser
    assert big["size"] == small["size"] == [224, 224]
    for part in ("enough", "needed"):
        assert big[part]["share"] == small[part]["share"] == pytest.approx(1 / 49)
        assert big[part]["boxes"] == small[part]["boxes"] == [[96, 96, 128, 128]]
    (window,), (other,) = big["closer"]["windows"], small["closer"]["windows"]
    assert window["box"] == pytest.approx(other["box"], abs=1)
    assert (window["label"], big["closer"]["label"]) == ("gone", "gone")
    assert big["cost"]["picture"] == 224 * 224
    assert [Path(row["name"]).name for row in results.save(tmp_path / "out")] == ["scene.tif", "plain.png"]


def test_windows_lie_where_the_picture_was_cropped() -> None:
    """The network takes the middle of a wide picture; what it sees there lies at 208 to 240 of 448 pixels."""
    wide = Image.new("L", (448, 224))
    wide.paste(photograph(24), (112, 0))
    cropping = Prepare((SIDE, SIDE), (0.0,), (1.0,), 1.0, "nearest")
    network = fovea.wrap(squares({24: 1.0}, 0.8).module, cropping, labels=["there", "gone"], layer="cells.1")
    found = looked(network, wide, fit="crop")
    assert found.closer is not None
    assert found.closer.windows[0].box == pytest.approx((196, 84, 252, 140), abs=1)
    assert found.closer.share == pytest.approx(56 * 56 / (448 * 224))
