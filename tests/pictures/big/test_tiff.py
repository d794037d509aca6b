"""Windows of TIFF files against a plain decode of the same file."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from fovea.pictures import open_big

BOXES = (0, 0, 601, 433), (0, 0, 128, 128), (473, 305, 601, 433), (101, 57, 330, 290), (600, 432, 601, 433)


def drawing(height, width, bands, bits, seed=0):
    """Smooth in every band, so that levels made in different ways agree."""
    y, x = np.mgrid[:height, :width]
    rng = np.random.default_rng(seed)
    waves = [
        0.5 + 0.4 * np.sin(x / rng.uniform(20, 60) + band) * np.cos(y / rng.uniform(20, 60)) for band in range(bands)
    ]
    values = np.stack(waves, -1) * (2**bits - 1)
    return values.astype(np.uint8 if bits == 8 else np.uint16)


def halved(values):
    high, wide = values.shape[0] // 2 * 2, values.shape[1] // 2 * 2
    even = values[:high, :wide].astype(np.float64)
    return np.rint((even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4).astype(values.dtype)


def pyramid(path, values, levels=3, sub=False, **options):
    options = {"tile": (64, 64), "photometric": "rgb" if values.shape[2] >= 3 else "minisblack", **options}
    with tifffile.TiffWriter(path, bigtiff=options.pop("bigtiff", False)) as file:
        file.write(values.squeeze(), subifds=levels - 1 if sub else 0, metadata=None, **options)
        for _ in range(levels - 1):
            values = halved(values)
            file.write(values.squeeze(), subfiletype=1, metadata=None, **options)
    return path


def plain(values):
    eight = np.rint(values / 257).astype(np.uint8) if values.dtype == np.uint16 else values
    if eight.shape[2] in (2, 4):
        image = Image.fromarray(eight, "LA" if eight.shape[2] == 2 else "RGBA").convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return Image.fromarray(eight.squeeze()).convert("RGB")


def difference(one, two):
    return np.abs(np.asarray(one).astype(int) - np.asarray(two)).max()


@pytest.mark.parametrize("sub", [False, True])
@pytest.mark.parametrize(("bands", "bits"), [(1, 8), (3, 8), (4, 8), (1, 16), (3, 16), (4, 16)])
def test_windows_equal_a_plain_decode(tmp_path, bands, bits, sub):
    values = drawing(433, 601, bands, bits)
    whole = plain(values)
    with open_big(pyramid(tmp_path / "a.tif", values, sub=sub)) as big:
        assert big.size == (601, 433)
        assert big.levels == ((601, 433), (300, 216), (150, 108))
        assert (big.bands, big.bits) == (bands, bits)
        for box in [
            (0, 0, 601, 433),
            (0, 0, 128, 128),
            (473, 305, 601, 433),
            (101, 57, 330, 290),
            (600, 432, 601, 433),
        ]:
            width, height = box[2] - box[0], box[3] - box[1]
            for shrink in (1, 1.7, 2, 3, 4, 7):
                size = max(round(width / shrink), 1), max(round(height / shrink), 1)
                expected = whole.crop(box).resize(size, Image.Resampling.BILINEAR)
                assert difference(big.read(box, size), expected) <= (1 if shrink < 2 else 6), (box, size)
