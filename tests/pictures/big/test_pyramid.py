"""Any picture as a tiled pyramid: the same pixels, upright, whole or not at all, in a memory of a few rows."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

import fovea
from fovea.basics import BadChoice, BadPicture, FoveaError
from fovea.pictures import read

SHADES = np.random.default_rng(0).integers(0, 256, (13, 17, 3), dtype=np.uint8).repeat(24, 0).repeat(24, 1)  # 312 x 408
SIXTEEN = (SHADES[..., 0].astype(np.uint16) << 8) + 77


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def turned(image: Image.Image, way: int) -> Any:
    exif = image.getexif()
    exif[0x0112] = way
    return exif


COLOR = Image.fromarray(SHADES)
MADE = {  # a file, how it becomes a pyramid, how far values may be off on the average, and the compression
    "photograph.jpg": (COLOR, {"quality": 95}, {}, 3, "JPEG"),
    "turned.jpg": (COLOR, {"quality": 95, "exif": turned(COLOR, 6)}, {}, 3, "JPEG"),
    "plain.png": (COLOR, {}, {"lossless": True}, 0, "ADOBE_DEFLATE"),
    "gray.png": (COLOR.convert("L"), {}, {"layout": "subifds"}, 3, "JPEG"),
    "palette.png": (COLOR.quantize(16), {}, {}, 0, "ADOBE_DEFLATE"),
    "transparent.png": (COLOR.convert("RGBA"), {}, {"tile": 64}, 3, "JPEG"),
    "sixteen[1].png": (Image.fromarray(SIXTEEN), {}, {}, 0, "ADOBE_DEFLATE"),  # brackets are options to libvips
    "strips.tif": (COLOR, {"compression": "tiff_lzw"}, {"lossless": True}, 0, "ADOBE_DEFLATE"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_pyramid_has_the_pictures_pixels(name: str, tmp_path: Path) -> None:
    image, saving, how, off, compression = MADE[name]
    source = saved(tmp_path / name, image, **saving)
    told: list[int] = []
    to = fovea.pyramid(source, tmp_path / "new" / "out.tif", progress=lambda done, total: told.append(done), **how)
    with tifffile.TiffFile(to) as file:
        levels = [level.pages[0] for level in file.series[0].levels]
        assert [page.compression.name for page in levels] == [compression] * len(levels)
        assert {page.tile for page in levels} == {(how.get("tile", 256),) * 2}
        assert max(levels[-1].shape[:2]) <= how.get("tile", 256)
        assert bool(file.pages[0].subifds) == (how.get("layout") == "subifds")
        stored = levels[0].asarray()
        halved = levels[1].asarray()
    expected = np.asarray(read(source))
    if image.mode == "I;16":
        assert stored.dtype == np.uint16
        assert (stored == SIXTEEN).all()
    else:
        shown = stored if stored.ndim == 3 else stored[..., None].repeat(3, 2)
        assert shown.shape == expected.shape
        assert np.abs(shown.astype(int) - expected).mean() <= off
    assert halved.shape[:2] == (stored.shape[0] // 2, stored.shape[1] // 2)
    assert told == sorted(told)


@pytest.mark.parametrize("name", ["a.jpg", "a.webp"])
def test_a_picture_that_has_changed_is_read_anew(name: str, tmp_path: Path) -> None:
    """libvips keeps what it decoded before, which had killed the process the second time."""
    turned = Image.Exif()
    turned[274] = 6
    for shade in (40, 200, 200):
        Image.new("L", (130, 90), shade).convert("RGB").save(tmp_path / name, exif=turned)
        fovea.pyramid(tmp_path / name, tmp_path / "b.tif", tile=64, fresh=True)
        assert read(tmp_path / "b.tif").size == (90, 130)
        assert abs(np.asarray(read(tmp_path / "b.tif")).mean() - shade) < 2


def test_coordinates_are_kept(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(0.5, 0, 5e5, 0, -0.5, 5.6e6), "nodata": 0}
    shape = {"width": 408, "height": 312, "count": 3, "dtype": "uint8", "photometric": "RGB"}
    with rasterio.open(tmp_path / "geo.tif", "w", driver="GTiff", **shape, **place) as file:
        file.write(SHADES.transpose(2, 0, 1))
    to = fovea.pyramid(tmp_path / "geo.tif", tmp_path / "out.tif", lossless=True)
    with rasterio.open(to) as file:
        assert {key: getattr(file, key) for key in place} == place | {"crs": rasterio.CRS.from_epsg(32633)}
        assert file.overviews(1) == [2]
        assert (file.read() == SHADES.transpose(2, 0, 1)).all()


def test_a_fifth_band_is_no_transparency(tmp_path: Path) -> None:
    values = np.arange(5, dtype=np.uint8) + np.zeros((512, 512, 1), np.uint8)
    tifffile.imwrite(tmp_path / "five.tif", values, photometric="minisblack", planarconfig="contig")
    to = fovea.pyramid(tmp_path / "five.tif", tmp_path / "out.tif")
    assert (tifffile.imread(to, series=None, key=0) == values).all()


def test_what_cannot_be_a_pyramid_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.png", COLOR.resize((700, 700)))
    short, other = tmp_path / "short.png", tmp_path / "note.tif"
    short.write_bytes(source.read_bytes()[:5000])
    other.write_text("mine")
    before = sorted(tmp_path.iterdir())
    for given, to, how, error, words in (
        (short, "out.tif", {}, BadPicture, "damaged or cut short"),
        (tmp_path / "none.png", "out.tif", {}, BadPicture, "does not exist"),
        (other, "out.tif", {}, BadPicture, "not a picture"),
        (source, "note.tif", {}, BadChoice, "there already"),
        (source, "out.png", {}, BadChoice, "a pyramid is a TIFF"),
        (source, "out.tif", {"tile": 100}, BadChoice, "multiple of 16"),
        (source, "out.tif", {"quality": 101}, BadChoice, "quality"),
        (source, "out.tif", {"layout": "files"}, BadChoice, "pages or subifds"),
    ):
        with pytest.raises(error, match=words):
            fovea.pyramid(given, tmp_path / to, **how)
    linked = tmp_path / "same.tif"
    linked.symlink_to(source)
    with pytest.raises(BadChoice, match="the picture itself"):
        fovea.pyramid(source, linked, fresh=True)
    linked.unlink()
    assert sorted(tmp_path.iterdir()) == before
    assert other.read_text() == "mine"
    assert fovea.pyramid(source, other, fresh=True).stat().st_size > 100


def test_a_pyramid_that_is_stopped_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "a.png", COLOR.resize((3000, 3000)))
    monkeypatch.setattr("fovea.pictures.big.pyramid.EVERY", 0.0)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fovea.pyramid(source, tmp_path / "out.tif", lossless=True, progress=stop)
    assert list(tmp_path.iterdir()) == [source]


SMALL_DISK = """
import resource, sys, fovea
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    fovea.pyramid(sys.argv[1], sys.argv[2], lossless=True)
except fovea.FoveaError as error:
    print(type(error).__name__, error)
"""
PEAK = """
import resource, sys, fovea
fovea.pyramid(sys.argv[1], sys.argv[3])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fovea.pyramid(sys.argv[2], sys.argv[4])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def ran(program: str, *words: Path) -> str:
    return subprocess.run([sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True).stdout


def test_a_full_disk_is_not_the_pictures_fault(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.png", Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 400), np.uint8)))
    assert ran(SMALL_DISK, source, tmp_path / "out.tif").startswith(f"{FoveaError.__name__} {tmp_path}/out.tif cannot")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told in other units")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Of a picture that takes 96 MB decoded, beside one of 4 MB that is as wide."""
    rows = COLOR.resize((2000, 700), Image.Resampling.NEAREST)
    small = saved(tmp_path / "small.png", rows, compress_level=1)
    large = Image.new("RGB", (2000, 16_000))
    for top in range(0, 16_000, 700):
        large.paste(rows, (0, top))
    tall = saved(tmp_path / "tall.png", large, compress_level=1)
    assert int(ran(PEAK, small, tall, tmp_path / "small.tif", tmp_path / "tall.tif")) < 40_000  # KB
