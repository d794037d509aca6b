"""What is read of a file and how often, counted as the system counts it."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fovea.basics import BadChoice, BadPicture, GivenUp, Listener, listening
from fovea.pictures import Counts, Picture, open_big
from fovea.pictures.big.picture import BigPicture
from fovea.pictures.big.source import Level

ACCOUNTS = Path("/proc/self/io")


def read_by_process():
    return int(ACCOUNTS.read_bytes().split()[1])


@pytest.mark.skipif(not ACCOUNTS.exists(), reason="the system does not count")
@pytest.mark.parametrize(
    "options", [{}, {"compression": "jpeg"}, {"tile": None, "rowsperstrip": 100}, {"compression": "deflate"}]
)
def test_bytes_are_those_that_the_process_read(tmp_path, pyramid, options):
    noise = np.random.default_rng(0).integers(0, 256, (900, 1100, 3), np.uint8)
    path = pyramid(tmp_path / "a.tif", noise, **{"tile": (256, 256), **options})
    open_big(path).read((0, 0, 10, 10), (10, 10))  # whatever is imported
    own = -read_by_process() + read_by_process()  # what looking at the accounts takes
    before = read_by_process()
    with open_big(path) as big:
        for box in [(0, 0, 1100, 900), (300, 300, 700, 700), (876, 676, 1100, 900), (310, 310, 700, 700)]:
            big.read(box, (224, 224))
        assert big.counts.bytes == pytest.approx(read_by_process() - before - own, rel=0.05)
        assert big.counts.bytes > 224 * 224


def test_only_tiles_that_are_touched_and_each_once(tmp_path, drawing, pyramid):
    with open_big(pyramid(tmp_path / "a.tif", drawing(512, 512, 3), compression="deflate")) as big:
        start = big.counts
        big.read((64, 64, 192, 192), (128, 128))
        first = big.counts
        assert (first.tiles, first.pixels) == (4, 4 * 64 * 64)
        big.read((70, 70, 200, 180), (130, 110))
        assert big.counts.since(first) == Counts(2 * 64 * 64, 2, big.counts.bytes - first.bytes)
        second = big.counts
        big.read((70, 70, 200, 180), (130, 110))
        assert big.counts.since(second) == Counts(0, 0, 0)
        big.read((0, 0, 512, 512), (128, 128))  # a level that is four times smaller
        assert big.counts.since(second).tiles == 4
        assert big.counts.since(start).bytes == big.counts.bytes - start.bytes


def test_the_cache_has_a_limit(tmp_path, drawing, pyramid):
    path = pyramid(tmp_path / "a.tif", drawing(512, 512, 3), 1)
    with open_big(path, cache=4 * 64 * 64 * 3) as big:
        for _ in range(2):
            big.read((0, 0, 512, 512), (512, 512))
        assert big.counts.tiles == 128  # each twice: four are kept at a time
        big.read((448, 448, 512, 512), (64, 64))
        assert big.counts.tiles == 128


def test_several_threads(tmp_path, drawing, pyramid):
    values = drawing(512, 512, 3)
    path = pyramid(tmp_path / "a.tif", values, compression="lzw")
    start = threading.Barrier(4)

    def window(number):
        if number < 4:
            start.wait(10)
        x, y = number * 37 % 400, number * 61 % 400
        return (np.asarray(big.read((x, y, x + 100, y + 100), (100, 100))) == values[y : y + 100, x : x + 100]).all()

    with open_big(path) as big, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(window, range(60)))
        assert big.counts.tiles <= 64


def test_a_file_that_changes_is_refused(tmp_path, drawing, pyramid):
    path = pyramid(tmp_path / "a.tif", drawing(512, 512, 3))
    picture = Picture("a", path)
    with picture.big() as big:
        big.read((0, 0, 64, 64), (64, 64))
    with picture.big() as big:
        os.utime(path, (1, 1))
        with pytest.raises(BadPicture, match="changed"):
            big.read((100, 100, 164, 164), (64, 64))
        os.utime(path, ns=(picture.stamps[0][3],) * 2)
    os.utime(path, (1, 1))
    with pytest.raises(BadPicture, match="changed"), picture.big():
        pass


@pytest.mark.parametrize("box", [(-1, 0, 10, 10), (0, 0, 513, 10), (5, 5, 5, 10), (0, 0, float("nan"), 5)])
def test_windows_outside_are_refused(tmp_path, drawing, pyramid, box):
    with open_big(pyramid(tmp_path / "a.tif", drawing(512, 512, 3), 1)) as big:
        with pytest.raises(BadChoice, match="512 x 512"):
            big.read(box, (10, 10))
        with pytest.raises(BadChoice, match="1 x 1"):
            big.read((0, 0, 10, 10), (0, 5))


class Endless:
    """A source of any size that is made when asked for."""

    bands, bits, orientation, bytes, passed, file_bytes = 3, 8, 1, 0, 0, 0

    def __init__(self, width, height=None):
        self.levels = (Level(width, height or width, 512, 512),)

    def tile(self, level, column, row):
        y, x = np.mgrid[row * 512 : row * 512 + 512, column * 512 : column * 512 + 512]
        return np.stack([x // 8, y // 8, (x + y) // 16], -1).astype(np.uint8)


@pytest.mark.parametrize("resample", [Image.Resampling.BOX, Image.Resampling.BICUBIC])
def test_reading_in_bands_is_reading_at_once(monkeypatch, resample):
    big = BigPicture("endless", Endless(1536), 1 << 20)
    once = np.asarray(big.read((11, 300, 1511, 1301), (171, 200), resample)).astype(int)
    monkeypatch.setattr("fovea.pictures.big.picture.BAND", 171 * 200)
    assert np.abs(once - np.asarray(big.read((11, 300, 1511, 1301), (171, 200), resample))).max() <= 1
    y, x = np.mgrid[300:1301, 11:1511]
    whole = Image.fromarray(np.stack([x // 8, y // 8, (x + y) // 16], -1).astype(np.uint8))
    assert (once == np.asarray(whole.resize((171, 200), resample))).all()


def test_a_long_row_of_tiles_is_read_some_lines_at_a_time(monkeypatch):
    big = BigPicture("endless", Endless(1536), 1 << 24)
    assert big.band == 1536 * 512
    once = np.asarray(big.read((11, 300, 1511, 1301), (171, 200)))
    monkeypatch.setattr("fovea.pictures.big.picture.WIDE", 1500 * 60)
    assert big.band == 1500 * 60
    tallest = max(len(band) for _, band in big._bands(0, (11, 1511), (300, 1301)))
    assert tallest == 60
    assert (once == np.asarray(big.read((11, 300, 1511, 1301), (171, 200)))).all()


def test_a_side_that_could_not_be_shrunk_in_memory_is_refused():
    with pytest.raises(BadPicture, match="33,554,432 x 10 pixels: a side has 16,777,216 at most"):
        BigPicture("long.tif", Endless(1 << 25, 10), 1 << 20)


def test_whoever_listens_may_end_it():
    big = BigPicture("endless", Endless(1536), 1 << 20)

    def end():
        raise GivenUp("enough")

    with pytest.raises(GivenUp), listening(Listener(check=end)):
        big.read((0, 0, 1536, 1536), (10, 10))
    assert big.read((0, 0, 1536, 1536), (10, 10)).size == (10, 10)
