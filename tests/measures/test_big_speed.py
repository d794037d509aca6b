"""Made files of all kinds are read alike, and what zooming into them takes is told by a process of its own."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fovea
from checks import refused
from fovea.measures.big_files import KINDS, Canvas, made
from fovea.measures.big_speed import zoomed
from fovea.pictures import open_big

SIDE = 1024


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    return {kind: made(kind, SIDE, folder) for kind in KINDS}


def test_every_kind_of_file_has_the_same_picture(files: dict[str, Path]) -> None:
    whole, inside = (0, 0, SIDE, SIDE), (500, 760, 692, 888)
    shown = {}
    for kind, path in files.items():
        with open_big(path) as big:
            assert big.levels == ((SIDE, SIDE), (SIDE // 2, SIDE // 2))
            shown[kind] = [np.asarray(big.read(box, (96, 64)), int) for box in (whole, inside)]
    expected = np.asarray(Canvas(SIDE).base, int)
    assert np.abs(shown["pyramid"][1].max() - expected[666:777, 438:605].max()) < 60  # something is drawn there
    for kind, windows in shown.items():
        apart = [np.abs(window - first).mean() for window, first in zip(windows, shown["pyramid"], strict=True)]
        assert max(apart) < 2, kind  # GDAL compressed its copy once more


def test_levels_are_the_picture_shrunk() -> None:
    canvas = Canvas(2 * SIDE)
    assert canvas.levels == [2048, 1024, 512]
    fine, coarse = canvas.grounds[:2]
    assert np.abs(fine.reshape(1024, 2, 1024, 2, 3).mean((1, 3)) - coarse).max() <= 0.5
    tiles = list(canvas.tiles(1))
    assert len(tiles) == 16
    assert len(canvas.known) < len(set(tiles)) <= 16  # the rest has something on it


def test_slides_are_known_as_such(files: dict[str, Path]) -> None:
    openslide = pytest.importorskip("openslide")
    with openslide.OpenSlide(files["slide"]) as slide:
        assert slide.properties["openslide.vendor"] == "aperio"
        assert set(slide.associated_images) == {"thumbnail", "label", "macro"}


def test_a_cog_is_one_with_its_place_on_earth(files: dict[str, Path]) -> None:
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open(files["cog"]) as file:
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert (file.crs, file.transform[:6]) == ("EPSG:32633", (0.5, 0, 5e5, 0, -0.5, 5.6e6))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by Linux")
def test_what_zooming_takes(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in [*KINDS][1:]:
        monkeypatch.delitem(KINDS, kind)
    told: list[tuple[int, int]] = []
    found = fovea.measure(
        "bench big", "tnet-digits", sides=(SIDE,), rounds=1, into=files["pyramid"].parent,
        progress=lambda *now: told.append(now),
    )  # fmt: skip
    (row,) = found.rows
    assert (row["kind"], row["side"], row["tiles"], row["pixels"]) == ("pyramid", SIDE, 16, SIDE**2)
    assert (row["share"], row["percent"], row["x_pixels"], row["x_seconds"]) == (1, 100, 1, 1)
    assert row["right"]  # the canvas is one that the network was trained for
    assert row["process_bytes"] == pytest.approx(row["counted_bytes"], rel=0.05)
    assert 0 < row["memory_mb"] <= row["drawn_mb"] < 400
    assert told == [(0, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by Linux")
def test_a_deeper_walk_reads_finer_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made("subifds", 4 * SIDE, tmp_path)
    rows = []
    for glimpses, levels in ((4, 0), (12, 5)):
        zoomed("tnet-digits", str(glimpses), str(levels), str(path))
        rows.append(json.loads(capsys.readouterr().out))
    usual, deep = rows
    assert usual["tiles"] == 16
    assert deep["levels"] == 5
    assert deep["tiles"] > 16
    assert deep["pixels_read"] < 0.5 * deep["pixels"]


def test_wrong_choices(tmp_path: Path) -> None:
    for sides in ((), (3000,), (512,)):
        refused("sides", fovea.measure, "bench big", "tnet-digits", sides=sides)
