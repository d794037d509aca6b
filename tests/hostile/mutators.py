"""Files as they may not be: bytes changed anywhere, and what the bytes mean changed where the format is known."""

import copy
import gzip
import io
import json
import re
import sqlite3
import struct
import tempfile
import tomllib
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch

from fovea.basics import checksum
from made_recipes import written

BAIT = "bait-that-no-reader-opens.jpg"  # beside every reader's folder; whoever opens it was led astray
DEEP = "@deep@"
PLACES = re.compile(rb"[A-Za-z]{4}|\xff[\xc0-\xfe]|[\n,:]|\0\0\0")  # where chunks, boxes, markers, fields begin
NUMBERS = (0, 1, 2**7, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 5, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
TARS = (b"77777777777\0", b"-0000000001\0", b"\x80" + b"\0" * 3 + b"\x7f" * 8, b"zzzzzzzzzzz\0")  # sizes of members
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 3.7, 2**31, 2**63, 10**13, 10**400, 1e308, -1e308, float("inf"), float("nan"), "", " ", "0",
    "9" * 5000, "x" * 70_000, f"../{BAIT}", f"../../{BAIT}", "/etc/passwd", "~nobody/x", "http://127.0.0.1:9/x",
    "file:///etc/passwd", "os:system", "timm/resnet18", "gap/" * 3000, "\x1b[31m\r\n\x07", "\udcff\udc80", "\0",
    "é" * 9, "<script>", "0-999999999", [], {}, [[]], [None], {"": None}, [0] * 3000, DEEP,
)  # fmt: skip
NAMES = (
    b"\xff",
    b"\n",
    b"\x1b[2J",
    b"*",
    b"[x]",
    b"-",
    b" ",
    b"~",
    b'"',
    b"%s{}",
    b"\xe2\x80\xae",
    b"<b>",
    b"#?&=,:;",
    b"a" * 99,
)
KEYS = ("checkpoint_path", "pretrained", "pretrained_cfg_overlay", "cache_dir", "url", "file", "", "\x1b", "name")


def mutated(data: bytes, name: str, random: Random) -> tuple[str, bytes, bool]:
    """What was done, the file, and whether its checksums, where it has any, were made to fit again."""
    suffix = Path(name).suffix
    form = FORMS.get(suffix)
    if form is not None and random.random() < form.share:
        tree = twisted(form.decode(data), random)
        return "meaning", form.encode(tree, data), True
    if suffix == ".gz" and random.random() < 0.5:
        how, inside, _ = mutated(gzip.decompress(data), name.removesuffix(".gz"), random)
        return f"inside, {how}", gzip.compress(inside, mtime=0), True
    how, change = random.choice(list(BYTES.items()))
    changed = change(data, random)
    if suffix in (".png", ".apng") and random.random() < 0.5:
        return f"{how}, checksums fit", _with_crcs(changed), True
    return how, changed, False


def renamed(random: Random) -> bytes:
    return b"".join(random.choices(NAMES, k=random.choice((1, 2, 2, 4))))[:200] + random.choice((b".png", b".PNG"))


def _place(data: bytes, random: Random) -> int:
    """Where something begins, half of the time; else a byte that is not nothing, where there is any."""
    places = [match.start() for match in PLACES.finditer(data[:200_000])] if random.random() < 0.5 else []
    return random.choice(places) if places else _some(data, random)


def _some(data: bytes, random: Random) -> int:
    at = random.randrange(len(data) + 1)
    return next((place for place in range(at, len(data)) if data[place]), at)


def _flip(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[min(_some(data, random), len(data) - 1)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _number(data: bytes, random: Random) -> bytes:
    at, size = _place(data, random) + random.choice((-8, -4, 0, 4)), random.choice((2, 4, 8))
    number = random.choice(NUMBERS) % 256**size
    return data[: max(at, 0)] + number.to_bytes(size, random.choice(("big", "little"))) + data[max(at, 0) + size :]


def _tar_size(data: bytes, random: Random) -> bytes:
    """The size that a header of a tar claims, with the header's sum made to fit; another number, in other files."""
    headers = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    if not headers:
        return _number(data, random)
    at = random.choice(headers)
    head = bytearray(data[at : at + 512])
    head[124:136] = random.choice(TARS)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return data[:at] + bytes(head) + data[at + 512 :]


def _splice(data: bytes, random: Random) -> bytes:
    start, to = _place(data, random), _place(data, random)
    piece = data[start : start + random.choice((4, 32, 512, 8192))]
    return data[:to] + piece + data[to + random.choice((0, len(piece))) :]


def _repeat(data: bytes, random: Random) -> bytes:
    start = _place(data, random)
    piece = data[start : start + random.choice((8, 64, 1024))]
    return data[:start] + piece * random.choice((2, 50, 1000)) + data[start:]


def _blank(data: bytes, random: Random) -> bytes:
    start, length = _place(data, random), random.choice((1, 4, 64, 4096))
    return data[:start] + random.choice((b"\0", b"\xff", b"9", b"\x1b", b"\n"))[:1] * length + data[start + length :]


BYTES: dict[str, Callable[[bytes, Random], bytes]] = {
    "bits flipped": _flip,
    "cut": lambda data, random: data[: _place(data, random)],
    "beginning cut": lambda data, random: data[_place(data, random) :],
    "a number": _number,
    "a size": _tar_size,
    "spliced": _splice,
    "repeated": _repeat,
    "blanked": _blank,
    "longer": lambda data, random: data + random.choice((b"\0" * 100_000, data, b"x")),
}


def _with_crcs(data: bytes) -> bytes:
    """A PNG whose chunks have the checksums of what they hold now."""
    made, at = bytearray(data), 8
    while at + 12 <= len(made):
        (length,) = struct.unpack(">I", made[at : at + 4])
        end = at + 8 + length
        if end + 4 > len(made):
            break
        made[end : end + 4] = struct.pack(">I", zlib.crc32(made[at + 4 : end]))
        at = end + 4
    return bytes(made)


def twisted(tree: Any, random: Random) -> Any:
    """A tree of lists and mappings with one place changed; texts that are JSON are such trees, too."""
    if isinstance(tree, (str, bytes)) and (inside := _json(tree)) is not None and random.random() < 0.85:
        text = _dumped(twisted(inside, random))
        return text if isinstance(tree, str) else text.encode(errors="surrogateescape")
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    if not keys or random.random() < 0.15:
        value = copy.deepcopy(random.choice(VALUES))
        return value.encode(errors="surrogateescape") if isinstance(tree, bytes) and isinstance(value, str) else value
    changed, key, what = copy.copy(tree), random.choice(keys), random.random()
    if what < 0.7:
        changed[key] = twisted(tree[key], random)
    elif what < 0.8:
        del changed[key]
    elif isinstance(changed, dict):
        changed[random.choice((*KEYS, random.choice(keys)))] = copy.deepcopy(random.choice((tree[key], *VALUES)))
    else:
        changed[key:key] = [tree[key]] * random.choice((1, 1, 300))
    return changed


def _json(text: str | bytes) -> Any:
    try:
        inside = json.loads(text)
    except ValueError:
        return None
    return inside if isinstance(inside, (dict, list)) else None


def _dumped(tree: Any) -> str:
    return json.dumps(tree).replace(json.dumps(DEEP), "[" * 9999 + "]" * 9999)


class Form(NamedTuple):
    """What a file means, as a tree, and a file that means another; `share` of all changes are made to the tree."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any, bytes], bytes]  # the tree, the file before
    share: float


def _from_rows(data: bytes) -> dict[str, Any]:
    with closing(_database(data)) as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [list(row) for row in store.execute(f"SELECT * FROM {table}")] for table in tables}


def _to_rows(tree: Any, before: bytes) -> bytes:
    """A row that SQLite does not take is left out. The checksums of changed rows fit."""
    with closing(_database(before)) as store:
        for table in _from_rows(before) if isinstance(tree, dict) else ():
            columns, rows = [column for _, column, *_ in store.execute(f"PRAGMA table_info({table})")], tree.get(table)
            store.execute(f"DELETE FROM {table}")
            for row in rows if isinstance(rows, list) else ():
                row = [*row] if isinstance(row, list) else [row]
                row = [*row, *[None] * len(columns)][: len(columns)]
                if columns[-1] == "checksum":
                    row[-1] = _sum(row[:-1])
                try:
                    store.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", row)
                except (sqlite3.Error, OverflowError, UnicodeEncodeError):
                    continue
        store.commit()
        return store.serialize()


def _sum(cells: list[Any]) -> int:
    as_bytes = [
        cell if cell is None or isinstance(cell, bytes) else str(cell).encode(errors="replace") for cell in cells
    ]
    return checksum(as_bytes)


def _database(data: bytes) -> sqlite3.Connection:
    store = sqlite3.connect(":memory:")
    store.deserialize(data)
    return store


def _from_header(data: bytes) -> dict[str, Any]:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {"about": header.pop("__metadata__", {}), "tensors": header}


def _to_header(tree: Any, before: bytes) -> bytes:
    tree = tree if isinstance(tree, dict) else {"about": tree}
    tensors = tree.get("tensors", {})
    both = {"__metadata__": tree.get("about")} | (tensors if isinstance(tensors, dict) else {"x": tensors})
    header = _dumped(both).encode(errors="surrogatepass")
    return len(header).to_bytes(8, "little") + header + before[8 + int.from_bytes(before[:8], "little") :]


def _to_torch(tree: Any, _: bytes) -> bytes:
    buffer = io.BytesIO()
    torch.save(tree, buffer)
    return buffer.getvalue()


def _to_toml(tree: Any, _: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        data = written(Path(folder), tree if isinstance(tree, dict) else {"network": tree}).read_bytes()
    data = data.replace(json.dumps(DEEP).encode(), b"[" * 9999 + b"]" * 9999)
    return data.replace(b"NaN", b"nan").replace(b"Infinity", b"inf")


def _table(between: str) -> Form:
    return Form(
        lambda data: [line.split(between) for line in data.decode().split("\n")],
        lambda tree, _: "\n".join(
            between.join(map(str, line)) if isinstance(line, list) else str(line)
            for line in (tree if isinstance(tree, list) else [tree])
        ).encode(errors="surrogateescape"),
        0.6,
    )


FORMS = {
    ".json": Form(json.loads, lambda tree, _: _dumped(tree).encode(), 0.7),
    ".jsonl": Form(lambda data: [*map(json.loads, data.splitlines())], lambda tree, _: _to_lines(tree), 0.7),
    ".toml": Form(lambda data: tomllib.loads(data.decode()), _to_toml, 0.8),
    ".csv": _table(","),
    ".txt": _table(" "),
    ".safetensors": Form(_from_header, _to_header, 0.7),
    ".fovea": Form(_from_rows, _to_rows, 0.5),
    ".sqlite": Form(_from_rows, _to_rows, 0.5),
    ".pt": Form(lambda data: torch.load(io.BytesIO(data), weights_only=True), _to_torch, 0.6),
    ".pth": Form(lambda data: torch.load(io.BytesIO(data), weights_only=True), _to_torch, 0.6),
}


def _to_lines(tree: Any) -> bytes:
    return "\n".join(map(_dumped, tree if isinstance(tree, list) else [tree])).encode()
