"""A SQLite file of fovea's, from which nothing is taken on trust: one writer at a time, a checksum on every row.

SQLite notices when a page is damaged, but not a number on it. A file that was made to do harm may hold views, triggers,
pages that are in use a thousand times, or name a file to delete in the journal beside it: the file's head, what lies
beside it, its tables and its pages are checked before a row is read."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fovea.basics.errors import Damaged, FoveaError
from fovea.basics.files import locked
from fovea.basics.records import checksum

FIRST, ROLLED_BACK = b"SQLite format 3\0", b"\1\1"  # how a file begins; that it has a journal, not a log, at byte 18
SEVERAL = bytes.fromhex("d9d505f920a163d7")  # how a journal ends that belongs to several files, and may delete one
ABOUT = "CREATE TABLE about (one INTEGER PRIMARY KEY, text BLOB, checksum INTEGER)"
LONGEST = 2**26  # bytes of a row
PASSING = {
    sqlite3.SQLITE_BUSY: "another process is writing it: try again",
    sqlite3.SQLITE_READONLY: "it may not be written, or writing was cut off: run what wrote it again",
    sqlite3.SQLITE_CANTOPEN: "it, or the journal beside it, cannot be opened",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk gives an error",
}
Cell = bytes | int | None


@dataclass(frozen=True)
class Format:
    """A kind of files: what it is, its mark at byte 68, the columns of its one table of pictures, the key first, and
    what to do about a damaged one ({path} is put in)."""

    what: str
    mark: int
    columns: str
    remedy: str
    older: bytes | None = None  # how files of an older version begin

    @property
    def tables(self) -> list[str]:
        return [ABOUT, f"CREATE TABLE pictures {self.columns}"]

    def is_head(self, head: bytes) -> bool:
        return (head[:16], head[18:20], head[68:72]) == (FIRST, ROLLED_BACK, self.mark.to_bytes(4))


@dataclass(frozen=True)
class Database:
    """A file that is open."""

    path: Path
    format: Format
    connection: sqlite3.Connection

    def damaged(self, what: str = "") -> Damaged:
        return _damaged(self.path, self.format, what)

    @property
    def remedy(self) -> str:
        return self.format.remedy.format(path=self.path)

    @contextmanager
    def reading(self) -> Iterator[bytes | None]:
        """What the file says about itself, None where it is new. In the block nothing that is written meanwhile shows,
        and whatever SQLite refuses is said."""
        try:
            self.connection.execute("BEGIN")
            yield self._about()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # what is said of a damaged name is no text
            words = PASSING.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
            if words is None:
                raise self.damaged(str(error)) from None
            raise FoveaError(f"{self.path} cannot be read: {words} ({error})") from None
        finally:
            self.connection.rollback()

    def _about(self) -> bytes | None:
        if self._is_new():
            return None
        if {sql for (sql,) in self.rows("SELECT sql FROM sqlite_master")} != set(map(str.encode, self.format.tables)):
            raise self.damaged("other tables")
        (found,) = next(self.rows("PRAGMA quick_check(1)"))
        if found != b"ok":
            raise self.damaged(f"pages that do not fit: {found!r}")
        about = [text for (text,) in self.checked("SELECT text, checksum FROM about") if isinstance(text, bytes)]
        if len(about) != 1:
            raise self.damaged("nothing about itself")
        return about[0]

    def _is_new(self) -> bool:
        """Empty, or killed before anything was finished."""
        return next(self.rows("SELECT count(*) FROM sqlite_master")) == (0,)

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """What SQLite gives, unchecked."""
        return iter(self.connection.execute(statement))

    def checked(self, statement: str = "SELECT * FROM pictures") -> Iterator[tuple[Any, ...]]:
        """Whole rows of bytes, numbers and None without their checksums, which are right."""
        for *cells, known in self.rows(statement):
            if any(isinstance(cell, float) for cell in cells) or _with_checksum(cells)[-1] != known:
                raise self.damaged("a wrong checksum")
            yield tuple(cells)

    def write(self, about: bytes, rows: Iterable[tuple[Cell, ...]] = (), dropped: Iterable[Cell] = ()) -> None:
        """All of it or nothing; on the disk when this returns."""
        columns = self.format.columns
        try:
            with self.connection as run:
                if self._is_new():
                    tables = ";".join(self.format.tables)
                    mark = f"PRAGMA application_id = {self.format.mark}"
                    run.executescript(f"BEGIN; PRAGMA auto_vacuum = FULL; {mark}; {tables}")
                key, places = columns[1:].split()[0], ", ".join("?" * (columns.count(",") + 1))
                run.executemany(f"DELETE FROM pictures WHERE {key} = ?", ((cell,) for cell in dropped))
                run.executemany(f"INSERT OR REPLACE INTO pictures VALUES ({places})", map(_with_checksum, rows))
                run.execute("INSERT OR REPLACE INTO about VALUES (1, ?, ?)", _with_checksum((about,)))
        except sqlite3.Error as error:
            raise FoveaError(f"{self.path} cannot be written: {error}") from None


@contextmanager
def reading(path: Path, format: Format) -> Iterator[Database]:
    """The file as far as it is finished, while it is being written too."""
    with open(path, "rb") as file:  # closed last: closing any handle of a file would drop what SQLite locks
        yield from _opened(path, format, file.fileno(), "ro")


@contextmanager
def writing(path: Path, format: Format, fresh: bool = False, wait: bool = False) -> Iterator[Database]:
    """The file, made where there is none, for this process alone; `fresh` forgets what it holds, `wait` lets another
    process finish first, which is refused otherwise."""
    if path.is_dir():
        raise FoveaError(f"{path} is a folder: name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path, wait) as handle:
        head = os.pread(handle, 100, 0)
        if fresh and (format.is_head(head) or (format.older and head.startswith(format.older))):
            for other in _beside(path):
                other.unlink(missing_ok=True)
            os.truncate(handle, 0)
        yield from _opened(path, format, handle, "rw")


def _opened(path: Path, format: Format, handle: int, mode: str) -> Iterator[Database]:
    head = os.pread(handle, 100, 0)
    if head and not format.is_head(head):
        if format.older and head.startswith(format.older):
            raise _damaged(path, format, "an older version")
        raise Damaged(f"{path} is no {format.what}, or its beginning is damaged: name another file, or remove this one")
    journal, log = _beside(path)
    if log.exists() or (journal.is_file() and _ends_with(journal, SEVERAL)):
        raise _damaged(path, format, f"what lies beside it, {path.name}-*, is not fovea's")
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    try:
        opened = sqlite3.connect(address, timeout=60, uri=True)
    except sqlite3.Error as error:
        raise FoveaError(f"{path} cannot be opened: {error}") from None
    with closing(opened) as connection:
        connection.text_factory = bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", f"query_only = {int(mode == 'ro')}"):
            connection.execute(f"PRAGMA {pragma}")
        yield Database(path, format, connection)


def _beside(path: Path) -> tuple[Path, Path]:
    """Where SQLite looks for a journal and for a log: beside the file that a link leads to."""
    return Path(f"{os.path.realpath(path)}-journal"), Path(f"{os.path.realpath(path)}-wal")


def _ends_with(path: Path, words: bytes) -> bool:
    with open(path, "rb") as file:
        return os.pread(file.fileno(), len(words), max(path.stat().st_size - len(words), 0)) == words


def _damaged(path: Path, format: Format, what: str) -> Damaged:
    return Damaged(f"{path} is damaged, or of another version ({what}): {format.remedy.format(path=path)}")


def _with_checksum(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    return *cells, checksum(b"%d" % cell if isinstance(cell, int) else cell for cell in cells)
