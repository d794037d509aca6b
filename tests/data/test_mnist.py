import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from checks import refused
from fovea.data import open_data, read_idx
from made_data import Made


def test_idx_by_hand(tmp_path: Path) -> None:
    data = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    for name, content in (("plain", data), ("zipped.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        assert read_idx(tmp_path / name).tolist() == [[1, 2, 3], [4, 5, 6]]
    for broken in (data[:-1], gzip.compress(data)[:-9], b"", b"PNG!" + data):
        (tmp_path / "plain").write_bytes(broken)
        refused("plain is damaged or cut short", read_idx, tmp_path / "plain")


def test_pixels_and_labels(made: Made) -> None:
    root = made("mnist")
    data = open_data(f"{root}:split=test")
    assert [one.label for one in data.samples] == list(range(10))
    expected = read_idx(root / "t10k-images-idx3-ubyte.gz")[3]
    assert (np.asarray(data.samples[3].source.read())[:, :, 1] == expected).all()
    assert data.samples[3].name == "test/00003"


@pytest.mark.parametrize("inside", ["raw", "MNIST/raw"])
def test_where_torchvision_puts_it(made: Made, inside: str, tmp_path: Path) -> None:
    made("mnist", f"top/{inside}")
    assert len(open_data(tmp_path / "top")) == 30


def test_unpacked_under_other_names(made: Made) -> None:
    root = made("mnist")
    path = root / "train-images-idx3-ubyte.gz"
    (root / "train-images.idx3-ubyte").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    assert len(open_data(f"{root}:split=train")) == 20


def test_counts_must_agree(made: Made) -> None:
    root = made("mnist")
    (root / "t10k-labels-idx1-ubyte.gz").write_bytes((root / "train-labels-idx1-ubyte.gz").read_bytes())
    refused("inconsistent", open_data, root)


def idx(*shape: int, kind: int = 8) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (idx(2**32 - 1, 2**32 - 1, 2**32 - 1), "the number of values is 0 to 1,073,741,824"),
        (idx(*[1] * 255), "does not begin as an idx file"),
        (idx(1000, 1000, 1000) + bytes(8), "cannot reshape"),
        (idx(2, 2) + bytes(100_000_000), "cannot reshape array of size 5"),
        (idx(1, 1, kind=14) + bytes(8), "does not begin as an idx file"),
        (b"", "damaged or cut short"),
    ],
    ids=["dims", "axes", "short", "long", "floats", "empty"],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_headers_are_not_believed(content: bytes, words: str, zipped: bool, tmp_path: Path) -> None:
    """Nor is a file unpacked further than its header says: 100 MB of zeros are 100 kB gzipped."""
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(content) if zipped else content)
    del content
    tracemalloc.start()
    refused(words, read_idx, path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
