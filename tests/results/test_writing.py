"""Runs into one folder: nothing is lost, whatever runs before, after or at the same time."""

import json
import os
import signal
import threading
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fovea.basics import Damaged, FoveaError, write_json
from fovea.results import FILE, Shows, Writer, read, writing

DEEP = "[" * 900 + "]" * 900


@dataclass(frozen=True, repr=False)
class Told(Shows):
    """A result that says what it is told to."""

    name: str
    label: str = "ox"
    probability: float | None = 0.5
    boxes: Any = ()

    def draw(self) -> Image.Image:
        return Image.new("RGB", (4, 4), (sum(os.fsencode(self.label)) % 256, 0, 0))

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probability": self.probability}


def save(folder: Path, *results: Told, what: str = "explain", skipped: Any = (), **settings: Any) -> None:
    with Writer(folder, what, settings) as writer:
        writer.add(results, skipped)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def figure(row: dict[str, Any]) -> str:
    name: str = row["files"]["view"]["figure"]
    return name


def labels(folder: Path) -> list[tuple[str, str]]:
    return [(Path(row["name"]).name, row["label"]) for row in read(folder).results]


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "x.png"
    Image.new("RGB", (3, 3)).save(path)
    return str(path)


def test_the_same_picture_verb_and_settings_are_replaced(picture: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    save(out, Told(picture, "ox"), net="a")
    save(out, Told(picture, "cat"), net="a")
    assert labels(out) == [("x.png", "cat")]
    assert files(out) == ["index.html", "index_files/x.jpg", "index_files/x.js", "results.json"]
    assert set(json.loads((out / FILE).read_text())) == {"what", "settings", "results", "skipped"}


@pytest.mark.parametrize(
    ("what", "settings"), [("localize", {"net": "a"}), ("explain", {"net": "b"}), ("explain", {"net": "a", "k": None})]
)
def test_another_verb_or_other_settings_stand_beside(
    what: str, settings: dict[str, Any], picture: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    save(out, Told(picture, "ox"), net="a")
    save(out, Told(picture, "cat"), what=what, **settings)
    saved = read(out)
    assert labels(out) == [("x.png", "ox"), ("x.png", "cat")]
    assert (saved.what, saved.settings) == (what, settings)
    (other,) = saved.runs
    assert (other.what, other.settings, other.results) == ("explain", {"net": "a"}, [0])
    first, second = (out / figure(row) for row in saved.results)
    assert Image.open(first).getpixel((0, 0)) != Image.open(second).getpixel((0, 0))
    page = (out / "index.html").read_text()
    assert "index_files/x.jpg" in page
    assert "index_files/x-2.jpg" in page
    save(out, Told(picture, "lynx"), net="a")  # the first run once more
    assert labels(out) == [("x.png", "cat"), ("x.png", "lynx")]
    assert [row["stem"] for row in read(out).results] == ["x-2", "x"]


def test_what_is_no_file_is_known_by_what_is_said_of_it(tmp_path: Path) -> None:
    """Two arrays are both called picture."""
    save(tmp_path, Told("picture", "ox"))
    save(tmp_path, Told("picture", "cat"))
    save(tmp_path, Told("picture", "ox"))
    assert labels(tmp_path) == [("picture", "cat"), ("picture", "ox")]
    assert len(list(tmp_path.glob("*/*.jpg"))) == 2


def test_skipped_entries_stay_until_the_picture_is_done(picture: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    save(out, Told("a"), skipped=[(picture, "cut short"), ("bad.png", "no picture")])
    save(out, Told("b"), skipped=[("worse.png", "0 bytes")])
    assert [entry["name"] for entry in read(out).skipped] == [picture, "bad.png", "worse.png"]
    save(out, Told(picture), skipped=[("bad.png", "gone")])
    assert read(out).skipped == [{"name": "worse.png", "reason": "0 bytes"}, {"name": "bad.png", "reason": "gone"}]


def test_a_run_that_reads_nothing_adds_to_skipped_alone(tmp_path: Path) -> None:
    save(tmp_path, Told("a"), net="a")
    before = read(tmp_path)
    save(tmp_path, what="zoom", skipped=[("bad.png", "no picture")], net="b")
    saved = read(tmp_path)
    assert (saved.results, saved.what, saved.settings) == (before.results, before.what, before.settings)
    assert saved.skipped == [{"name": "bad.png", "reason": "no picture"}]
    assert [(run.what, run.skipped) for run in saved.runs] == [("zoom", [0])]
    assert "no picture" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"rows": []}',
        '{"what": 1, "settings": {}, "results": [], "skipped": []}',
        '{"what": "a", "settings": {}, "results": [{"label": "x"}], "skipped": []}',
        '{"what": "a", "settings": {}, "results": [{"name": "x", "stem": "../../x"}], "skipped": []}',
        '{"what": "a", "settings": {}, "results": [], "skipped": [], "runs": [{}]}',
        '{"what": "a", "settings": {"x": ' + DEEP + '}, "results": [], "skipped": []}',
        '{"what": "a", "settings": {}, "results": [{"name": "x", "files": '
        + "[" * 900
        + "]" * 900
        + '}], "skipped": []}',
        b"\xff\xfe\x00",
    ],
)
def test_another_results_file_is_refused_and_left(content: str | bytes, tmp_path: Path) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(Damaged, match=r"results.json is damaged, or not fovea's.*: name another folder"):
        Writer(tmp_path, "explain", {})
    assert (tmp_path / FILE).read_bytes() == data
    assert os.listdir(tmp_path) == [FILE]


@pytest.mark.parametrize("name", [FILE, "index.html"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)])
def test_what_is_no_file_is_refused_at_once(name: str, make: Any, tmp_path: Path) -> None:
    make(tmp_path / name)
    if name == FILE or not (tmp_path / name).is_symlink():  # a link that leads nowhere is replaced
        with pytest.raises(FoveaError, match=name):
            Writer(tmp_path, "explain", {})


def test_a_results_file_of_odd_values_can_be_added_to(tmp_path: Path) -> None:
    row = {"name": "x", "label": 7, "probability": "high", "files": [{"a": ["<b>.png"]}], "stem": None}
    content = {"what": "a", "settings": {}, "results": [row], "skipped": [{"name": "y"}]}
    write_json(tmp_path / FILE, content | {"runs": [content | {"what": "b", "results": [0, 99], "skipped": [0]}]})
    save(tmp_path, Told("a"))
    assert read(tmp_path).results[0] == row
    assert "<b>.png" not in (tmp_path / "index.html").read_text()


def test_a_page_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>my homepage</title>")
    with pytest.raises(FoveaError, match="is not fovea's and would be lost"):
        Writer(tmp_path, "explain", {})


def test_a_file_that_is_damaged_meanwhile_is_kept_aside(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "explain", {})
    writer.add([Told("a")])
    (tmp_path / FILE).write_text("{ somebody else's")
    with pytest.warns(UserWarning, match="it is kept as"):
        writer.finish()
    assert labels(tmp_path) == [("a", "ox")]
    assert [path.read_text() for path in tmp_path.glob("results.*-*.json")] == ["{ somebody else's"]


def test_a_picture_in_the_folder_is_not_drawn_over(tmp_path: Path) -> None:
    class Short(Told):
        saved_as = ("sheet", "png")

    path = tmp_path / "x.png"
    Image.new("RGB", (9, 9)).save(path)
    with Writer(tmp_path, "explain", {}, files=True) as writer:
        writer.add([Short(str(path))])
    assert Image.open(path).size == (9, 9)
    assert read(tmp_path).results[0]["files"]["sheet"] == "x-2.png"
    thumbnail = tmp_path / "index_files" / "x-2.jpg"
    before = thumbnail.read_bytes()
    save(tmp_path, Told(str(thumbnail)))
    assert thumbnail.read_bytes() == before
    assert figure(read(tmp_path).results[1]) == "index_files/x-2-2.jpg"


def test_a_failure_keeps_what_was_done(tmp_path: Path) -> None:
    class Broken(Told):
        def draw(self) -> Image.Image:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError), Writer(tmp_path, "explain", {}) as writer:
        writer.add([Told("a"), Broken("b"), Told("c")])
    assert labels(tmp_path) == [("a", "ox")]
    assert files(tmp_path) == ["index.html", "index_files/a.jpg", "index_files/a.js", "results.json"]


def test_names_of_any_bytes(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9\x1b[2J\n<b>%41.png")
    save(tmp_path, Told(name), skipped=[(name, f"{name} is no picture")])
    saved = read(tmp_path)
    assert (saved.results[0]["name"], saved.skipped[0]["name"]) == (name, name)
    assert "<b>%41" not in (tmp_path / "index.html").read_text()


def test_threads_into_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SECONDS", 0.0)
    start = threading.Barrier(4)

    def run(number: int) -> None:
        with Writer(tmp_path, "explain", {"net": str(number)}) as writer:
            start.wait()
            for i in range(8):
                writer.add([Told("picture", f"{number} {i}")], [(f"bad {number} {i}", "no")])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    saved = read(tmp_path)
    expected = {f"{number} {i}" for number in range(4) for i in range(8)}
    assert {row["label"] for row in saved.results} == expected
    assert {entry["name"] for entry in saved.skipped} == {f"bad {name}" for name in expected}
    for row in saved.results:
        (red, *_), (wanted, *_) = (
            image.getpixel((0, 0)) for image in (Image.open(tmp_path / figure(row)), Told("", row["label"]).draw())
        )
        assert abs(red - wanted) <= 2
    named = [name for row in saved.results for name in writing.names_in(row["files"])]
    assert files(tmp_path) == sorted(["index.html", "results.json", *named])


class Killing(Told):
    """The process is gone when it comes to this one, as by a power cut."""

    def draw(self) -> Image.Image:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def run(folder: Path, net: str, last: int = -1) -> None:
    with Writer(folder, "explain", {"net": net}) as writer:
        for i in range(12):
            writer.add([(Killing if i == last else Told)(f"{i}.png", f"{net}{i}")])


def test_processes_into_one_folder_and_one_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is killed while it draws; another goes on beside it; the first, once more, ends as if nothing had been."""
    monkeypatch.setattr(writing, "SECONDS", 0.0)
    forked = get_context("fork")
    processes = [forked.Process(target=run, args=given) for given in ((tmp_path, "a", 5), (tmp_path, "b"))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 0]
    assert {row["label"] for row in read(tmp_path).results} == {
        *(f"a{i}" for i in range(5)),
        *(f"b{i}" for i in range(12)),
    }
    run(tmp_path, "a")
    saved = read(tmp_path)
    assert sorted(row["label"] for row in saved.results) == sorted(f"{net}{i}" for net in "ab" for i in range(12))
    named = [name for row in saved.results for name in writing.names_in(row["files"])]
    assert len(set(named)) == 48
    assert {path for path in files(tmp_path) if ".part-" not in path} == {"index.html", "results.json", *named}


def alone(folder: Path, label: str) -> None:
    with Writer(folder, "explain", {}, fresh=True) as writer:
        writer.add([Told("a", label)])


def test_runs_that_name_no_folder_have_one_each(tmp_path: Path) -> None:
    """After each other and at once; a run that does nothing has none."""
    (tmp_path / "explain-3").mkdir()
    with pytest.raises(RuntimeError), Writer(tmp_path / "explain", "explain", {}, fresh=True):
        raise RuntimeError
    assert os.listdir(tmp_path) == ["explain-3"]
    forked = get_context("fork")
    processes = [forked.Process(target=alone, args=(tmp_path / "explain", f"{i}")) for i in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    numbers = ["", "-2", "-4", "-5", "-6", "-7"]
    assert sorted(read(tmp_path / f"explain{n}").results[0]["label"] for n in numbers) == list("012345")


@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, lambda path: path.symlink_to("/")])
def test_no_pictures_into_what_is_no_folder(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "index_files")
    with pytest.raises(FoveaError, match="index_files is no folder of fovea's"):
        Writer(tmp_path, "explain", {})


def test_rows_of_before_runs_came_are_kept(tmp_path: Path) -> None:
    row = {"name": "elsewhere/0.png", "label": "ox", "files": {"map": "0.png"}}
    write_json(tmp_path / FILE, {"what": "explain", "settings": {}, "results": [row], "skipped": []})
    save(tmp_path, Told("b"), net="b")
    assert read(tmp_path).results[0] == row
