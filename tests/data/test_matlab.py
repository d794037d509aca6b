"""Lists that claim what they do not hold: none takes memory, and none ends the process."""

import struct
import tempfile
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

import fovea
from checks import refused
from fovea.data.matlab import columns
from made_data import cells, structs

HEAD = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def array(held: int, dims: tuple[int, ...], *more: bytes, name: bytes = b"x") -> bytes:
    about = element(6, struct.pack("<II", held, 0)) + element(5, struct.pack(f"<{len(dims)}i", *dims))
    return element(14, about + element(1, name) + b"".join(more))


def nested(depth: int) -> bytes:
    """A cell in a cell in a cell: from the inside out, each with the length of what it holds."""
    parts, length = [element(14, b"")], 8
    for _ in range(depth):
        head = array(1, (1, 1), name=b"x")
        parts.append(struct.pack("<II", 14, len(head) - 8 + length) + head[8:])
        length += len(head)
    return b"".join(reversed(parts))


def packed(content: bytes) -> bytes:
    data = zlib.compress(content)
    return struct.pack("<II", 15, len(data)) + data


FIELDS = element(5, struct.pack("<i", 8)) + element(1, b"a".ljust(8, b"\0"))
HOSTILE = {
    "a cell of a billion": (array(1, (2**30, 1)), "claims to hold more"),
    "structs": (array(2, (2**28, 1), FIELDS), "claims to hold more"),
    "numbers": (array(6, (2**30, 2**30), element(9, bytes(8))), "cannot"),
    "less than nothing": (array(1, (-5, 3)), r"size \(-5, 3\)"),
    "deep": (nested(20_000), "more than 8 deep"),
    "deep and packed": (packed(nested(100_000)), "more than 8 deep"),
    "a bomb": (packed(array(6, (10**8, 1), element(9, bytes(10**8)))), "unpacks to more than"),
    "code": (array(16, (1, 1)), "class 16"),
    "cut": (array(6, (4, 1), element(9, bytes(32)))[:-16], "cut short"),
    "fields before the size": (element(14, element(5, struct.pack("<i", 8)) + FIELDS), "does not begin as one"),
    "values of no kind": (array(6, (1, 1), element(99, bytes(8))), "damaged"),
    "fewer values": (array(6, (4, 1), element(9, bytes(8))), "claims to hold more"),
    "fields without names": (array(2, (1, 1), element(14, b"")), "names of its fields"),
    "nothing in it": (element(14, element(6, b"")), "cannot be read"),
    "another variable": (array(6, (1, 1), element(9, bytes(8)), name=b"y"), "has no 'x'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_claims_are_not_believed(name: str, tmp_path: Path) -> None:
    content, words = HOSTILE[name]
    (tmp_path / "a.mat").write_bytes(HEAD + content)
    tracemalloc.start()
    refused(words, columns, tmp_path / "a.mat", ["x"])
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()


@pytest.mark.parametrize("packs", [False, True])
def test_what_is_published_is_read(packs: bool, tmp_path: Path) -> None:
    lists = {"file_list": cells(["a/1.jpg", "b/ü.jpg"]), "labels": np.array([[1], [2]], np.uint8)}
    annotations = structs(fname=["1.jpg", "2.jpg"], bbox=[np.uint16(3), np.uint16(4)])
    savemat(tmp_path / "a.mat", {**lists, "annotations": annotations}, do_compression=packs)
    assert columns(tmp_path / "a.mat", ["file_list", "labels"]) == [["a/1.jpg", "b/ü.jpg"], ["1", "2"]]
    assert columns(tmp_path / "a.mat", ["fname", "bbox"], "annotations") == [["1.jpg", "2.jpg"], ["3", "4"]]
    lists["labels"] = np.array([[1]], np.uint8)
    savemat(tmp_path / "b.mat", lists)
    refused("columns have different lengths", columns, tmp_path / "b.mat", ["file_list", "labels"])


def test_other_versions_are_refused(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"x": np.ones(3)}, format="4")
    refused("does not begin as one of version 5", columns, tmp_path / "a.mat", ["x"])


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_any_change_is_read_or_refused(draw: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.mat")
        savemat(path, {"x": cells(["a", "b"]), "s": structs(f=["1", "2"], n=[1.0, 2.0])}, do_compression=False)
        content = bytearray(path.read_bytes())
        for _ in range(draw.draw(st.integers(1, 4))):
            content[draw.draw(st.integers(124, len(content) - 1))] = draw.draw(st.integers(0, 255))
        path.write_bytes(content[: draw.draw(st.integers(0, len(content)))])
        with suppress(fovea.BadChoice):
            assert columns(path, ["x"])
        with suppress(fovea.BadChoice):
            assert columns(path, ["f", "n"], "s")
