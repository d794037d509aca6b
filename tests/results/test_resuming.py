"""A run that is stopped at any moment and asked again: nothing is done twice, and it ends as if it had not been."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from commands import Run
from fovea.results import FILE, Shows, Writer, read

NAMES = ["a.png", "b.png", "c.png", "d.png", "e.png"]
STOPPED = """
import json, os, signal, sys
import torch
from fovea import cli, explain, load, localize, zoom  # before they are needed by every child
from fovea.results import resuming
from fovea.video import watch

def add(self, content, whole=resuming.Journal.add, done=[]):
    done.append(content)
    if len(done) > 3:
        os.write(self.handle, b'\\n{"stamp": [1, 2], "row": {"na')
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, content)

resuming.Journal.add = add
for words in json.loads(sys.argv[1]):
    if not (child := os.fork()):
        sys.argv[1:] = words
        cli.main()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, words
"""


@dataclass(frozen=True, repr=False)
class Done(Shows):
    name: str
    label: str = "ox"
    probability: float | None = 0.5
    boxes: Any = ()

    def draw(self) -> Image.Image:
        return Image.new("RGB", (4, 4))

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probability": self.probability}


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a run was stopped that had done a, b and c, which is in no results.json yet."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        Image.new("RGB", (3, 3)).save(name)
    run(Path("out"), stopped=3)
    Path("out", FILE).unlink()
    return Path("out")


def run(
    folder: Path, label: str = "ox", asked: str = "these words", fresh: bool = False, by: int = 1, stopped: int = 9
) -> list[str]:
    """What was looked at by a run over all, which may be stopped after so many."""
    looked: list[str] = []
    groups = [NAMES[i : i + by] for i in range(0, len(NAMES), by)]
    try:
        with Writer(folder, "explain", {"net": "a"}, fresh=fresh) as writer:
            done = writer.resume(groups, asked)
            for name in (name for name in NAMES if name not in done):
                if len(looked) == stopped:
                    raise KeyboardInterrupt
                looked.append(name)
                writer.add([Done(name, label)])
    except KeyboardInterrupt:
        pass
    return looked


def test_what_was_done_is_not_done_again(out: Path) -> None:
    assert run(out, "cat") == ["d.png", "e.png"]
    rows = read(out).results
    assert [(row["name"], row["label"]) for row in rows] == list(zip(NAMES, ["ox"] * 3 + ["cat"] * 2, strict=True))
    page = (out / "index.html").read_text()
    assert all(f"index_files/{row['stem']}.jpg" in page for row in rows)
    assert {path.name for path in out.iterdir()} == {"index.html", "index_files", FILE}
    assert run(out, "emu") == NAMES, "a run that has ended is done anew"
    assert [row["label"] for row in read(out).results] == ["emu"] * 5


def test_files_that_changed_are_looked_at_again_in_their_place(out: Path) -> None:
    Image.new("RGB", (30, 30)).save("a.png")
    os.utime("b.png", ns=(0, 1))
    Path("out/index_files/c.jpg").unlink()
    assert run(out, "cat", stopped=1) == ["a.png"]
    assert run(out, "emu") == ["b.png", "c.png", "d.png", "e.png"]
    assert [(row["name"], row["label"]) for row in read(out).results] == [
        (name, "emu" if name > "a.png" else "cat") for name in NAMES
    ]


def test_other_words_have_nothing_to_go_on_with(out: Path) -> None:
    assert run(out, "cat", asked="other words") == NAMES
    assert run(out, "emu") == ["d.png", "e.png"]
    assert {row["label"] for row in read(out).results} == {"emu", "ox"}


def test_what_is_done_together_is_done_again_together(out: Path) -> None:
    assert run(out, by=2) == ["c.png", "d.png", "e.png"]


def test_a_folder_that_a_run_took_by_itself(out: Path) -> None:
    assert run(Path("made"), fresh=True, stopped=2) == ["a.png", "b.png"]
    assert run(Path("made"), asked="other words", fresh=True) == NAMES
    assert run(Path("made"), fresh=True) == ["c.png", "d.png", "e.png"]
    assert run(Path("made"), fresh=True) == NAMES
    assert [len(read(name).results) for name in ("made", "made-2", "made-3")] == [5, 5, 5]


def test_two_at_once_do_not_share_a_journal(out: Path) -> None:
    with Writer(out, "explain", {"net": "a"}) as writer:
        assert writer.resume([[name] for name in NAMES], "these words") == set(NAMES[:3])
        assert run(out, "cat") == NAMES
        writer.add([Done(name) for name in NAMES[3:]])
    assert [row["name"] for row in read(out).results] == NAMES


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: [*lines[:2], lines[2][:-7]],
        lambda lines: [*lines[:2], lines[2].replace(b'"stem": "c"', b'"stem": "../c"')],
        lambda lines: [*lines[:2], b"\0" * 4096],
        lambda lines: [*lines[:2], b"[" * 100_000, b"7", b"{}", b'{"stamp": [1], "row": 2}', b"\xff"],
        lambda lines: [lines[0], lines[1].replace(b"b.png", b"c.png"), lines[1]],
    ],
)
def test_lines_that_are_torn_or_somebody_elses(out: Path, harm: Callable[[list[bytes]], list[bytes]]) -> None:
    (journal,) = out.glob(".resume-*")
    before, *lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join([before, *harm(lines)]))
    assert run(out, "cat", stopped=1) == ["c.png"]
    assert run(out, "cat") == ["d.png", "e.png"]
    assert [row["name"] for row in read(out).results] == NAMES


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("a.png"), os.mkdir, os.mkfifo])
def test_no_journal_through_a_link(out: Path, make: Callable[[Path], None]) -> None:
    (journal,) = out.glob(".resume-*")
    journal.unlink()
    before = Path("a.png").read_bytes()
    make(journal.absolute())
    assert run(out) == NAMES
    assert Path("a.png").read_bytes() == before


def kept(folder: str) -> list[dict[str, Any]]:
    """Rows but for the names of their files, and the time they took; numbers differ in their last digits where others
    are in a batch."""
    rows = json.loads(Path(folder, FILE).read_text(), parse_float=lambda digits: round(float(digits), 4))["results"]
    for row in rows:
        row.get("cost", {}).pop("ms", None)
    return [{key: value for key, value in row.items() if key not in ("stem", "files")} for row in rows]


def test_commands_that_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By SIGKILL while a line is written: the same words again look at the rest alone, and end with the same rows."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number in range(7):
        values = np.random.default_rng(number).integers(0, 256, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(values).save(f"photos/{number}.png")
    Path("photos/4.png").write_bytes(b"no picture")
    torch.manual_seed(0)
    fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625}).save("tnet.safetensors")
    fovea.load("smallnet", classes=3, pretrained=False).save("small.safetensors")
    verbs = {
        "zoom": ["--net", "tnet.safetensors", "--glimpses", "1", "--json", "zoom.json"],
        "explain": ["--net", "small.safetensors", "--batch", "2"],
        "localize": ["--net", "small.safetensors", "--files", "--out", "patches"],
        "look": ["--net", "small.safetensors", "--forwards", "20"],
    }
    commands = [[verb, "photos", *words] for verb, words in verbs.items()]
    subprocess.run([sys.executable, "-c", STOPPED, json.dumps(commands)], check=True, capture_output=True)
    Image.new("RGB", (50, 50)).save("photos/1.png")
    for verb, *words in commands:
        folder = "patches" if verb == "localize" else f"out/{verb}"
        command = Run(verb, monkeypatch, capsys)
        status, said, told = command(*words)
        begins = [Path(line.partition(" ")[0].rstrip(":")).name for line in said.splitlines()]
        lines = [name for name in begins if name.endswith(".png")]
        assert (status, lines) == (0, ["1.png", "3.png", "5.png", "6.png"]), told
        assert f"resuming: 2 of 7 were done before, in {folder}" in told
        assert "4.png is no picture" in told or "photos/4.png" in told
        assert f"{verb}: 6 done, 1 skipped" in said
        assert not list(Path(folder).glob(".[!p]*"))  # halves of files may be left of a kill, no journal nor claim
        assert command(*words, "--out", "again")[0] == 0
        assert kept(folder) == kept("again")[-6:]
        assert [row["stem"] for row in read(folder).results] == ["0", "1", "2", "3", "5", "6"]
    assert len(json.loads(Path("zoom.json").read_text())["rows"]) == 6
