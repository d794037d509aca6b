import gzip
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from checks import refused
from fovea.data import open_sentences, open_vectors, vectors

ROWS = {"film": [1.0, 2.0, -0.5], "new_york": [0.25, 0.5, 4.0], "clichés": [3.0, 0.0, 1.0], "the": [9.0, 8.0, 7.0]}


def text(header: bool) -> bytes:
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in ROWS.items()]
    return "\n".join([f"{len(ROWS)} 3"] * header + lines).encode() + b"\n"


def binary(newlines: bool) -> bytes:
    end = b"\n" if newlines else b""
    return b"4 3\n" + b"".join(word.encode() + b" " + struct.pack("<3f", *row) + end for word, row in ROWS.items())


FORMATS = {
    "text": text(True), "bare text": text(False), "binary": binary(True), "packed binary": binary(False),
    "zipped text": gzip.compress(text(True)), "zipped binary": gzip.compress(binary(True)),
    "spaced text": text(True).replace(b"\n", b" \r\n"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_vectors(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(FORMATS[kind])
    found = open_vectors(path, ["clichés", "film", "new_york", "absent"])
    assert found.words == ("<padding>", "<unknown>", "clichés", "film", "new_york", "absent")
    assert found.matrix[0].tolist() == [0, 0, 0]
    assert found.matrix[2:5].tolist() == [[3, 0, 1], [1, 2, -0.5], [0.25, 0.5, 4]]
    assert found.matrix.dtype == np.float32
    assert found.missing == ("absent",)


def test_a_word_may_hold_spaces_in_text(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(text(True).replace(b"new_york", b"new york . ."))
    assert open_vectors(tmp_path / "v", ["new york . ."]).matrix[2].tolist() == [0.25, 0.5, 4]


def test_missing_words_get_small_random_vectors_that_depend_on_the_word_alone(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_bytes(text(True))
    one = open_vectors(tmp_path, ["film", "a", "'s"])
    other = open_vectors(tmp_path, ["'s", "film"])
    assert (one.matrix[one.index["'s"]] == other.matrix[other.index["'s"]]).all()
    assert (one.matrix[one.index["a"]] != one.matrix[one.index["'s"]]).any()
    assert np.abs(one.matrix[one.index["a"]]).max() <= 0.25
    again = open_vectors(tmp_path, ["film", "'s"], seed=1)
    assert (again.matrix[again.index["'s"]] != other.matrix[other.index["'s"]]).any()


def test_missing_words_may_have_no_row(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_bytes(text(True))
    found = open_vectors(tmp_path, ["film", "the", "absent"], missing="unknown")
    assert found.words == ("<padding>", "<unknown>", "film", "the")
    assert (dict(found.index), found.missing) == ({"film": 2, "the": 3}, ("absent",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (text(True).rpartition(b"the")[0], "cut short: it has 3 of the 4 words"),
        (binary(True)[:-5], "cut short: it has 3 of the 4 words"),
        (gzip.compress(text(True), mtime=0)[:-12], "cut short"),
        (text(True).replace(b"1.0 2.0 -0.5", b"1.0 x -0.5"), "'film' should have 3 numbers"),
        (b"\x00\x01\x02 nothing of the kind", "no word2vec file"),
        (b"", "no word2vec file"),
        (b"1 3\ncat 1 2 3\n", "has none of the 1 words"),
    ],
)
def test_damaged_files(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(content)
    refused(said, open_vectors, tmp_path / "v", ["film"])


def test_files_larger_than_a_chunk(tmp_path: Path) -> None:
    """Words that lie across the borders of what is read at once."""
    random = np.random.default_rng(0)
    words, matrix = [f"w{i}" for i in range(4000)], random.normal(size=(4000, 100)).astype("<f4")
    content = b"4000 100\n" + b"".join(w.encode() + b" " + row.tobytes() for w, row in zip(words, matrix, strict=True))
    (tmp_path / "v.bin").write_bytes(content)
    found = open_vectors(tmp_path / "v.bin", words[::7])
    assert (found.matrix[2:] == matrix[::7]).all()


def test_where_it_looked(tmp_path: Path) -> None:
    refused(r"no word vectors in .* \(looked for vectors\.txt\.gz", open_vectors, tmp_path, ["film"])
    refused("missing is random or unknown", open_vectors, tmp_path, ["film"], missing="zero")


@pytest.mark.skipif(not Path(os.environ.get("FOVEA_DATA", "."), "mr").is_dir(), reason="needs the pack mr")
def test_the_real_vectors() -> None:
    words = open_sentences("mr").vocabulary()
    found = open_vectors("mr", words)
    assert found.matrix.shape == (len(words) + 2, 100)
    assert {"a", "i", "'s", "n't", "."} <= set(found.missing)
    assert len(found.missing) < 0.07 * len(words)


HOSTILE = {
    "size": (b"1000000000000 1000000000\nfilm " + bytes(64), "size of the vectors .* is 1 to 100,000; got 1000000000"),
    "digits": (b"9" * 10_000 + b" 3\nfilm 1 2 3\n", "has none of the 1 words"),
    "words": (b"1000000000000 3\nfilm 1 2 3\n", "has 1 of the 1,000,000,000,000 words"),
    "no line end": (b"9 3\n" + b"x" * 9_000_000, "a line has more than 8,388,608 bytes"),
    "no space": (b"9 3\n\x01" + b"x" * 9_000_000, "a word has more than 8,388,608 bytes"),
    "not numbers": (b"1 3\nfilm 1 nan 3\n", "should have 3 numbers"),
    "infinite": (b"1 1\nfilm " + struct.pack("<f", np.inf), "should have 1 numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_claims_are_not_believed(name: str, tmp_path: Path) -> None:
    content, words = HOSTILE[name]
    (tmp_path / "v").write_bytes(content)
    tracemalloc.start()
    refused(words, open_vectors, tmp_path / "v", ["film"])
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "LEAST", 1 << 22)
    (tmp_path / "v").write_bytes(gzip.compress(b"9 3\nfilm 1 2 3\n" + b"\n" * 30_000_000))
    refused("unpacks to more than 100 times its size", open_vectors, tmp_path / "v", ["film"])
