"""Files of one small format: what is not as fovea writes it is refused before a row of it is used."""

import multiprocessing
import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import raises
from fovea.basics import Damaged, Format, FoveaError
from fovea.basics.database import reading, writing

FORMAT = Format("diary", 0x12345678, "(day INTEGER PRIMARY KEY, words BLOB, checksum INTEGER)", "write {path} anew")
ROWS = [(day, b"words of day %d" % day) for day in range(40)]


def filled(path: Path, rows: list[tuple[int, bytes]] = ROWS) -> Path:
    with writing(path, FORMAT) as database:
        database.write(b"about", rows)
    return path


def held(path: Path) -> tuple[bytes | None, list[Any]]:
    with reading(path, FORMAT) as database, database.reading() as about:
        return about, list(database.checked()) if about else []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return filled(tmp_path / "diary")


def test_what_is_written_is_read(file: Path, tmp_path: Path) -> None:
    assert held(file) == (b"about", ROWS)
    with writing(file, FORMAT) as database:
        database.write(b"more", [(3, b"other words")], dropped=[4])
    about, rows = held(file)
    assert (about, len(rows), rows[3]) == (b"more", 39, (3, b"other words"))
    assert [path.name for path in tmp_path.iterdir()] == ["diary"]
    with writing(file, FORMAT, fresh=True) as database, database.reading() as about:
        assert about is None


@pytest.mark.parametrize("content", [b"?", b"SQLite format 3\0", b"dear diary " * 20, bytes(4096)])
def test_what_is_no_such_file_is_left_alone(content: bytes, tmp_path: Path) -> None:
    """One byte is an empty file to SQLite."""
    path = tmp_path / "letter"
    path.write_bytes(content)
    for fresh in (False, True):
        with pytest.raises(Damaged, match=r"is no diary.*name another"), writing(path, FORMAT, fresh):
            pass
    raises(Damaged, "is no diary", held, path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "there" if kind != "device" else Path(os.devnull)
    if kind == "fifo":
        os.mkfifo(path)
    if kind == "folder":
        path.mkdir()
    with pytest.raises(FoveaError), writing(path, FORMAT):
        pass


@pytest.mark.parametrize(
    "change",
    [
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON pictures BEGIN DELETE FROM about; END",
        "CREATE TABLE more (day)",
        "CREATE VIRTUAL TABLE more USING fts5(words)",
        "CREATE INDEX more ON pictures (words)",
        "ALTER TABLE pictures ADD COLUMN more DEFAULT 1",
        "ALTER TABLE pictures RENAME TO more; CREATE VIEW pictures AS SELECT * FROM more",
        "DROP TABLE pictures",
        "DELETE FROM about",
        "INSERT INTO about SELECT 2, text, checksum FROM about",
        "UPDATE pictures SET words = 'words of day 6' WHERE day = 5",
        "UPDATE pictures SET day = 99 WHERE day = 5",
        "UPDATE pictures SET checksum = 1.5 WHERE day = 5",
        "UPDATE pictures SET words = 10 WHERE day = 5",
        "UPDATE pictures SET words = 0.5, checksum = NULL WHERE day = 5",
    ],
)
def test_other_tables_and_other_rows_are_refused(change: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(change)
    raises(Damaged, "is damaged.*write .*diary anew", held, file)


def page_of(content: bytes, number: int) -> slice:
    size = int.from_bytes(content[16:18])
    return slice((number - 1) * size, number * size)


def test_a_page_that_is_in_use_many_times_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A small file could hold any number of rows like that, each with a checksum that is right."""
    path = filled(tmp_path / "diary", [(day, bytes(900)) for day in range(400)])
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'pictures'").fetchone()
    top = bytearray(content[page_of(content, root)])
    assert top[0] == 5  # a page of places of pages
    cells = struct.unpack(f">{int.from_bytes(top[3:5])}H", top[12 : 12 + 2 * int.from_bytes(top[3:5])])
    for cell in cells:
        top[cell : cell + 4] = top[cells[0] : cells[0] + 4]
    content[page_of(content, root)] = top
    path.write_bytes(content)
    read = []
    with pytest.raises(Damaged), reading(path, FORMAT) as database, database.reading():
        read.append(1)
    assert not read


def stopped(folder: Path) -> Path:
    """A file with the journal of a writer that was killed while pages of a change had reached the disk."""
    path, copy = filled(folder / "whole"), folder / "diary"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.executemany("INSERT INTO pictures VALUES (?, ?, 0)", ((day, bytes(3000)) for day in range(50, 90)))
        for end in ("", "-journal"):
            (folder / f"diary{end}").write_bytes((folder / f"whole{end}").read_bytes())
    return copy


def test_a_killed_writer_is_undone_by_the_next(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    raises(FoveaError, "cannot be read: .*run what wrote it again", held, path)
    with writing(path, FORMAT) as database, database.reading():
        assert len(list(database.checked())) == len(ROWS)
    assert held(path)[1] == held(tmp_path / "whole")[1]


@pytest.mark.parametrize("linked", [False, True])
def test_a_journal_that_names_a_file_to_delete_is_refused(linked: bool, tmp_path: Path) -> None:
    """After undoing, SQLite deletes the file that the end of a journal names, whatever it is."""
    path, victim = stopped(tmp_path), tmp_path / "victim"
    if linked:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    victim.write_text("precious")
    name = str(victim).encode()
    end = struct.pack(">I", 2**30 // 4096 + 1) + name + struct.pack(">II", len(name), sum(name))
    with open(tmp_path / "diary-journal", "ab") as journal:
        journal.write(end + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(Damaged, match="beside it"), writing(path, FORMAT) as database, database.reading():
        pass
    assert victim.read_text() == "precious"


def test_a_log_beside_it_is_refused(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    (tmp_path / "diary-wal").write_bytes(b"")
    raises(Damaged, "beside it", held, file)
    (tmp_path / "diary-wal").unlink()
    file.write_bytes(content[:18] + b"\2\2" + content[20:])
    raises(Damaged, "is no diary", held, file)
    assert [path.name for path in tmp_path.iterdir()] == ["diary"]


def test_a_table_whose_name_is_no_text_is_refused(file: Path) -> None:
    """What SQLite says of it is none either."""
    file.write_bytes(file.read_bytes().replace(b"tablepictures", b"table\xe1ictures"))
    raises(Damaged, "is damaged", held, file)


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, 10**6), by=st.integers(1, 255))
def test_no_flipped_byte_changes_what_is_read(at: int, by: int, good: tuple[Path, bytes]) -> None:
    path, content = good
    changed = bytearray(content)
    changed[at % len(content)] ^= by
    path.write_bytes(changed)
    try:
        found = held(path)
    except Damaged:
        return
    assert found == (b"about", ROWS)


@settings(max_examples=100, deadline=None)
@given(length=st.integers(1, 10**6))
def test_a_file_that_is_cut_is_refused(length: int, good: tuple[Path, bytes]) -> None:
    path, content = good
    path.write_bytes(content[: length % (len(content) - 1) + 1])
    raises(Damaged, "damaged", held, path)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = filled(tmp_path_factory.mktemp("good") / "diary")
    return path, path.read_bytes()


def test_a_disk_that_fails_is_not_called_damage(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(file, FORMAT) as database:

        def fails(statement: str) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

        monkeypatch.setattr(type(database), "rows", lambda self, statement: fails(statement))
        with pytest.raises(FoveaError, match="cannot be read: the disk gives an error") as said, database.reading():
            pass
        assert not isinstance(said.value, Damaged)


def hold(path: Path, started: Callable[[], None], end: Callable[[], None]) -> None:
    with writing(path, FORMAT):
        started()
        end()


def test_one_writer_at_a_time(file: Path) -> None:
    context = multiprocessing.get_context("fork")
    started, end = context.Event(), context.Event()
    other = context.Process(target=hold, args=(file, started.set, end.wait))
    other.start()
    started.wait()
    with pytest.raises(FoveaError, match="another process is writing"), writing(file, FORMAT):
        pass
    assert held(file)[0] == b"about"
    end.set()
    with writing(file, FORMAT, wait=True) as database, database.reading() as about:
        assert about == b"about"
    other.join()
