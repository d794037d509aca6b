"""Folders of big files, some of them broken: each is reported with its reason, the rest are done, also after kills."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import fovea
from commands import Run

REASONS = {
    "cut.tif": "is cut short",
    "empty.tif": "is empty (0 bytes)",
    "five.tif": "has 5 bands",
    "magic.tif": "is not a picture",
    "palette.tif": "has a palette",
}


def make(folder: Path, count: int, side: int) -> None:
    """So many tiled files that can be read, and five that cannot."""
    folder.mkdir()
    for number in range(count):
        cells = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        values = np.asarray(Image.fromarray(cells).resize((side, side)))
        tifffile.imwrite(folder / f"{number:03}.tif", values, tile=(128, 128), photometric="rgb", compression="jpeg")
    whole = (folder / "000.tif").read_bytes()
    for name, content in (("cut", whole[: len(whole) * 2 // 3]), ("empty", b""), ("magic", b"XX" + whole[2:])):
        (folder / f"{name}.tif").write_bytes(content)
    bands, gray = np.zeros((side, side, 5), np.uint8), np.zeros((side, side), np.uint8)
    tifffile.imwrite(folder / "five.tif", bands, tile=(128, 128), photometric="minisblack", planarconfig="contig")
    colors = np.zeros((3, 256), np.uint16)
    tifffile.imwrite(folder / "palette.tif", gray, tile=(128, 128), photometric="palette", colormap=colors)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625}).save("tnet.safetensors")
    return Run("zoom", monkeypatch, capsys)


@pytest.mark.parametrize("verb", ["zoom", "explain", "localize"])
def test_those_that_are_broken_are_told_and_the_rest_done(run: Run, verb: str) -> None:
    run.command = verb
    fovea.load("smallnet", classes=3, pretrained=False).save("small.safetensors")
    make(Path("scans"), 3, 256)
    Path("scans/000.tif").write_bytes(_without_a_tile(Path("scans/002.tif").read_bytes()))
    code, out, err = run("scans", "--net", "tnet.safetensors" if verb == "zoom" else "small.safetensors")
    assert (code, f"{verb}: 2 done, 6 skipped" in out) == (0, True), err
    found = json.loads(Path("out", verb, "results.json").read_text())
    assert [Path(row["name"]).name for row in found["results"]] == ["001.tif", "002.tif"]
    told = {Path(entry["name"]).name: entry["reason"] for entry in found["skipped"]}
    assert told.keys() == {"000.tif", *REASONS}
    for name, reason in REASONS.items():
        assert reason in told[name], told[name]
        assert told[name] in err


def _without_a_tile(content: bytes) -> bytes:
    """Whose last tile is zeros."""
    start = content.rindex(b"\xff\xd8\xff")
    end = content.index(b"\xff\xd9", start)
    return content[:start] + bytes(end - start) + content[end:]


@pytest.mark.slow
def test_two_hundred_big_files_and_kills(run: Run) -> None:
    """Killed three times, no picture that was told of is looked at again."""
    make(Path("scans"), 195, 2048)
    words = ["zoom", "scans", "--net", "tnet.safetensors", "--glimpses", "2", "--out", "out"]
    lines = list[str]()
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-m", "fovea", *words], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines += [process.stdout.readline() for _ in range(40)]
            time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
    code, out, err = run(*words[1:])
    assert (code, "zoom: 195 done, 5 skipped" in out) == (0, True)
    assert "of 200 were done before, in out" in err
    lines += [line for line in out.splitlines() if line.split()[0].endswith(".tif")]
    names = [line.split()[0] for line in lines if line.strip()]
    assert len(names) == len(set(names)), "looked at twice"
    assert len(names) > 195 - 30  # those that were done and not told yet when a kill came are in no line
    rows = fovea.results.read("out").results
    assert [Path(row["name"]).name for row in rows] == [f"{number:03}.tif" for number in range(195)]
