"""Thirteen pictures in batches of four: a kill at any moment costs no finished batch, and the rows end the same."""

import json
import math
import multiprocessing
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fovea import BadChoice, FoveaError, cli
from fovea.basics import BadPicture
from fovea.basics.database import writing
from fovea.data import DataSet, Pixels, Sample, Unreadable, open_data, pictures_of
from fovea.patches import Patches, cache, default_file, extract, open_source
from fovea.patches.sheet import sheet

COUNT, BATCH = 13, 4


@dataclass(frozen=True)
class Logged:
    """Writes down every picture that it looks at, by its shade."""

    log: Path
    seconds: float = 0.0
    text: str = "logged"

    def __call__(self, images: Sequence[Image.Image]) -> list[Patches]:
        found = []
        for image in images:
            shade = image.convert("L").getpixel((0, 0))
            assert isinstance(shade, int)
            with open(self.log, "a") as log:
                log.write(f"{shade}\n")
            time.sleep(self.seconds)
            found.append(Patches(((shade / 3, 0.0, 20.0, 10.0),), (shade / 7,)))
        return found

    def looked_at(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()] if self.log.is_file() else []


def shaded(shade: int) -> Sample:
    return Sample(f"ä/{shade}.png", 0, Pixels(np.full((10, 20), shade, dtype=np.uint8)))


@pytest.fixture
def data() -> DataSet:
    return DataSet("shades", tuple(map(shaded, range(COUNT))), ("shade",))


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of finished batches; SQLite itself undoes what a kill left of another."""
    if not file.is_file():
        return []
    with closing(sqlite3.connect(file)) as store:
        tables = store.execute("SELECT name FROM sqlite_master").fetchall()
        rows = store.execute("SELECT content FROM pictures ORDER BY place") if tables else ()
        return [json.loads(content) for (content,) in rows]


def finished(file: Path) -> set[int]:
    return {int(row["name"][2:-4]) for row in rows_of(file)}


@pytest.fixture
def whole(data: DataSet, tmp_path: Path) -> list[dict[str, Any]]:
    """What an uninterrupted run writes."""
    extract(data, Logged(tmp_path / "whole.log"), tmp_path / "whole.sqlite", BATCH)
    return rows_of(tmp_path / "whole.sqlite")


def test_one_row_per_picture(whole: list[dict[str, Any]]) -> None:
    assert len(whole) == COUNT
    assert whole[1] == {"name": "ä/1.png", "boxes": [[0.33, 0.0, 20.0, 10.0]], "scores": [1 / 7]}


def test_read_again_it_is_the_same_and_nothing_is_looked_at(data: DataSet, tmp_path: Path) -> None:
    source, told = Logged(tmp_path / "log"), []
    first = extract(data, source, tmp_path / "f.sqlite", BATCH, progress=lambda *one: told.append(one))
    assert (first.already, len(first)) == (0, COUNT)
    assert told == [(0, 13), (4, 13), (8, 13), (12, 13), (13, 13)]
    again = extract(data, source, tmp_path / "f.sqlite", BATCH)
    assert again == first
    assert again["ä/3.png"] == Patches(((1.0, 0.0, 20.0, 10.0),), (3 / 7,))
    assert again.already == COUNT
    assert source.looked_at() == list(range(COUNT))


def test_a_file_cut_off_is_damaged_and_an_empty_one_is_new(
    data: DataSet, whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    file, content = tmp_path / "cut.sqlite", (tmp_path / "whole.sqlite").read_bytes()
    for cut in sorted({2, 50, 100, 5000, *range(4096, len(content), 4096), len(content) - 1}):
        file.write_bytes(content[:cut])
        with pytest.raises(FoveaError, match="damaged"):
            extract(data, Logged(tmp_path / "log"), file, BATCH)
        assert file.read_bytes() == content[:cut]
    assert extract(data, Logged(tmp_path / "log"), file, BATCH, fresh=True).already == 0
    assert rows_of(file) == whole
    file.write_bytes(b"")
    assert extract(data, Logged(tmp_path / "log"), file, BATCH).already == 0


def test_killed_at_several_moments_it_ends_as_if_nothing_had_happened(
    data: DataSet, whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    file, source = tmp_path / "killed.sqlite", Logged(tmp_path / "killed.log", seconds=0.01)
    for more in (1, 5, 2, 4, 3):  # pictures looked at before the kill
        before, kept = len(source.looked_at()), finished(file)
        work = multiprocessing.get_context("fork").Process(target=extract, args=(data, source, file, BATCH))
        work.start()
        while work.is_alive() and len(source.looked_at()) < before + more:
            time.sleep(0.001)
        assert work.pid is not None
        os.kill(work.pid, signal.SIGKILL)
        work.join()
        assert not kept & set(source.looked_at()[before:])
        assert kept <= finished(file)
    before, kept = len(source.looked_at()), finished(file)
    assert 0 < len(kept) < COUNT
    extract(data, source, file, BATCH)
    assert rows_of(file) == whole
    assert set(source.looked_at()[before:]) == set(range(COUNT)) - kept


def test_of_several_processes_one_works_and_the_others_read(
    data: DataSet, whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    file, source = tmp_path / "shared.sqlite", Logged(tmp_path / "shared.log", seconds=0.005)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=extract, args=(data, source, file, BATCH)) for _ in range(3)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert [one.exitcode for one in workers] == [0, 0, 0]
    assert rows_of(file) == whole
    assert source.looked_at() == list(range(COUNT))


def test_a_picture_that_cannot_be_read_is_reported_and_not_tried_again(data: DataSet, tmp_path: Path) -> None:
    bad = replace(data, samples=(*data.samples[:2], Sample("bad.png", 0, Unreadable("bad.png is torn"))))
    for _ in range(2):
        found = extract(bad, Logged(tmp_path / "log"), tmp_path / "f.sqlite", BATCH)
        assert found.skipped == (("bad.png", "bad.png is torn"),)
        assert list(found) == ["ä/0.png", "ä/1.png"]
    with pytest.raises(BadPicture, match=r"no picture of shades could be read: bad\.png is torn"):
        extract(replace(data, samples=bad.samples[2:]), Logged(tmp_path / "log"), tmp_path / "g.sqlite")


def test_other_settings_are_refused_and_named_until_fresh(data: DataSet, tmp_path: Path) -> None:
    file, source = tmp_path / "f.sqlite", Logged(tmp_path / "log")
    extract(data, source, file, BATCH)
    before = file.read_bytes()
    others = [
        (data, replace(source, text="another"), BATCH, "source 'logged', not 'another'"),
        (data, source, 5, "batch 4, not 5"),
        (data.first(6), source, BATCH, "pictures 13, not 6"),
        (replace(data, samples=data.samples[::-1]), source, BATCH, "names '"),
        (replace(data, name="tints"), source, BATCH, "data 'shades', not 'tints'"),
    ]
    for part, other, batch, says in others:
        with pytest.raises(FoveaError, match=says + r".*fresh=True \(--fresh\)"):
            extract(part, other, file, batch)
        assert file.read_bytes() == before
        assert default_file(part, other, batch) != default_file(data, source, BATCH)
    assert extract(data, source, file, 5, fresh=True).already == 0
    assert extract(data, source, file, 5).already == COUNT


@pytest.mark.parametrize("content", [b"dear diary", b"dear\ndiary\n", b"[1]\n", b'{"what": 1}\n', bytes(100)])
def test_what_is_no_file_of_patches_is_left_alone(content: bytes, data: DataSet, tmp_path: Path) -> None:
    file = tmp_path / "diary.txt"
    file.write_bytes(content)
    with pytest.raises(FoveaError, match="no file of patches"):
        extract(data, Logged(tmp_path / "log"), file, BATCH)
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE pictures SET content = '?' WHERE place = 1",
        "UPDATE pictures SET content = '[]' WHERE place = 1",
        "DELETE FROM pictures WHERE place = 1",
        "DELETE FROM pictures WHERE place = 12; DELETE FROM pictures WHERE place = 11",
        "UPDATE pictures SET place = 99 WHERE place = 12",
        "INSERT INTO pictures SELECT 13, content, checksum FROM pictures WHERE place = 12",
        "DELETE FROM about",
        "DROP TABLE pictures; CREATE TABLE pictures (diary TEXT)",
    ],
)
def test_damaged_rows_are_told(damage: str, data: DataSet, whole: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "whole.sqlite"
    with closing(sqlite3.connect(file)) as store:
        store.executescript(damage)
    with pytest.raises(FoveaError, match="damaged"):
        extract(data, Logged(tmp_path / "log"), file, BATCH)
    assert extract(data, Logged(tmp_path / "log"), file, BATCH, fresh=True).already == 0
    assert rows_of(file) == whole


ROW = {"name": "ä/0.png", "boxes": [[0.0, 0.0, 20.0, 10.0]], "scores": [0.5]}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"?", b"[]", b"null", b"[" * 100_000, json.dumps(ROW | {"boxes": [[0, 0, 20, float("nan")]]}).encode(),
        *(
            json.dumps(ROW | change).encode()
            for change in (
                {"boxes": [[20.0, 0.0, 0.0, 10.0]]}, {"boxes": [[0.0, 0.0, 1e300, 1.0]]}, {"boxes": [[0, 0, -5, 10]]},
                {"boxes": [[0, 0, 20]]}, {"boxes": []}, {"boxes": 5}, {"scores": []}, {"scores": ["x"]},
                {"scores": [float("inf")]}, {"name": "ä/1.png"}, {"name": 5}, {"more": 1}, {"skipped": "why"},
                {"boxes": [[0, 0, 10**400, 10]]},
            )
        ),
    ],
    ids=lambda content: content[:40].decode() + str(len(content)),
)  # fmt: skip
def test_rows_with_a_right_checksum_are_checked_all_the_same(content: bytes, data: DataSet, tmp_path: Path) -> None:
    file = extract(data, Logged(tmp_path / "log"), tmp_path / "f.sqlite", BATCH).file
    with writing(file, cache.FORMAT) as store:
        with store.reading() as about:
            assert about is not None
        store.write(about, [(0, content)])
    with pytest.raises(FoveaError, match=r"is damaged.*--fresh"):
        extract(data, Logged(tmp_path / "log"), file, BATCH)


def test_settings_with_a_right_checksum_are_checked_all_the_same(data: DataSet, tmp_path: Path) -> None:
    file = extract(data, Logged(tmp_path / "log"), tmp_path / "f.sqlite", BATCH).file
    for about in (b"?", b"{}", b'{"source": 5}', b"[" * 100_000):
        with writing(file, cache.FORMAT) as store:
            store.write(about)
        with pytest.raises(FoveaError, match=r"is damaged.*--fresh"):
            extract(data, Logged(tmp_path / "log"), file, BATCH)


def test_a_changed_digit_is_noticed(data: DataSet, whole: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "whole.sqlite"
    content = file.read_bytes()
    for digits in (b"[0.33, 0.0", b"0.14285714285714285", b'"batch": 4'):
        at = content.index(digits) + len(digits) - 1
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(FoveaError, match=r"is damaged.*--fresh"):
            extract(data, Logged(tmp_path / "log"), file, BATCH)


def test_a_file_of_the_version_before_is_made_anew(data: DataSet, tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(file)) as store:
        store.executescript(
            f"CREATE TABLE settings (content TEXT); PRAGMA application_id = {cache.FORMAT.mark};"
            "CREATE TABLE pictures (place INTEGER PRIMARY KEY, content TEXT)"
        )
    with pytest.raises(FoveaError, match=r"of another version.*fresh=True \(--fresh\)"):
        extract(data, Logged(tmp_path / "log"), file, BATCH)
    assert extract(data, Logged(tmp_path / "log"), file, BATCH, fresh=True).already == 0


class Failing:
    """A picture on a disk that fails once."""

    def __init__(self) -> None:
        self.tries = 0

    def read(self) -> Image.Image:
        self.tries += 1
        if self.tries == 1:
            raise BadPicture("it cannot be read now", passing=True)
        return Image.new("L", (20, 10), 50)


def test_what_failed_for_a_passing_reason_is_tried_again(
    data: DataSet, whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    samples, file, source = list(data.samples), tmp_path / "f.sqlite", Logged(tmp_path / "log")
    samples[5] = Sample("ä/50.png", 0, Failing())
    failing = replace(data, samples=tuple(samples))
    first = extract(failing, source, file, BATCH)
    assert first.skipped == (("ä/50.png", "it cannot be read now"),)
    again = extract(failing, source, file, BATCH)
    assert (again.already, again.skipped, len(again)) == (COUNT - BATCH, (), COUNT)
    assert source.looked_at()[-BATCH:] == [4, 50, 6, 7]
    assert extract(failing, source, file, BATCH).already == COUNT


@dataclass(frozen=True)
class Wild:
    """A source of the user's own that finds what is no box."""

    box: tuple[float, float, float, float]
    score: float = 1.0
    text: str = "wild"

    def __call__(self, images: Sequence[Image.Image]) -> list[Patches]:
        return [Patches((self.box,), (self.score,)) for _ in images]


@pytest.mark.parametrize("source", [Wild((5, 0, 1, 9)), Wild((0, 0, math.inf, 9)), Wild((0, 0, 9, 9), math.nan)])
def test_what_a_source_gives_is_checked_before_it_is_kept(source: Wild, data: DataSet, tmp_path: Path) -> None:
    with pytest.raises(BadChoice, match=r"what wild finds in ä/0\.png"):
        extract(data, source, tmp_path / "f.sqlite", BATCH)


def test_another_database_is_left_alone(data: DataSet, tmp_path: Path) -> None:
    file = tmp_path / "diary.sqlite"
    with closing(sqlite3.connect(file)) as store:
        store.executescript("CREATE TABLE pictures (diary TEXT); INSERT INTO pictures VALUES ('dear')")
    before = file.read_bytes()
    with pytest.raises(FoveaError, match="no file of patches"):
        extract(data, Logged(tmp_path / "log"), file, BATCH)
    assert file.read_bytes() == before


def test_checks_at_the_door(data: DataSet, tmp_path: Path) -> None:
    with pytest.raises(BadChoice, match="batch is 1 to 65,536"):
        extract(data, "whole", tmp_path / "f.sqlite", batch=0)
    with pytest.raises(BadChoice, match="same name"):
        extract(replace(data, samples=data.samples[:1] * 2), "whole", tmp_path / "f.sqlite")
    with pytest.raises(BadPicture, match="empty"):
        extract(replace(data, samples=()), "whole", tmp_path / "f.sqlite")


def test_without_a_file_it_is_kept_below_the_current_folder(
    data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = extract(data, "random:count=2")
    assert found.file == default_file(data, open_source("random:count=2"))
    assert found.file.is_file()
    assert found.file.parts[:2] == ("out", "patches")
    assert found.file.name.startswith("shades-")


def test_a_sheet_shows_what_is_outside_of_patches_pale(data: DataSet) -> None:
    patches = {one.name: Patches(((0.0, 0.0, 10.0, 10.0),), (1.0,)) for one in data.samples[:2]}
    drawn = np.asarray(sheet(data, patches).convert("L"))
    assert drawn.shape[1] == 2 * 320 + 6  # two of 13 have patches
    title = drawn.shape[0] - 160
    assert drawn[title + 80, 80] == 0  # the picture's own black
    assert drawn[title + 80, 240] > 90


def test_the_command_line(made: Callable[..., Path], tmp_path: Path) -> None:
    made_pack = str(made("pack"))
    out, drawn = tmp_path / "p.sqlite", tmp_path / "sheet.png"
    command = ["patches", "--data", made_pack, "--source", "random:count=2", "--out", str(out), "--sheet", str(drawn)]
    first = CliRunner().invoke(cli.app, command)
    assert first.exit_code == 0, first.output
    pictures = len(open_data(made_pack))
    assert f"{2 * pictures} patches of {pictures} pictures\n" in first.output
    assert "center of the first patch in a true box" in first.output
    assert drawn.is_file()
    assert f"{pictures} pictures already there" in CliRunner().invoke(cli.app, command).output
    assert "already" not in CliRunner().invoke(cli.app, [*command, "--fresh"]).output


def test_pictures_without_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of photographs, one of them damaged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos/more").mkdir(parents=True)
    for name, size in (("a.png", (30, 20)), ("more/b.png", (40, 50))):
        Image.new("RGB", size, "grey").save(tmp_path / "photos" / name)
    (tmp_path / "photos/bad.jpg").write_bytes(b"no picture")
    command = ["patches", "photos", "--source", "whole"]
    told = CliRunner().invoke(cli.app, command)
    assert told.exit_code == 0, told.output
    assert "2 patches of 2 pictures, 1 skipped" in told.output
    found = extract(pictures_of("photos"), "whole")
    assert found.already == 3
    assert found["photos/more/b.png"].boxes == ((0, 0, 40, 50),)
    both = CliRunner().invoke(cli.app, [*command, "--data", "photos"])
    neither = CliRunner().invoke(cli.app, ["patches", "--source", "whole"])
    assert isinstance(both.exception, BadChoice)
    assert isinstance(neither.exception, BadChoice)
    assert "one of the two" in str(neither.exception)
