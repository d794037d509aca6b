"""Slides, georasters and plain files, each against a plain decode."""

import numpy as np
import openslide
import pytest
import rasterio
from PIL import Image
from rasterio.transform import from_origin

from fovea.basics import BadPicture
from fovea.pictures import Picture, gather, is_big, open_big
from fovea.pictures.big import opening

TILED = {"tiled": True, "blockxsize": 64, "blockysize": 64}
PLACED = {"crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 10, 20)}


def written(path, driver, values, **options):
    shape = {"width": values.shape[1], "height": values.shape[0], "count": values.shape[2], "dtype": values.dtype}
    with rasterio.open(path, "w", driver=driver, **shape, **PLACED, **options) as file:
        file.write(np.moveaxis(values, -1, 0))
    return path


@pytest.mark.parametrize(
    ("driver", "name", "bands", "bits", "options"),
    [
        ("COG", "a.tif", 3, 8, {"BLOCKSIZE": 128}),
        ("COG", "a.tif", 1, 16, {"BLOCKSIZE": 128, "COMPRESS": "ZSTD", "PREDICTOR": "YES"}),
        ("COG", "a.tif", 3, 8, {"BLOCKSIZE": 128, "COMPRESS": "LERC"}),
        ("GTiff", "a.tif", 3, 16, {**TILED, "interleave": "band"}),
        (
            "GTiff",
            "a.tif",
            2,
            8,
            {**TILED, "compress": "JPEG", "ALPHA": "YES"},
        ),
        ("GTiff", "a.tif", 4, 8, {**TILED, "compress": "JPEG"}),
        ("JP2OpenJPEG", "a.jp2", 3, 8, {"QUALITY": 100, "REVERSIBLE": "YES", "BLOCKXSIZE": 256, "BLOCKYSIZE": 256}),
        ("HFA", "a.img", 3, 8, {}),
    ],
)
def test_georasters(tmp_path, drawing, agree, driver, name, bands, bits, options):
    values = drawing(333, 501, bands, bits)
    path = written(tmp_path / name, driver, values, **options)
    if options.get("compress") == "JPEG":  # what that lost is lost for GDAL, too
        with rasterio.open(path) as file:
            values = np.moveaxis(file.read(), 0, -1)
    with open_big(path) as big:
        agree(big, values, 1, 8)
        assert (big.crs, big.transform) == ("EPSG:32633", (10.0, 0.0, 500_000.0, 0.0, -20.0, 5_000_000.0))
        assert (big.bands, big.bits) == (bands, bits)
        assert driver != "COG" or "LERC" in options.values() or len(big.levels) > 1


def test_levels_of_a_cog_reach_to_its_edges(tmp_path, drawing):
    """Sizes are rounded down, but nothing is left out."""
    values = drawing(911, 1237, 3)
    path = written(tmp_path / "a.tif", "COG", values, BLOCKSIZE=128, OVERVIEW_RESAMPLING="AVERAGE")
    box, size = (1237 - 256, 911 - 256, 1237, 911), (14, 14)
    expected = Image.fromarray(values).crop(box).resize(size, Image.Resampling.BILINEAR)
    with open_big(path) as big:
        assert big.levels[4] == (77, 56)
        assert np.abs(np.asarray(big.read(box, size)).astype(int) - np.asarray(expected)).mean() < 3


def test_a_turned_georaster_keeps_its_place(tmp_path, drawing, pyramid):
    scale, tie = (10.0, 20.0, 0.0), (0.0, 0.0, 0.0, 500.0, 900.0, 0.0)
    tags = [(33550, 12, 3, scale, True), (33922, 12, 6, tie, True), (274, 3, 1, 6, True)]
    with open_big(pyramid(tmp_path / "a.tif", drawing(250, 300, 3), 1, extratags=tags)) as big:
        a, b, c, d, e, f = big.transform
        assert big.size == (250, 300)
        # turned clockwise, what was stored last below on the left is now above on the left
        assert (c, f) == (500.0, 900.0 - 20 * 250)
        assert (a * 250 + b * 300 + c, d * 250 + e * 300 + f) == (500.0 + 10 * 300, 900.0)


def test_raster_files_may_not_lead_elsewhere(tmp_path, drawing):
    inside = written(tmp_path / "a.tif", "GTiff", drawing(100, 120, 3))
    path = tmp_path / "b.tif"
    path.write_text(
        f'<VRTDataset rasterXSize="120" rasterYSize="100"><VRTRasterBand dataType="Byte" band="1"><SimpleSource>'
        f"<SourceFilename>{inside}</SourceFilename></SimpleSource></VRTRasterBand></VRTDataset>"
    )
    assert not is_big(path)
    with pytest.raises(BadPicture, match="not a picture"):
        open_big(path)


@pytest.fixture
def slide(tmp_path, drawing):
    """A slide in Hamamatsu's format: a file of names, and the JPEG files that it names."""
    values = drawing(512, 640, 3)
    Image.fromarray(values).save(tmp_path / "a.jpg", quality=95, subsampling=0, restart_marker_blocks=8)
    Image.fromarray(values[::4, ::4]).save(tmp_path / "map.jpg", subsampling=0, restart_marker_blocks=4)
    lines = ["[Virtual Microscope Specimen]", "NoLayers=1", "NoJpegColumns=1", "NoJpegRows=1", "ImageFile=a.jpg",
             "MapFile=map.jpg", "SourceLens=20", "PhysicalWidth=100000", "PhysicalHeight=80000"]  # fmt: skip
    path = tmp_path / "a.vms"
    path.write_text("\n".join(lines))
    return path


def test_slides(slide, agree):
    with open_big(slide) as big, Image.open(slide.with_name("a.jpg")) as image:
        assert len(big.levels) > 1
        agree(big, image.convert("RGB"), 3, 24)
        assert big.counts.bytes > slide.with_name("a.jpg").stat().st_size / 2
        assert big.file_bytes == sum(slide.with_name(name).stat().st_size for name in ("a.vms", "a.jpg", "map.jpg"))
    assert is_big(slide)
    assert any(picture.name.endswith("a.vms") for picture in gather(slide.parent))
    slide.write_text("[Something else]")
    with pytest.raises(BadPicture, match="no slide"):
        open_big(slide)


def test_a_tiff_is_the_same_picture_to_openslide(tmp_path, drawing, pyramid):
    path = pyramid(tmp_path / "a.tif", drawing(433, 601, 3), compression="jpeg")
    with open_big(path) as big, openslide.OpenSlide(path) as other:
        assert other.level_dimensions == big.levels
        for level, size in enumerate(big.levels):
            ours = np.asarray(big.read((0, 0, *big.size), size)).astype(int)
            theirs = np.asarray(other.read_region((0, 0), level, size).convert("RGB"))
            assert np.abs(ours - theirs).max() <= 1


@pytest.mark.parametrize(
    ("name", "bands", "bits"), [("a.jpg", 3, 8), ("a.jpg", 1, 8), ("a.png", 4, 8), ("a.png", 1, 16)]
)
def test_plain_files(tmp_path, drawing, agree, monkeypatch, name, bands, bits):
    monkeypatch.setattr("fovea.pictures.big.plain.STRIP", 601 * 50)  # nine strips
    values = drawing(433, 601, bands, bits)
    path, exif = tmp_path / name, Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(values.squeeze()).save(path, **({"exif": exif, "quality": 98} if name == "a.jpg" else {}))
    assert not is_big(path)
    assert is_big(path, max_pixels=200_000)
    with Picture("a", path).big(200_000) as big:
        decoded = Picture("a", path).read()
        agree(big, decoded, 1, 8)
        assert (big.bands, big.bits) == (bands, bits)
        before = big.counts
        big.read((0, 0, 10, 10), (10, 10))
        assert big.counts.tiles == before.tiles  # all of the strips are kept
    with open_big(path, cache=0) as big:
        right = big.size[0]
        big.read((right - 5, 0, right, 5) if name == "a.jpg" else (0, 428, 5, 433), (5, 5))
        assert big.counts.tiles == 1
        assert big.counts.pixels >= (0 if name == "a.jpg" else 601 * 400)  # those above were decoded, too


@pytest.mark.parametrize(("name", "bands", "bits"), [("a.jpg", 3, 8), ("a.png", 4, 8), ("a.png", 1, 16)])
def test_coarse_windows_of_plain_files_take_one_way_through_the_file(
    tmp_path, drawing, agree, monkeypatch, name, bands, bits
):
    monkeypatch.setattr("fovea.pictures.big.plain.REDUCED", (1, 2))
    monkeypatch.setattr("fovea.pictures.big.plain.KEPT", 433 * 601 / 20)  # a fifth of a side, so a copy of an eighth
    path = tmp_path / name
    Image.fromarray(drawing(433, 601, bands, bits).squeeze()).save(path, **({"quality": 98} if name == "a.jpg" else {}))
    with open_big(path, cache=0) as big:
        assert big.levels[-1] == (75, 54)
        agree(big, Picture("a", path).read(), 1, 8)
    with open_big(path, cache=0) as big:
        big.read((0, 0, 601, 433), (60, 43))
        once = big.counts
        assert once.bytes < 1.5 * path.stat().st_size  # and its header again
        for left in (0, 300, 100):
            big.read((left, 20, left + 300, 420), (30, 40))
        assert big.counts.bytes == once.bytes
        assert big.counts.pixels - once.pixels <= 3 * 75 * 54  # of the copy


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [("a.jpg", {"progressive": True}, "progressive"), ("a.bmp", {}, "BMP"), ("a.webp", {}, "WEBP")],
)
def test_plain_files_that_must_be_decoded_whole(tmp_path, drawing, name, options, words):
    Image.fromarray(drawing(400, 500, 3)).save(tmp_path / name, **options)
    assert Picture("a", tmp_path / name).big() is None
    with pytest.raises(BadPicture, match=f"{words}.*fovea pyramid {name}"):
        Picture("a", tmp_path / name).big(100_000)


@pytest.mark.parametrize("data", [b"", b"II*\0", b"not a picture at all", b"II*\0\x08\0\0\0" + bytes(30)])
def test_files_that_are_none(tmp_path, data):
    path = tmp_path / "a.tif"
    path.write_bytes(data)
    assert not is_big(path)
    with pytest.raises(BadPicture, match=r"a\.tif"):
        open_big(path)
    assert Picture("a", path).big() is None


def test_without_the_packages(tmp_path, drawing, pyramid, monkeypatch):
    path = pyramid(tmp_path / "a.tif", drawing(433, 601, 3))
    monkeypatch.setattr(opening, "missing", lambda: True)
    assert Picture("a", path).big() is None
    assert Picture("a", path).read().size == (601, 433)
    with pytest.raises(BadPicture, match=r"pip install 'fovea\[big\]'"):
        Picture("a", path).big(1000)
