import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fovea
from checks import raises
from fovea.basics import Damaged, FoveaError
from fovea.data import DataSet
from fovea.evidence.audit import Audit
from fovea.evidence.audit.examined import WIDTH, Examination, Examined, TriedPatch
from fovea.evidence.audit.store import NAME, AuditStore, opened
from made_audit import LABELS, PREPARE, colors, planted_set

ODD = [os.fsdecode(b"caf\xe9\x1b[2J\n.png"), 'a\u2028\U0001f600 \\".png', "\u00e9/x.png", "e\u0301/x.png", " "]


def row(name: str = "a.png", count: int = 2, **changed: Any) -> tuple[Examined, np.ndarray]:
    """Numbers that take all of their digits."""
    third = 1 / 3
    patches = tuple(
        TriedPatch(box=(0, third, 7e22, 0.1), center=(third, 2 / 3), evidence=-1e-12 * i, alone=third, carries=bool(i),
                   needed=not i, inside=None if i else third)
        for i in range(count)
    )  # fmt: skip
    usual: dict[str, Any] = {
        "truth": None, "answer": 3, "runner_up": 1, "probability": 0.1 + 0.2, "margin": 1e-300, "told_by": third,
        "patches": patches,
    }  # fmt: skip
    made = Examined(name=name, **(usual | changed))
    vectors = np.random.default_rng(count).normal(size=(count, WIDTH)).astype(np.float32)
    return made, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def fill(folder: Path, rows: Sequence[tuple[Examined, np.ndarray]], asked: str = "this", **skipped: str) -> Path:
    with opened(folder, asked) as store:
        store.add(rows, {f"{name}.png": reason for name, reason in skipped.items()})
    return folder / NAME


def held(folder: Path, asked: str = "this") -> list[tuple[Examined, np.ndarray]]:
    with opened(folder, asked) as store:
        return list(store.rows())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    given = [row("b.png"), row("a.png", 4, truth=2, inside=1 / 7, without=0), row("c.png", 1)]
    fill(tmp_path, given, lost="no picture: \u00e9")
    found = held(tmp_path)
    assert [one for one, _ in found] == [given[1][0], given[0][0], given[2][0]]  # by name, to the last digit
    for (_, vectors), (_, wanted) in zip(found, (given[1], given[0], given[2]), strict=True):
        np.testing.assert_array_equal(vectors, wanted.astype(np.float16))
    with opened(tmp_path, "this") as store:
        assert store.known() == {"a.png": "", "b.png": "", "c.png": "", "lost.png": "no picture: \u00e9"}


def test_names_of_any_bytes(tmp_path: Path) -> None:
    fill(tmp_path, [row(name) for name in ODD])
    assert {one.name for one, _ in held(tmp_path)} == set(ODD)
    with opened(tmp_path, "this") as store:
        assert store.known().keys() == set(ODD)
        store.add([], {name: f"{name} cannot be read" for name in ODD})
        assert store.known() == {name: f"{name} cannot be read" for name in ODD}
        assert list(store.rows()) == []


def test_batches_add_up_and_the_last_word_counts(tmp_path: Path) -> None:
    fill(tmp_path, [row("a.png"), row("b.png")])
    fill(tmp_path, [row("c.png"), row("a.png", answer=1)])
    assert [(one.name, one.answer) for one, _ in held(tmp_path)] == [("a.png", 1), ("b.png", 3), ("c.png", 3)]


def test_a_picture_without_patches(tmp_path: Path) -> None:
    fill(tmp_path, [row(count=0)])
    ((one, vectors),) = held(tmp_path)
    assert (one.patches, vectors.shape) == ((), (0, WIDTH))


def test_nothing_yet(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "folder", "this") as store:
        assert store.known() == {}
        assert list(store.rows()) == []


def test_what_was_asked_otherwise_is_forgotten(tmp_path: Path) -> None:
    fill(tmp_path, [row("a.png")])
    assert held(tmp_path, "other") == []
    fill(tmp_path, [row("b.png")], "other")
    assert [one.name for one, _ in held(tmp_path, "other")] == ["b.png"]
    assert held(tmp_path) == []


def changed(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def told(statement: str, *cells: object) -> Callable[[Path], None]:
    """Something that SQLite itself takes."""

    def harm(path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute(statement, cells)
        connection.close()

    return harm


HARM: dict[str, Callable[[Path], None]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a number": lambda path: changed(path, b'"answer": 3', b'"answer": 2'),
    "a name": lambda path: changed(path, b"a.png", b"z.png"),
    "other asked": lambda path: changed(path, b'"asked"', b'"aksed"'),
    "vectors": told("UPDATE pictures SET vectors = zeroblob(7)"),
    "a column": told("ALTER TABLE pictures ADD COLUMN more"),
    "a table": told("CREATE TABLE more (a)"),
    "nothing about itself": told("DELETE FROM about"),
    "text": lambda path: path.write_text("hello"),
    "another database": lambda path: (path.unlink(), told("CREATE TABLE a (b)")(path))[0],
}


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_file_is_told_as_such(harm: str, tmp_path: Path) -> None:
    """And nothing of it is read, nor written over."""
    path = fill(tmp_path, [row("a.png"), row("b.png")])
    HARM[harm](path)
    before = path.read_bytes()
    with pytest.raises(Damaged, match=NAME) as refused:
        held(tmp_path)
    assert "\n" not in str(refused.value)
    assert "remove" in str(refused.value)
    assert path.read_bytes() == before
    path.unlink()
    assert held(tmp_path) == []


def test_vectors_of_another_width(tmp_path: Path) -> None:
    one, vectors = row("a.png")
    fill(tmp_path, [(one, vectors[:, :32])])
    raises(Damaged, "a.png has vectors of another width", held, tmp_path)


def test_for_one_process_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path, "this"):
        raises(FoveaError, "another process is writing", held, tmp_path)
    assert held(tmp_path) == []


@pytest.mark.parametrize("name", ["file", "file/below", "a\0b"])
def test_what_is_no_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    raises(FoveaError, "is no folder to write to: .*; name another$", held, tmp_path / name)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pictures that were examined."""
    names, whole = list[str](), Examination.examined

    def examined(self: Examination) -> Any:
        names.extend(picture.name for picture in self.shown)
        return whole(self)

    monkeypatch.setattr(Examination, "examined", examined)
    return names


def audited(network: fovea.Network, data: DataSet, folder: Path, boxed: bool = True, stop: int | None = None) -> Any:
    """Rows, of an audit that may be stopped once so many pictures are done."""

    def progress(done: int, total: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    found = Audit(network, data, boxed).run(folder, 2, progress)
    return [item.to_dict() for item in found], found.skipped


def test_an_audit_that_was_stopped_goes_on(tmp_path: Path, looked: list[str]) -> None:
    data = planted_set(count=4)
    names = [sample.name for sample in data.samples]
    with suppress(KeyboardInterrupt):
        audited(colors(), data, tmp_path / "stopped", stop=8)
    assert looked == names[:8]
    looked.clear()
    found = audited(colors(), data, tmp_path / "stopped")
    assert looked == names[8:]
    assert found == audited(colors(), data, tmp_path / "whole")
    looked.clear()
    assert audited(colors(), data, tmp_path / "stopped") == found
    assert looked == []


def test_more_pictures_are_added(tmp_path: Path, looked: list[str]) -> None:
    """A part first, then all: what was done counts; and of all, no more than are asked for."""
    data = planted_set(count=4)
    part = audited(colors(), data.first(5), tmp_path)
    assert len(looked) == 5
    whole = audited(colors(), data, tmp_path)
    assert sorted(looked) == sorted(sample.name for sample in data.samples)
    assert audited(colors(), data.first(5), tmp_path) == part
    assert len(looked) == 12
    assert sum(row["pictures"] for row in whole[0][1:]) == 12
    assert sum(row["pictures"] for row in part[0][1:]) == 5


def other_weights(network: fovea.Network) -> fovea.Network:
    with torch.no_grad():
        network.module.fc.bias[3] += 1e-3
    return network


OTHERWISE: dict[str, tuple[Callable[[], fovea.Network], bool, str]] = {
    "weights": (lambda: other_weights(colors()), True, "planted"),
    "boxes": (colors, False, "planted"),
    "transform": (lambda: colors(transform=replace(PREPARE, std=(0.5,) * 3)), True, "planted"),
    "labels": (lambda: colors(LABELS[::-1]), True, "planted"),
    "layer": (lambda: replace(colors(), layer="cells.0"), True, "planted"),
    "temperature": (lambda: replace(colors(), temperature=2.0), True, "planted"),
    "data": (colors, True, "other"),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_another_audit_starts_anew(what: str, tmp_path: Path, looked: list[str]) -> None:
    make, boxed, name = OTHERWISE[what]
    audited(colors(), planted_set(count=1), tmp_path)
    found = audited(make(), planted_set(name, count=1), tmp_path, boxed)
    assert len(looked) == 6
    assert found == audited(make(), planted_set(name, count=1), tmp_path / "new", boxed)


def test_what_could_not_be_read_is_remembered(tmp_path: Path, looked: list[str]) -> None:
    data = planted_set(count=2)
    lost = replace(data.samples[3], source=fovea.data.Unreadable("a broken file"))
    data = replace(data, samples=(*data.samples[:3], lost, *data.samples[4:]))
    first = audited(colors(), data, tmp_path)
    assert first[1] == ((lost.name, "a broken file"),)
    assert audited(colors(), data, tmp_path) == first
    assert len(looked) == 5


def test_no_batch_is_lost_that_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added is on the disk before the next batch begins."""
    seen, whole = list[int](), AuditStore.add

    def add(self: AuditStore, *given: Any) -> None:
        with sqlite3.connect(f"file:{tmp_path / NAME}?mode=ro", uri=True) as connection:
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            seen.append(connection.execute("SELECT count(*) FROM pictures").fetchone()[0] if tables else 0)
        whole(self, *given)

    monkeypatch.setattr(AuditStore, "add", add)
    audited(colors(), planted_set(count=2), tmp_path)
    assert seen == [0, 2, 4]


def test_a_picture_that_was_replaced_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"one")
    with opened(tmp_path, "asked") as store:
        store.add([], {str(file): "it is no picture"})
        assert store.known() == {str(file): "it is no picture"}
        file.write_bytes(b"another")
        assert store.known() == {}
