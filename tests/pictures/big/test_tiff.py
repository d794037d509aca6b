"""Windows of TIFF files against a plain decode of the same pixels, and files that lie."""

import struct
from contextlib import suppress

import numpy as np
import pytest
import tifffile
from PIL import Image

from fovea.basics import BadPicture
from fovea.pictures import open_big
from fovea.pictures.big.directories import directories
from fovea.pictures.big.source import counted


@pytest.mark.parametrize("sub", [False, True])
@pytest.mark.parametrize(("bands", "bits"), [(1, 8), (2, 8), (3, 8), (4, 8), (1, 16), (3, 16), (4, 16)])
def test_windows_equal_a_plain_decode(tmp_path, drawing, pyramid, agree, bands, bits, sub):
    values = drawing(433, 601, bands, bits)
    extra = {"extrasamples": ["unassalpha"]} if bands == 2 else {}
    if bands == 2:
        extra["planarconfig"] = "contig"
    with open_big(pyramid(tmp_path / "a.tif", values, sub=sub, **extra)) as big:
        assert big.levels == ((601, 433), (300, 216), (150, 108))
        assert (big.bands, big.bits) == (bands, bits)
        agree(big, values, 1, 6)


@pytest.mark.parametrize(
    ("options", "slack"),
    [
        ({"compression": "jpeg"}, 2),
        ({"compression": "jpeg", "photometric": "ycbcr", "subsampling": (2, 2)}, 2),
        ({"compression": "jpeg", "subsampling": (1, 1)}, 2),
        ({"compression": "lzw", "predictor": True}, 1),
        ({"compression": "deflate", "predictor": True}, 1),
        ({"compression": "zstd"}, 1),
        ({"compression": "packbits"}, 1),
        ({"compression": "lzma"}, 1),
        ({"compression": "webp", "compressionargs": {"level": 101}}, 1),
        ({"compression": "jpeg2000"}, 1),
        ({"planarconfig": "separate"}, 1),
        ({"planarconfig": "separate", "compression": "deflate", "predictor": True}, 1),
        ({"tile": None, "rowsperstrip": 37}, 1),
        ({"tile": None, "rowsperstrip": 37, "compression": "lzw"}, 1),
        ({"tile": None, "rowsperstrip": 433}, 1),
        ({"tile": None, "rowsperstrip": 37, "planarconfig": "separate"}, 1),
        ({"tile": (16, 256), "bigtiff": True}, 1),
        ({"byteorder": ">", "compression": "deflate", "predictor": True}, 1),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_ways_of_storing(tmp_path, drawing, pyramid, agree, options, slack):
    values = drawing(433, 601, 3)
    path = pyramid(tmp_path / "a.tif", values, **options)
    with open_big(path) as big:
        assert len(big.levels) == 3
        if slack > 1:  # what the compression lost is lost for Pillow, too
            with Image.open(path) as image:
                values = np.array(image.convert("RGB"))
        agree(big, values, slack, 70 if slack > 1 else 7)  # each level lost its own


def test_levels_of_a_picture_some_pixels_wide(tmp_path, drawing, pyramid):
    with open_big(pyramid(tmp_path / "a.tif", drawing(6007, 17, 3), levels=4)) as big:
        assert big.levels == ((17, 6007), (8, 3003), (4, 1501), (2, 750))


@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bits_with_a_predictor_in_either_order(tmp_path, drawing, pyramid, agree, order):
    values = drawing(200, 300, 3, 16)
    path = pyramid(tmp_path / "a.tif", values, 1, byteorder=order, compression="lzw", predictor=True)
    with open_big(path) as big:
        agree(big, values, 1)


def test_white_is_zero_and_alpha_that_is_none(tmp_path, drawing, pyramid, agree):
    values = drawing(200, 300, 1)
    with open_big(pyramid(tmp_path / "a.tif", values, 1, photometric="miniswhite")) as big:
        agree(big, 255 - values, 1)
    values = drawing(200, 300, 4)
    with open_big(pyramid(tmp_path / "b.tif", values, 1, extrasamples=["unspecified"])) as big:
        agree(big, values[..., :3], 1)


@pytest.mark.parametrize("bits", [8, 16])
def test_inks(tmp_path, drawing, pyramid, agree, bits):
    values = drawing(200, 300, 4, bits)
    inks = np.rint(values / 257).astype(np.uint8) if bits == 16 else values
    with open_big(pyramid(tmp_path / "a.tif", values, 1, photometric="separated")) as big:
        agree(big, Image.frombytes("CMYK", (300, 200), inks.tobytes()).convert("RGB"), 1)


def test_alpha_that_colors_are_multiplied_by(tmp_path, drawing, pyramid, agree):
    values = drawing(200, 300, 4)
    dimmed = values.copy()
    dimmed[..., :3] = np.rint(values[..., :3] * (values[..., 3:] / 255))
    with open_big(pyramid(tmp_path / "a.tif", dimmed, 1, extrasamples=["assocalpha"])) as big:
        agree(big, values, 2)


def _edited(path, code, kind, count, value):
    """Writes another entry for a tag into the first directory of a little-endian classic TIFF."""
    data = bytearray(path.read_bytes())
    start = struct.unpack_from("<I", data, 4)[0]
    for place in range(start + 2, start + 2 + 12 * struct.unpack_from("<H", data, start)[0], 12):
        if struct.unpack_from("<H", data, place)[0] == code:
            struct.pack_into("<HHII", data, place, code, kind, count, value)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright(tmp_path, drawing, pyramid, agree, orientation):
    values = drawing(250, 300, 3)
    path = pyramid(tmp_path / "a.tif", values, 2, extratags=[(274, 3, 1, orientation, True)])
    turned = {1: values, 2: values[:, ::-1], 3: values[::-1, ::-1], 4: values[::-1], 5: values.swapaxes(0, 1),
              6: np.rot90(values, -1), 7: values[::-1, ::-1].swapaxes(0, 1), 8: np.rot90(values)}  # fmt: skip
    with open_big(path) as big:
        agree(big, np.ascontiguousarray(turned[orientation]), 1, 6)


def test_tiles_that_were_never_written(tmp_path, drawing, pyramid):
    values = drawing(256, 256, 3)
    path = pyramid(tmp_path / "a.tif", values, 1)
    with tifffile.TiffFile(path) as file:
        place = file.pages[0].tags["TileByteCounts"].valueoffset
    data = bytearray(path.read_bytes())
    data[place : place + 2] = b"\0\0"
    path.write_bytes(data)
    with open_big(path) as big:
        assert np.asarray(big.read((0, 0, 64, 64), (64, 64))).max() == 0
        assert (np.asarray(big.read((64, 0, 128, 64), (64, 64))) == values[:64, 64:128]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda values: {"photometric": "palette", "colormap": np.zeros((3, 256), np.uint16)},
            "palette.*pyramid",
        ),
        (
            lambda values: {"values": values.repeat(5, 2), "photometric": "minisblack", "planarconfig": "contig"},
            "5 bands.*gdal_translate -b",
        ),
        (lambda values: {"values": values.astype(np.float32)}, "32 bits.*gdal_translate -ot"),
        (lambda values: {"values": values.astype(np.int16)}, "16 bits.*gdal_translate -ot"),
    ],
)
def test_what_is_no_picture_of_colors_is_refused_with_advice(tmp_path, drawing, pyramid, change, words):
    options = change(drawing(200, 300, 1))
    path = pyramid(tmp_path / "a.tif", options.pop("values", drawing(200, 300, 1)), 1, **options)
    with pytest.raises(BadPicture, match=words):
        open_big(path)


def test_channels_that_are_pages_are_refused(tmp_path, drawing):
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(
        path,
        np.stack([drawing(200, 300, 1, 16)[..., 0]] * 3),
        ome=True,
        tile=(64, 64),
        metadata={"axes": "CYX"},
        photometric="minisblack",
    )
    with pytest.raises(BadPicture, match="3 channels"):
        open_big(path)


def test_a_slide_in_tiff_has_pages_that_are_no_levels(tmp_path, drawing, agree):
    """As Aperio writes them: a thumbnail without tiles, levels not called so, a label called a smaller copy."""
    values, path = drawing(400, 600, 3), tmp_path / "a.svs"
    with tifffile.TiffWriter(path) as file:
        file.write(values, tile=(64, 64), photometric="rgb", description="Aperio Image Library v12", metadata=None)
        file.write(values[::8, ::8], rowsperstrip=16, photometric="rgb", metadata=None)
        file.write(values[::4, ::4], tile=(64, 64), photometric="rgb", metadata=None)
        file.write(drawing(90, 80, 3), subfiletype=1, rowsperstrip=90, photometric="rgb", metadata=None)
        file.write(drawing(90, 200, 3), subfiletype=9, rowsperstrip=90, photometric="rgb", metadata=None)
    with open_big(path) as big:
        assert big.levels == ((600, 400), (150, 100))
        agree(big, values, 1, 20)


def test_a_file_cut_short_anywhere_is_reported(tmp_path, drawing, pyramid):
    whole = pyramid(tmp_path / "a.tif", drawing(200, 300, 3), 2, compression="jpeg").read_bytes()
    path = tmp_path / "b.tif"
    for length in [*range(1, 400, 13), *range(400, len(whole) - 1, len(whole) // 40)]:
        path.write_bytes(whole[:length])
        with pytest.raises(BadPicture):
            _read_all(path)


def _read_all(path):
    with open_big(path) as big:
        for level in big.levels:
            big.read((0, 0, *big.size), level)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_read_or_reported(tmp_path, drawing, pyramid, seed):
    """Any byte of the directories, and some of the tiles, may be anything."""
    options = [{}, {"compression": "jpeg"}, {"compression": "deflate", "predictor": True}, {"compression": "webp"}][
        seed
    ]
    whole = pyramid(tmp_path / "a.tif", drawing(90, 120, 3), 2, **options).read_bytes()
    rng, path = np.random.default_rng(seed), tmp_path / "b.tif"
    for _ in range(80):
        data = bytearray(whole)
        for place in rng.integers(0, min(len(data), 900), rng.integers(1, 4)):
            data[place] = rng.choice([0, 1, 127, 255, rng.integers(256)])
        path.write_bytes(data)
        with suppress(BadPicture), open_big(path) as big:
            width, height = big.size
            assert big.read((0, 0, min(width, 64), min(height, 64)), (8, 8)).size == (8, 8)


def test_directories_that_lead_in_circles_and_outside(tmp_path, drawing, pyramid):
    path = pyramid(tmp_path / "a.tif", drawing(200, 300, 3), 1)
    data = bytearray(path.read_bytes())
    start = struct.unpack_from("<I", data, 4)[0]
    following = start + 2 + 12 * struct.unpack_from("<H", data, start)[0]
    data[following : following + 4] = struct.pack("<I", start)
    path.write_bytes(data)
    with open_big(path) as big:
        assert len(big.levels) == 1
    data[following : following + 4] = struct.pack("<I", 1 << 31)
    path.write_bytes(data)
    with pytest.raises(BadPicture, match="cut short"):
        open_big(path)


def test_directories_without_end_are_left(tmp_path):
    path, data = tmp_path / "a.tif", b"II*\0" + struct.pack("<I", 8)
    for number in range(1, 1101):  # one tag each, and the next directory
        data += struct.pack("<HHHIII", 1, 256, 3, 1, 300, 8 + 18 * number)
    path.write_bytes(data)
    with counted(path) as file:
        assert len(list(directories(file))) == 1024


@pytest.mark.parametrize(
    ("code", "value", "words"),
    [(322, 1 << 30, "tiles of"), (256, 1 << 30, "places for"), (322, 0, "tiles of 0"), (277, 0, "0 bands")],
)
def test_sizes_that_lie_take_no_memory(tmp_path, drawing, pyramid, code, value, words):
    path = _edited(pyramid(tmp_path / "a.tif", drawing(200, 300, 3), 1), code, 4, 1, value)
    with pytest.raises(BadPicture, match=words):
        open_big(path)


def test_a_tile_that_is_a_larger_picture_is_not_decoded(tmp_path, drawing, pyramid):
    path = pyramid(tmp_path / "a.tif", drawing(128, 128, 3), 1, compression="jpeg")
    data = path.read_bytes()
    place = data.index(b"\xff\xc0") + 5
    path.write_bytes(data[:place] + struct.pack(">HH", 9000, 9000) + data[place + 4 :])
    with open_big(path) as big, pytest.raises(BadPicture, match="9000 x 9000"):
        big.read((0, 0, 64, 64), (64, 64))
