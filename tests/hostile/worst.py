"""The worst known files of each reader: small, and asking for more memory or time than anybody has."""

import gzip
import io
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from fuzz import MEGABYTES
from PIL import Image

from made_recipes import small, written

LARGE = 1800  # 784 for 14,000 x 14,000 pixels as Pillow holds them; all that the process has imported is the rest


class Worst(NamedTuple):
    """`make` changes the good files of a reader; one that is `slow` takes seconds to make or to read."""

    reader: str
    make: Callable[[Path], object]
    slow: bool = False
    megabytes: int = MEGABYTES


def png(folder: Path, depth: int, color: int, side: int = 14_000) -> None:
    """A PNG of one color, a row at a time."""
    bits = depth * {0: 1, 2: 3, 3: 1, 6: 4}[color]
    packer, row = zlib.compressobj(1), bytes(1 + side * bits // 8)
    data = b"".join([packer.compress(row) for _ in range(side)]) + packer.flush()
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, color, 0, 0, 0)), (b"PLTE", bytes(range(48)))]
    chunks = [chunk for chunk in chunks if color == 3 or chunk[0] != b"PLTE"] + [(b"IDAT", data), (b"IEND", b"")]
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def replaced(file: str, at: int, by: bytes) -> Callable[[Path], object]:
    """Bytes of a good file changed: a claim in its header."""

    def make(folder: Path) -> None:
        data = (folder / file).read_bytes()
        at_ = at if at >= 0 else data.index(by[:4])
        (folder / file).write_bytes(data[:at_] + by + data[at_ + len(by) :])

    return make


def png_claims(folder: Path) -> None:
    data = (folder / "a.png").read_bytes()
    (folder / "a.png").write_bytes(
        data[:8] + _chunk(b"IHDR", struct.pack(">II", *[2**31 - 1] * 2) + data[24:29]) + data[33:]
    )


def tiff_claims(folder: Path) -> None:
    """Width and height are the first entries of the directory."""
    data = bytearray((folder / "a.tif").read_bytes())
    (at,) = struct.unpack("<I", data[4:8])
    for entry in (at + 2, at + 14):
        data[entry + 2 : entry + 12] = struct.pack("<HII", 4, 1, 10**8)
    (folder / "a.tif").write_bytes(data)


def eps(folder: Path) -> None:
    """Which another program would have to draw."""
    (folder / "a.jpg").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 30\n%%EndComments\nshowpage\n%%EOF\n"
    )


def many_frames(folder: Path) -> None:
    shown = [Image.new("P", (2, 2), n % 2) for n in range(5000)]
    shown[0].save(folder / "a.gif", save_all=True, append_images=shown[1:], duration=20)


def bomb(folder: Path) -> None:
    """12 GB of zeros in 13 MB, as gzip takes files one after the other."""
    zeros = gzip.compress(bytes(2**26), 9)
    head = gzip.compress(struct.pack(">HBBIII", 0, 8, 3, 190_000, 256, 256))
    for path in folder.glob("*images*"):
        path.write_bytes(head + zeros * 190)


def rows(**changes: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        first, *lines = (folder / "manifest.csv").read_text().split("\n")
        cells = [dict(zip(first.split(","), line.split(","), strict=True)) | changes for line in lines]
        (folder / "manifest.csv").write_text("\n".join([first, *(",".join(cell.values()) for cell in cells)]))

    return make


def member(folder: Path) -> None:
    """A size of 100 GB, as GNU tar writes it."""
    data = bytearray((folder / "00.tar").read_bytes())
    data[124:136] = b"\x80" + (10**11).to_bytes(11)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    (folder / "00.tar").write_bytes(data)


def zipped(folder: Path, file: str) -> None:
    """The first tensor is 1.2 GB of zeros, which a zip file holds in 1.2 MB."""
    known = torch.load(folder / file, weights_only=True)
    inside, buffer = known.get("state_dict") or known["stepper"], io.BytesIO()
    inside[next(iter(inside))] = torch.zeros(7)
    torch.save(known, buffer)
    with (
        zipfile.ZipFile(buffer) as before,
        zipfile.ZipFile(folder / file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as after,
    ):
        for info in before.infolist():
            data = before.read(info)
            if info.filename.endswith("data.pkl"):  # the only 7 that is a count of numbers
                data = data.replace(b"K\x07", b"J" + (3 * 10**8).to_bytes(4, "little"))
            if len(data) == 28:
                data = bytes(12 * 10**8)
            after.writestr(info.filename, data)


def stretched(folder: Path) -> None:
    """One number that claims to be 10^12, as a view of itself."""
    known = torch.load(folder / "w.pth", weights_only=True)
    first = next(iter(known["state_dict"]))
    known["state_dict"][first] = torch.zeros(1).expand(10**12)
    torch.save(known, folder / "w.pth")


def itself(folder: Path) -> None:
    known: dict[str, object] = {}
    known["state_dict"] = known
    torch.save(known, folder / "w.pth")


def endless(folder: Path, file: str, table: str) -> None:
    """A table that is a question without an end to its answers."""
    with closing(sqlite3.connect(folder / file)) as store:
        columns = [name for _, name, *_ in store.execute(f"PRAGMA table_info({table})")]
        cells = ", ".join(f"CAST(n AS BLOB) AS {name}" for name in columns)
        store.execute(f"DROP TABLE {table}")
        numbers = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t)"
        store.execute(f"CREATE VIEW {table} AS {numbers} SELECT {cells} FROM t")
        store.commit()


def asks(**content: object) -> Callable[[Path], object]:
    return lambda folder: written(folder, small() | content)


def data(**options: object) -> Callable[[Path], object]:
    given = ",".join(f"{name}={value}" for name, value in options.items())
    return asks(data={"train": f"megapixel:{given}"})


WORST: dict[str, Worst] = {
    "14,000 x 14,000": Worst("picture png", partial(png, depth=8, color=2), slow=True, megabytes=LARGE),
    "14,000 x 14,000, 16 bit": Worst("picture png", partial(png, depth=16, color=0), slow=True, megabytes=LARGE),
    "14,000 x 14,000, palette": Worst("picture png", partial(png, depth=8, color=3), slow=True, megabytes=LARGE),
    "14,000 x 14,000, RGBA": Worst("picture png", partial(png, depth=8, color=6), slow=True, megabytes=LARGE),
    "claims 2^31 x 2^31": Worst("picture png", png_claims),
    "screen of 65,535 x 65,535": Worst("picture gif", replaced("a.gif", 6, b"\xff" * 4)),
    "moving screen of 65,535 x 65,535": Worst("clip gif", replaced("a.gif", 6, b"\xff" * 4)),
    "claims 10^8 x 10^8": Worst("picture tiff", tiff_claims),
    "claims 2^31 wide": Worst("picture bmp", replaced("a.bmp", 18, b"\xff\xff\xff\x7f")),
    "another program's": Worst("picture jpeg", eps),
    "5,000 frames": Worst("clip gif", many_frames),
    "2^31 frames": Worst("clip apng", replaced("a.apng", -1, b"acTL\x7f\xff\xff\xff")),
    "a prime rate": Worst("sound", replaced("a.wav", 24, (4294967291).to_bytes(4, "little"))),
    "65,535 channels": Worst("sound", replaced("a.wav", 22, b"\xff\xff")),
    "chunk of 4 GB": Worst("sound", replaced("a.wav", 16, b"\xff\xff\xff\xff")),
    "gzip bomb": Worst("data mnist", bomb),
    "member of 100 GB": Worst("data pack", member),
    "label of 10,000 digits": Worst("data pack", rows(label="9" * 10_000)),
    "field of 200 kB": Worst("data pack", rows(boxes="1 2 3 4;" * 25_000)),
    "shard outside": Worst("data pack", rows(shard="../../../../../../etc/passwd")),
    "header of 2^62": Worst("weights", replaced("w.safetensors", 0, (2**62).to_bytes(8, "little"))),
    "zip bomb": Worst("weights pth", partial(zipped, file="w.pth"), slow=True),
    "zip bomb, checkpoint": Worst("checkpoint", partial(zipped, file="checkpoint.pt"), slow=True),
    "10^12 numbers": Worst("weights pth", stretched),
    "state of itself": Worst("weights pth", itself),
    "endless table": Worst("index", partial(endless, file="i.fovea", table="pictures")),
    "endless table, cache": Worst("patch cache", partial(endless, file="p.sqlite", table="pictures")),
    "line of 3 MB": Worst("text", lambda folder: (folder / "a.txt").write_text("so bad " * 400_000)),
    "count": Worst("recipe", data(count=10**9)),
    "canvas": Worst("recipe", data(canvas=10**6, count=16)),
    "clutter": Worst("recipe", data(clutter=10**8, count=16)),
    "labels": Worst("recipe", data(count=16, labels="0-999999999")),
    "epochs": Worst("recipe", asks(epochs=float("inf"), data={"train": "megapixel:count=16,canvas=48"})),
    "threads": Worst("recipe", asks(threads=100_000)),
    "width": Worst("recipe", asks(network={"name": "smallnet", "options": {"widths": [8, 10**7]}})),
}  # fmt: skip
