"""A file of records that grows by one at a time, so that a kill costs none that is finished.

A line that says what the file is; then for every record a line with its checksum, the length of its JSON, that of its
values and a checksum of the line itself, and after the line the JSON, the values and a line break. A record that the
file ends within was never finished; a checksum that does not fit is damage.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zlib import crc32

from fovea.basics.errors import FoveaError

FIRST = b"fovea index 1\n"
HEAD = re.compile(rb"(([0-9a-f]{8}) (\d{1,12}) (\d{1,15})) ([0-9a-f]{8})\n")
LONGEST = 64  # bytes of such a line, and more


@dataclass(frozen=True)
class Record:
    about: dict[str, Any]
    values: bytes = b""

    def packed(self) -> bytes:
        """In ASCII before the values, since a file's name need not be text."""
        text = json.dumps(self.about, separators=(",", ":")).encode()
        head = b"%08x %d %d" % (crc32(self.values, crc32(text)), len(text), len(self.values))
        return b"%b %08x\n%b%b\n" % (head, crc32(head), text, self.values)


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """The file, made where there is none, for this process alone to read and add to, until it ends however it does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(path, "a+b") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FoveaError(f"another process is writing {path}: wait until it has finished") from None
            if path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):  # else it was replaced
                yield stream
                return


def read(stream: IO[bytes], path: Path) -> tuple[list[Record], int]:
    """The finished records, and where the last of them ends; none of a file that is new."""
    stream.seek(0)
    first = stream.read(len(FIRST))
    if first != FIRST:
        if FIRST.startswith(first):  # empty, or killed while this was written
            return [], 0
        raise FoveaError(f"{path} is no index of pictures: name another file ('fovea index DIR --out FILE' makes one)")
    found, end = list[Record](), stream.tell()
    while (head := stream.readline(LONGEST)).endswith(b"\n"):
        parts = HEAD.fullmatch(head)
        if parts is None or int(parts[5], 16) != crc32(parts[1]):
            raise damaged(path)
        text, values = stream.read(int(parts[3])), stream.read(int(parts[4]))
        if not stream.read(1):
            return found, end
        if crc32(values, crc32(text)) != int(parts[2], 16):
            raise damaged(path)
        found.append(Record(json.loads(text), values))
        end = stream.tell()
    if len(head) == LONGEST:
        raise damaged(path)
    return found, end


def append(stream: IO[bytes], about: Mapping[str, Any], values: bytes = b"") -> None:
    """On the disk when this returns."""
    _write(stream, Record(dict(about), values).packed())


def begin(stream: IO[bytes]) -> None:
    """An empty file that says what it is."""
    stream.truncate(0)
    _write(stream, FIRST)


def rewrite(path: Path, records: Iterable[Record]) -> None:
    """Other records in place of the file's, all of them or none."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as stream:
        stream.write(FIRST)
        for one in records:
            stream.write(one.packed())
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def _write(stream: IO[bytes], content: bytes) -> None:
    stream.write(content)
    stream.flush()
    os.fsync(stream.fileno())


def damaged(path: Path) -> FoveaError:
    return FoveaError(f"{path} is damaged: make it anew with fresh=True ('fovea index DIR --out {path} --fresh')")
