"""Drawings, the files that hold them, and what a plain decode makes of them."""

import numpy as np
import pytest
import tifffile
from PIL import Image


def _drawing(height, width, bands, bits=8):
    """Smooth in every band, so that levels made in different ways agree."""
    y, x = np.mgrid[:height, :width]
    rng = np.random.default_rng(0)
    waves = [np.sin(x / rng.uniform(20, 60) + band) * np.cos(y / rng.uniform(20, 60)) for band in range(bands)]
    values = (0.5 + 0.4 * np.stack(waves, -1)) * (2**bits - 1)
    return values.astype(np.uint8 if bits == 8 else np.uint16)


def _halved(values):
    high, wide = values.shape[0] // 2 * 2, values.shape[1] // 2 * 2
    even = values[:high, :wide].astype(np.float64)
    return np.rint((even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4).astype(values.dtype)


def _pyramid(path, values, levels=3, sub=False, bigtiff=False, byteorder=None, **options):
    options = {"tile": (64, 64), "photometric": "rgb" if values.shape[2] >= 3 else "minisblack", **options}
    with tifffile.TiffWriter(path, bigtiff=bigtiff, byteorder=byteorder) as file:
        for level in range(levels):
            stored = np.moveaxis(values, -1, 0) if options.get("planarconfig") == "separate" else values.squeeze()
            if level == 0:
                file.write(stored, subifds=levels - 1 if sub else 0, metadata=None, **options)
            else:
                file.write(stored, subfiletype=1, metadata=None, **options)
            values = _halved(values)
    return path


def _plain(values):
    eight = np.rint(values / 257).astype(np.uint8) if values.dtype == np.uint16 else values
    if eight.shape[2] in (2, 4):
        image = Image.fromarray(eight).convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return Image.fromarray(eight.squeeze()).convert("RGB")


@pytest.fixture
def drawing():
    return _drawing


@pytest.fixture
def pyramid():
    return _pyramid


@pytest.fixture
def agree():
    """Windows of a big picture are those of the plain one, up to `slack` of 255; what was compared is not nothing."""

    def compare(big, plain, slack, slack_in_levels=None):
        plain = _plain(plain) if isinstance(plain, np.ndarray) else plain
        width, height = plain.size
        assert big.size == plain.size
        boxes = [(0, 0, width, height), (0, 0, 128, 128), (width - 128, height - 128, width, height),
                 (101, 57, 230, 191), (60, 60, 133, 135), (width - 1, height - 1, width, height)]  # fmt: skip
        for box in boxes:
            wide, high = box[2] - box[0], box[3] - box[1]
            for shrink in (1, 1.7, 2, 3, 4, 7):
                size = max(round(wide / shrink), 1), max(round(high / shrink), 1)
                expected = plain.crop(box).resize(size, Image.Resampling.BILINEAR)
                difference = np.abs(np.asarray(big.read(box, size)).astype(int) - np.asarray(expected)).max()
                most = slack if shrink < 2 or slack_in_levels is None else slack_in_levels
                assert difference <= most, (box, size, difference)

    return compare
