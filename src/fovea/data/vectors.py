"""Word vectors from word2vec files, text or binary, gzipped or not; only the words asked for are kept in memory."""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BadChoice, nearest, within
from fovea.data.places import at_home, find, unzipped

PADDING, UNKNOWN = 0, 1  # the first two rows
SPREAD = 0.25  # of the random vectors, uniform on both sides of 0 (Kim 2014)
NAMES = ("vectors.txt", "vectors.bin", "GoogleNews-vectors-negative300.bin")
USUAL = tuple(name + end for name in NAMES for end in (".gz", ""))
Missing = Literal["random", "unknown"]
CHUNK = 1 << 20
WIDEST, LONGEST = 100_000, 1 << 23  # numbers of a vector, and bytes of a line
RATIO, LEAST = 100, 1 << 28  # a file may unpack to so many times its size, or so many bytes


@dataclass(frozen=True)
class Vectors:
    """Row 0 is padding (zeros), row 1 stands for every word that has no row of its own."""

    words: tuple[str, ...]
    matrix: NDArray[np.float32]  # words,D
    index: Mapping[str, int]
    missing: tuple[str, ...]  # words asked for that the file lacks
    rule: Missing  # what became of them: a random vector each, or none, so that they are row 1


def open_vectors(given: str | Path, words: Iterable[str], missing: Missing = "random", seed: int = 0) -> Vectors:
    """The vectors of these words, from a file, or from the one in a folder given by path or by name below FOVEA_DATA. A
    word that the file lacks gets a random vector, uniform within ±0.25, that follows from the seed and the word alone
    (`missing="random"`, as in Kim 2014), or none (`missing="unknown"`: it is encoded as row 1)."""
    if missing not in ("random", "unknown"):
        raise BadChoice(f"missing is random or unknown; got {missing!r}{nearest(str(missing), ('random', 'unknown'))}")
    path = _file(given)
    wanted = tuple(dict.fromkeys(words))
    found = read_vectors(path, wanted)
    if not found:
        raise BadChoice(f"{path} has none of the {len(wanted):,} words asked for; are they in its language and case?")
    size = len(next(iter(found.values())))
    lacking = tuple(word for word in wanted if word not in found)
    own = wanted if missing == "random" else tuple(word for word in wanted if word in found)
    rows = [np.zeros(size, np.float32), _random("", size, seed)]
    rows += [found[word] if word in found else _random(word, size, seed) for word in own]
    names = ("<padding>", "<unknown>", *own)
    return Vectors(names, np.stack(rows), {word: i for i, word in enumerate(own, 2)}, lacking, missing)


def read_vectors(path: Path, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """Those of the words that the file has. A text file may begin with its size or not; a binary one must."""
    wanted = {word.encode(errors="replace"): word for word in words}
    found: dict[str, NDArray[np.float32]] = {}
    seen = 0
    try:
        with unzipped(path) as file:
            head = file.readline(CHUNK)
            cells = head.split()
            sized = len(cells) == 2 and all(cell.isdigit() and len(cell) < 16 for cell in cells)
            rows, size = (int(cells[0]), int(cells[1])) if sized else (0, len(cells) - 1)
            start = file.read(CHUNK) if sized else head + file.read(CHUNK)
            text = re.search(rb"[\x00-\x08\x0e-\x1f]", start[:4096]) is None
            if size < 1 or not (sized or (text and all(map(_is_number, cells[-2:])))):
                raise BadChoice(f"{path} is no word2vec file: its first line is neither a size nor a word with numbers")
            within(f"the size of the vectors in {path}", size, 1, WIDEST)
            chunks = _chunks(file, start, max(LEAST, RATIO * path.stat().st_size))
            for word, values in (_of_text if text else _of_binary)(chunks, size):
                seen += 1
                if word in wanted and wanted[word] not in found:
                    found[wanted[word]] = _numbers(path, word, values, size, text)
    except (OSError, EOFError, zlib.error) as error:
        raise BadChoice(f"{path} cannot be read, or is cut short: {error}") from None
    if seen < rows:
        raise BadChoice(f"{path} is cut short: it has {seen:,} of the {rows:,} words that it announces")
    return found


def _chunks(file: IO[bytes], start: bytes, most: int) -> Iterator[bytes]:
    """What the file holds, as long as it is in proportion to its size: more is a bomb."""
    yield start
    while chunk := file.read(CHUNK):
        most -= len(chunk)
        if most < 0:
            raise EOFError(f"it unpacks to more than {RATIO} times its size")
        yield chunk


# Each word with its numbers, not yet converted: most words are not wanted.
def _of_text(chunks: Iterator[bytes], size: int) -> Iterator[tuple[bytes, bytes]]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST:
            raise EOFError(f"a line has more than {LONGEST:,} bytes")
        yield from (_word_and_rest(line, size) for line in whole if line.strip())
    if rest.strip():
        yield _word_and_rest(rest, size)


def _word_and_rest(line: bytes, size: int) -> tuple[bytes, bytes]:
    """A word may hold spaces itself: the numbers are the last ones."""
    line = line.rstrip()
    word, _, values = line.partition(b" ")
    if values.count(b" ") != size - 1:
        parts = line.rsplit(b" ", size)
        return parts[0], b" ".join(parts[1:])
    return word, values


def _of_binary(chunks: Iterator[bytes], size: int) -> Iterator[tuple[bytes, bytes]]:
    """word, a space, 4 bytes a number, and in some files a line end."""
    buffer = b""
    for chunk in chunks:
        buffer, at = buffer + chunk, 0
        while (space := buffer.find(b" ", at)) >= 0 and (end := space + 1 + 4 * size) <= len(buffer):
            yield buffer[at:space].lstrip(b"\n"), buffer[space + 1 : end]
            at = end
        buffer = buffer[at:]
        if len(buffer) > LONGEST:
            raise EOFError(f"a word has more than {LONGEST:,} bytes")


def _numbers(path: Path, word: bytes, values: bytes, size: int, text: bool) -> NDArray[np.float32]:
    try:
        found = np.array(values.split(), np.float32) if text else np.frombuffer(values, "<f4").astype(np.float32)
        if len(found) != size or not np.isfinite(found).all():
            raise ValueError(f"{len(found)} numbers, or some not finite")
    except ValueError as error:
        raise BadChoice(f"{path}: {word.decode(errors='replace')!r} should have {size} numbers: {error}") from None
    return found


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _random(word: str, size: int, seed: int) -> NDArray[np.float32]:
    random = np.random.default_rng([seed, zlib.crc32(word.encode())])
    return random.uniform(-SPREAD, SPREAD, size).astype(np.float32)


def _file(given: str | Path) -> Path:
    path = at_home(given)
    if path.is_file():
        return path
    folder = find(str(given), (), lambda one: any((one / name).is_file() for name in USUAL))
    found = next((folder / name for name in USUAL if (folder / name).is_file()), None)
    if found is None:
        raise BadChoice(f"no word vectors in {folder} (looked for {', '.join(USUAL)}); give the file itself")
    return found
