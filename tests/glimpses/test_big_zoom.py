"""A file with tiles is zoomed into without being loaded: the same answer, a fraction of its pixels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

import fovea
from fovea.glimpses.answer import ZoomAnswer
from fovea.pictures import BigPicture

SIDE, TILE = 2048, 64


@pytest.fixture(scope="module")
def net() -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625, "levels": 3, "glimpses": 4})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same picture plain and as a pyramid."""
    folder = tmp_path_factory.mktemp("big")
    shades = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(shades).resize((SIDE + 9, SIDE - 101), Image.Resampling.BICUBIC).save(folder / "plain.png")
    fovea.pyramid(folder / "plain.png", folder / "tiled.tif", tile=TILE, lossless=True)
    return folder / "plain.png", folder / "tiled.tif"


def zoomed(net: fovea.Network, path: Path, **how: Any) -> ZoomAnswer:
    (answer,) = fovea.zoom(net, path, **how)
    return answer


@pytest.mark.parametrize("how", [{"glimpses": 0}, {"glimpses": 4}, {"glimpses": 6, "order": "best"}], ids=str)
def test_a_pyramid_is_answered_as_the_picture_is(
    net: fovea.Network, files: tuple[Path, Path], how: dict[str, Any]
) -> None:
    plain, tiled = (zoomed(net, path, **how) for path in files)
    assert tiled.size == plain.size == (SIDE + 9, SIDE - 101)
    assert tiled.label == plain.label
    assert tiled.probability == pytest.approx(plain.probability, abs=0.01)
    assert [glimpse.box for glimpse in tiled.glimpses] == [glimpse.box for glimpse in plain.glimpses]
    assert tiled.cost.macs == plain.cost.macs
    assert tiled.cost.pixels_in_windows == plain.cost.pixels_in_windows == plain.cost.pixels_read


def test_what_was_read_is_told_and_grows_with_the_glimpses(net: fovea.Network, files: tuple[Path, Path]) -> None:
    costs = [zoomed(net, files[1], glimpses=glimpses).cost for glimpses in (0, 2, 6)]
    for name in ("pixels_read", "tiles", "bytes_read"):
        told = [getattr(cost, name) for cost in costs]
        assert told == sorted(told)
        assert 0 < told[0] < told[2]
    cost = costs[2]
    assert cost.tiles is not None
    assert cost.bytes_read is not None
    assert cost.pixels_read <= cost.tiles * TILE**2
    assert cost.pixels_read < 0.2 * cost.pixels
    assert cost.bytes_read < (cost.bytes or 0) == files[1].stat().st_size
    row = zoomed(net, files[1], glimpses=6).to_dict()
    names = ("pixels_read", "pixels_in_windows", "pixels", "tiles", "bytes_read", "bytes")
    assert {name: row[name] for name in names} == {name: getattr(cost, name) for name in names}
    assert "% of the picture's pixels decoded" in cost.reading()


def test_nothing_loads_it_not_even_drawing(
    net: fovea.Network, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, read = list[int](), BigPicture.read

    def noted(self: BigPicture, box: Any, size: tuple[int, int], *how: Any) -> Image.Image:
        sizes.append(size[0] * size[1])
        return read(self, box, size, *how)

    def refused(*_: Any) -> None:
        raise AssertionError("it was decoded whole")

    monkeypatch.setattr(BigPicture, "read", noted)
    monkeypatch.setattr("fovea.pictures.gathering.decode", refused)
    results = fovea.zoom(net, files[1], glimpses=6)
    results[0].draw()
    results[0].crops()
    results.save(tmp_path / "out")
    assert [row[0] for row in results[0].view().table[1:4]] == ["pixels decoded", "tiles", "bytes"]
    assert list(tmp_path.glob("out/index_files/openseadragon*.js"))  # the page zooms into it
    assert max(sizes) <= 1_440_000 < results[0].cost.pixels  # what is drawn at most
    assert max(sizes[:7]) <= 300 * 300  # and what is looked at


def test_a_large_file_without_smaller_copies_is_said_to_be_slow(
    net: fovea.Network, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fovea.glimpses.zoom.LARGE", 1_000_000)
    assert "fovea pyramid" not in zoomed(net, files[1]).note
    with Image.open(files[0]) as plain:
        tifffile.imwrite(tmp_path / "flat.tif", np.asarray(plain), tile=(TILE, TILE), photometric="rgb")
    flat = zoomed(net, tmp_path / "flat.tif")
    assert flat.cost.pixels_read >= flat.cost.pixels
    assert "fovea pyramid" in flat.note
    plain = zoomed(net, files[0], max_pixels=1_000_000)
    assert (plain.label, plain.size) == (flat.label, flat.size)
    assert "fovea pyramid" in plain.note


def test_a_drawing_is_of_the_same_places(net: fovea.Network, files: tuple[Path, Path]) -> None:
    plain, tiled = (zoomed(net, path, glimpses=4) for path in files)
    drawn = [np.asarray(answer.draw().convert("RGB")).astype(int) for answer in (plain, tiled)]
    height = min(len(one) for one in drawn) - 60  # without the line below, which tells what was read
    assert np.abs(drawn[0][30:height, :720] - drawn[1][30:height, :720]).mean() < 3
