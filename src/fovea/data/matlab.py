"""Columns of MATLAB files, as Stanford publishes its lists."""

import io
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fovea.basics import BadChoice, contents

LONGEST, UNPACKED = 1 << 24, 1 << 26  # bytes of a file, and of what is packed in it
DEEPEST = 8  # arrays in one another
MATRIX, PACKED = 14, 15  # kinds of elements
HEAD, NAMES = (6, 5, 1), (5, 1)  # those that an array begins with, and a struct's fields
SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}  # bytes of values, by kind
COMPLEX = 0x800
CELL, STRUCT, TEXT = 1, 2, 4  # classes of arrays
OTHERS = (3, 5, 16, 17)  # that hold code, objects or few of many numbers


def columns(path: Path, names: Sequence[str], within: str | None = None) -> list[list[str]]:
    """Variables, or the fields of one struct array, as text, row by row in the order of the file."""
    from scipy.io import loadmat

    try:
        data = contents(path, LONGEST)
        _check(data)
        found = loadmat(io.BytesIO(data), squeeze_me=True, variable_names=names if within is None else [within])
        found = found if within is None else np.atleast_1d(found[within])
        cells = [[str(cell) for cell in np.atleast_1d(found[name])] for name in names]
        if len(set(map(len, cells))) > 1:
            raise ValueError("its columns have different lengths")
        return cells
    except KeyError as lacking:
        raise BadChoice(f"{path} has no {lacking}: expected {', '.join(filter(None, (within, *names)))}") from None
    except Exception as error:  # scipy raises many kinds for a damaged file, the fields of a struct array others
        raise BadChoice(f"{path} cannot be read as a MATLAB file with {', '.join(names)}: {error}") from None


def _check(data: bytes) -> None:
    """What arrays claim to hold is there: scipy takes memory for it first, and arrays in arrays crash the process."""
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or struct.unpack(f"{order}H", data[124:126]) != (0x0100,):
        raise ValueError("it does not begin as one of version 5 does")
    left = UNPACKED
    for kind, body in _elements(memoryview(data)[128:], order):
        if kind == PACKED:
            unpacked = zlib.decompressobj().decompress(body, left + 1)
            left -= len(unpacked)
            if left < 0:
                raise ValueError(f"it unpacks to more than {UNPACKED:,} bytes")
            for inner, content in _elements(memoryview(unpacked), order):
                _check_array(content, order, inner)
        else:
            _check_array(body, order, kind)


def _elements(data: memoryview, order: str) -> list[tuple[int, memoryview]]:
    """The kind and the bytes of each; one of up to four bytes has them in its head."""
    found, at = [], 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        small, kind = kind >> 16, kind & 0xFFFF
        body = data[at + 4 : at + 4 + small] if small else data[at + 8 : at + 8 + size]
        if len(body) != (small or size):
            raise ValueError("it is cut short")
        found.append((kind, body))
        at += 8 if small else 8 + size + (0 if kind == PACKED else -size % 8)
    return found


def _check_array(data: memoryview, order: str, kind: int, depth: int = 1) -> None:
    """Its parts are of the kinds that scipy takes them for, in their order, and as many as it claims."""
    if kind != MATRIX or not data:
        return
    if depth > DEEPEST:
        raise ValueError(f"arrays are more than {DEEPEST} deep in one another")
    kinds, bodies = zip(*_elements(data, order), strict=True)
    if kinds[:3] != HEAD or len(bodies[0]) != 8 or len(bodies[1]) not in range(8, 4 * 32, 4):
        raise ValueError("an array does not begin as one")
    flags, dims = (struct.unpack(f"{order}{len(body) // 4}i", body) for body in bodies[:2])
    held, count, start = flags[0] & 0xFF, math.prod(dims), 3
    if held in OTHERS or not 0 < held < 18 or min(dims) < 0:
        raise ValueError(f"it holds an array of class {held} and size {dims}, neither text nor numbers")
    if held in (CELL, STRUCT):
        if held == STRUCT:
            start, width = 5, struct.unpack(f"{order}i", bodies[3])[0] if kinds[3:5] == NAMES else 0
            if not 1 <= width <= 64 or len(bodies[4]) % width:
                raise ValueError("the names of its fields are damaged")
            count *= len(bodies[4]) // width
        if len(kinds) != start + count or {*kinds[start:]} - {MATRIX}:
            raise ValueError("an array claims to hold more than it does")
        for body in bodies[start:]:
            _check_array(body, order, MATRIX, depth + 1)
        return
    parts = 2 if flags[0] & COMPLEX else 1
    if len(kinds) != start + parts or any(kind not in SIZES for kind in kinds[start:]):
        raise ValueError("the values of an array are damaged")
    for kind, body in zip(kinds[start:], bodies[start:], strict=True):
        if len(body) != SIZES[kind] * count and held != TEXT:
            raise ValueError("an array claims to hold more than it does")
