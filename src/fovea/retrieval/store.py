"""The file of an index: SQLite with one row per picture, so that a kill costs no batch that is finished.

Every row has a checksum, since SQLite notices when a page is damaged, but not a number on it.
"""

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fovea.basics import FoveaError, checksum

NAME = "index.fovea"  # of an index in a folder
OLD = b"fovea index 1\n"  # how files of the version before begin
FIRST, KIND = b"SQLite format 3\0", 0x464F5645  # how these begin; what says that it is an index, at byte 68
Stamp = tuple[int, ...]  # what changes when a picture does: its size in bytes, when it was written


@dataclass(frozen=True)
class Row:
    """A picture with its embedding, or with the reason why it has none."""

    stamp: Stamp
    vector: NDArray[np.float32] | None = field(default=None, repr=False)  # D
    reason: str = ""

    def packed(self, name: str) -> tuple[bytes | int | None, ...]:
        """Names and reasons as bytes, since a file's name need not be text."""
        vector = None if self.vector is None else self.vector.astype("<f4").tobytes()
        cells = os.fsencode(name), json.dumps(self.stamp).encode(), vector, os.fsencode(self.reason)
        return *cells, checksum(cells)


@dataclass
class Held:
    """What a file holds: about the whole index, and its pictures by their names, which are paths below its folder."""

    about: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def kept(self) -> dict[str, Row]:
        return {name: row for name, row in self.rows.items() if row.vector is not None}

    @property
    def lost(self) -> dict[str, Row]:
        return {name: row for name, row in self.rows.items() if row.vector is None}


@dataclass(frozen=True)
class Store:
    """A file that is open for writing, by this process alone."""

    path: Path
    connection: sqlite3.Connection

    def read(self) -> Held:
        return _held(self.connection, self.path)

    def write(self, about: Mapping[str, Any], rows: Mapping[str, Row], dropped: Iterable[str] = ()) -> None:
        """All of it or nothing; on the disk when this returns."""
        text = json.dumps(about).encode()
        try:
            self._write(text, rows, dropped)
        except sqlite3.OperationalError as error:
            raise FoveaError(f"{self.path} cannot be written: {error}") from None

    def _write(self, text: bytes, rows: Mapping[str, Row], dropped: Iterable[str]) -> None:
        with self.connection as run:
            if _is_new(run):
                run.executescript(
                    f"PRAGMA auto_vacuum = FULL; BEGIN; PRAGMA application_id = {KIND};"
                    "CREATE TABLE about (one INTEGER PRIMARY KEY, text BLOB, checksum INTEGER);"
                    "CREATE TABLE pictures (name BLOB PRIMARY KEY, stamp BLOB, vector BLOB, reason BLOB,"
                    " checksum INTEGER) WITHOUT ROWID;"
                )
            run.executemany("DELETE FROM pictures WHERE name = ?", ((os.fsencode(name),) for name in dropped))
            packed = (row.packed(name) for name, row in rows.items())
            run.executemany("INSERT OR REPLACE INTO pictures VALUES (?, ?, ?, ?, ?)", packed)
            run.execute("INSERT OR REPLACE INTO about VALUES (1, ?, ?)", (text, checksum((text,))))


def file_of(path: str | os.PathLike[str]) -> Path:
    """The index that a path stands for: the file itself, or the one in a folder."""
    given = Path(path).expanduser()
    return given / NAME if given.is_dir() or str(path).endswith(os.sep) else given


def read(path: Path) -> Held:
    """What is finished of a file, while it is being written too."""
    with closing(_connected(path, "ro")) as connection:
        return _held(connection, path)


@contextmanager
def writing(path: Path, fresh: bool = False) -> Iterator[Store]:
    """The file, made where there is none, until this process ends however it does; `fresh` forgets what it holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as lock:  # closed last: closing any handle of a file would drop what SQLite locks
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FoveaError(f"another process is writing {path}: wait until it has finished") from None
        head = _head(path)
        if fresh and (not head or head.startswith(OLD) or (head[:16], head[68:]) == (FIRST, KIND.to_bytes(4))):
            lock.truncate(0)
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        with closing(_connected(path, "rw")) as connection:
            yield Store(path, connection)


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}", timeout=60, uri=True)


def _held(connection: sqlite3.Connection, path: Path) -> Held:
    try:
        connection.execute("BEGIN")  # what is written meanwhile is not seen by halves
        if _is_new(connection):
            connection.rollback()
            return Held()
        if connection.execute("PRAGMA application_id").fetchone()[0] != KIND:
            raise _no_index(path)
        rows = list(connection.execute("SELECT * FROM pictures"))
        about = list(connection.execute("SELECT text, checksum FROM about"))
        sound = connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        connection.rollback()
    except sqlite3.DatabaseError as error:
        head = _head(path)
        if head.startswith(OLD):
            raise FoveaError(f"{path} is an index of an older version: {_anew(path)}") from None
        if not head.startswith(FIRST):
            raise _no_index(path) from None
        if "locked" in str(error):
            raise FoveaError(f"{path} is being written: try again") from None
        sound = False
    if not sound or any(checksum(cells) != known for *cells, known in [*rows, *about]):
        raise FoveaError(f"{path} is damaged: {_anew(path)}")
    pictures = {
        os.fsdecode(name): Row(
            tuple(json.loads(stamp)), None if vector is None else np.frombuffer(vector, "<f4"), os.fsdecode(reason)
        )
        for name, stamp, vector, reason, _ in rows
    }
    return Held(json.loads(about[0][0]), pictures)


def _is_new(connection: sqlite3.Connection) -> bool:
    """Empty, or killed before anything was finished."""
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(72)


def _anew(path: Path) -> str:
    return f"make it anew with fresh=True ('fovea index DIR --out {path} --fresh')"


def _no_index(path: Path) -> FoveaError:
    return FoveaError(f"{path} is no index of pictures: name another file ('fovea index DIR --out FILE' makes one)")
