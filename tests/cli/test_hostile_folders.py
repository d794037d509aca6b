"""Every command that takes pictures: one bad file stops nothing, and each is named in what the command writes.

The folder holds pictures that are good, one whose name is not UTF-8, one that is broken and one that vanishes. A new
command that takes pictures or data is a new row of WORDS.
"""

import json
import os
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image

import fovea
from commands import Run, all_commands
from fovea.cli import app, main
from fovea.results import read, writing

STRANGE = os.fsdecode(b"caf\xe9\x1b[2J.png")
BROKEN, VANISHING = "broken.png", "vanishing.png"
RECIPE = """
about = "two classes"
command = "fovea train r.toml"
epochs = 1
batch = 4
[network]
name = "timm/test_resnet"
pretrained = false
[data]
train = "{data}"
"""

# Words after the command's name, and how often a picture is read before it vanishes: 1 is between decoding and drawing.
WORDS: dict[str, tuple[str, int]] = {
    "explain": ("{data} --net {judge} --method cam", 1),
    "sanity": ("{data} --net {judge} --out s.png --json f.json", 0),
    "predict": ("{data} --net {judge} --json f.json", 0),
    "localize": ("{data} --net {judge} --method cam --side 40", 1),
    "look": ("{data} --net {judge} --forwards 20", 1),
    "audit": ("{data} --net {judge}", 0),
    "patches": ("{data} --source random:seed=1 --out p.sqlite --json f.json", 0),
    "prototypes": ("{data} --net {proto} --data {good}", 1),
    "index": ("{data} --net {judge} --out i.fovea --json f.json", 0),
    "search": ("{data} --index {index} --count 1", 1),
    "train": ("r.toml --out t", 0),
    "calibrate": ("--data {data} --net {tnet} --out c.safetensors --json f.json", 0),
    "zoom": ("{data} --net {tnet} --glimpses 1", 1),
    "measure classify": ("--data {data} --net {judge} --json f.json", 0),
    "measure faithfulness": ("--data {data} --net {judge} --method cam --steps 2 --json f.json", 0),
    "measure finer": ("--data {data} --net {two} --method gradcam --json f.json", 0),
    "measure look": ("--data {data} --net {judge} --steps 2 --forwards 20 --json f.json", 0),
    "measure patch-attack": ("--data {data} --localizer {finder} --net {judge} --full {judge} --json f.json", 0),
    "measure patch-curves": ("--data {data} --localizer {finder} --full {judge} --numbers 1 --json f.json", 0),
    "measure patch-sensitivity": ("--data {data} --localizer {finder} --net {judge} --shares 0.1 --json f.json", 0),
    "measure patch-sources": ("--data {data} --source whole --json f.json", 0),
    "measure patches": ("--data {data} --localizer {finder} --net {judge} --full {judge} --json f.json", 0),
    "measure retrieval": ("--data {data} --net {judge} --json f.json", 0),
    "measure retrieval-loc": ("--data {data} --net {judge} --method cam --json f.json", 0),
    "measure robustness": ("--data {data} --net {judge} --attacks noise:2 --json f.json", 0),
    "measure trust": ("--data {data} --net {judge} --method cam --steps 2 --curve-pictures 2 --json f.json", 0),
    "measure twostream": ("--data {data} --net {two} --json f.json", 0),
    "measure wsol": ("--data {data} --net {judge} --method cam --json f.json", 0),
    "measure folds": ("--data {data} --of 2 --net {x-fold0} --net {x-fold1} --json f.json", 0),
    "measure zoom": ("--data {data} --net {tnet} --glimpses 1 --no-time --json f.json", 0),
    "bench folder": ("--data {data} --net {judge} --method cam --counts 12 --rounds 1 --batch 4 --json f.json", 0),
    "bench serve": ("--data {data} --net efficientnet_lite0 --count 3 --batch 2 --rounds 1 --json f.json", 0),
    "bench patches": ("--data {data} --net {judge} --localizer {finder} --rounds 1 --json f.json", 0),
}
OTHERS = {
    "measure clips",
    "measure sounds",
    "measure text",
    "bench train",
    "bench bulk",
    "bench export",
}  # other data; cost alone


GIVEN = {"pictures", "given", "data", "recipe"}
TAKES = {
    name: GIVEN & {parameter.name for parameter in found.params}
    for name, found in all_commands(typer.main.get_command(app))
}


def test_every_command_has_its_row() -> None:
    assert {name for name, takes in TAKES.items() if takes} - OTHERS == set(WORDS)


class Vanishing:
    """A file that is gone when it is opened once more; it hears of every file that this process opens."""

    path, left = "", 0

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.path and os.fsdecode(str(arguments[0])) == self.path:
            self.left -= 1
            if self.left < 0:
                path, self.path = self.path, ""
                os.unlink(path)


vanishing = Vanishing()
sys.addaudithook(vanishing.hear)


def picture(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        Image.fromarray(pixels).resize((130, 120)).save(file, "png")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    two = {"side": 40, "size": 32, "patch": 32, "hidden": 6, "steps": 3, "source": "whole", "self_attention": True}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "finder": ("anchornet", {"side": 119}),
        "judge": ("timm/test_resnet", {}),
        "tnet": ("tnet/test_efficientnet", {"levels": 2, "base": 32, "side": 128}),
        "x-fold0": ("timm/test_resnet", {}),
        "x-fold1": ("timm/test_resnet", {}),
        "two": ("twostream/timm/resnet10t", two),
        "proto": ("protopnet/timm/test_resnet", {}),
    }
    for seed, (name, (kind, options)) in enumerate(kinds.items()):
        torch.manual_seed(seed)
        network = fovea.load(kind, pretrained=False, classes=2, options=options)
        network.save(folder / f"{name}.safetensors")
    for i in range(4):
        picture(folder / f"good/{i % 2}/{i}.png", i)
    fovea.index(folder / "judge.safetensors", [folder / "good"], folder / "i.fovea")
    made = {name: folder / f"{name}.safetensors" for name in kinds}
    return {"good": folder / "good", "index": folder / "i.fovea", **made}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    names = ("0/a.png", f"0/{STRANGE}", f"0/{VANISHING}", "1/a.png", "1/b.png")
    for seed, name in enumerate(names):
        picture(folder / name, seed)
    (folder / "0" / BROKEN).write_bytes((folder / "1/b.png").read_bytes()[:500])
    boxes = "".join(f"{name},5 5 100 90\n" for name in (names[0], *names[2:], f"0/{BROKEN}"))
    (folder / "boxes.csv").write_text(f"file,boxes\n{boxes}")
    return folder


def named(command: str) -> tuple[set[str], set[str]]:
    """The pictures that were done, where the command names them, and those that were skipped, by what it wrote."""
    if (out := Path("out", command, "results.json")).exists():
        saved = read(out)
        return {row["name"] for row in saved.results}, {row["name"] for row in saved.skipped}
    content = json.loads(next(path for path in (Path("f.json"), Path("t/card.json")) if path.exists()).read_text())
    done = {row.get("picture") or row.get("name") or "" for row in content.get("rows", [])}
    return done, {row["name"] for row in content["skipped"]}


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("name", WORDS)
def test_one_bad_file_stops_nothing(
    name: str,
    files: dict[str, Path],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(RECIPE.format(data=data))
    words, vanishing.left = WORDS[name]
    monkeypatch.setattr(vanishing, "path", str(data / "0" / VANISHING))
    command, *rest = name.split()
    status, out, err = Run(command, monkeypatch, capsys)(*rest, *words.format(data=data, **files).split())
    assert status == 0, (out, err)
    assert not (data / "0" / VANISHING).exists()
    assert "\x1b" not in out + err
    assert "Traceback" not in err
    done, skipped = ({os.path.basename(path) for path in paths} for paths in named(command))
    assert skipped == {BROKEN, VANISHING}
    if {"pictures", "given"} & TAKES[name] and command not in ("index", "measure"):
        assert {"a.png", "b.png", STRANGE} <= done


def run(words: str) -> None:
    sys.argv = ["fovea", *words.split()]
    main()


def test_two_runs_into_one_folder_after_each_other_and_at_once(
    files: dict[str, Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the same pictures, which have the same names for their files."""
    monkeypatch.chdir(tmp_path)
    lines = [
        "explain {data}/0 --net {judge} --method cam --out o",
        "explain {data}/0 {data}/1 --net {judge} --method l2caf --batch 1 --out o",
        "localize {data}/0 --net {judge} --method cam --side 40 --batch 1 --out o",
        "explain {data}/0/broken.png --net {tnet} --out o",
    ]
    forked = get_context("fork")
    for together in (lines[:1], lines[1:]):
        processes = [forked.Process(target=run, args=(words.format(data=data, **files),)) for words in together]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [int(BROKEN in words) for words in together]
    saved = read(tmp_path / "o")
    runs: dict[str, list[str]] = {}
    for row, of in saved.with_runs("results"):
        runs.setdefault(of, []).append(Path(row["name"]).name)
    good = [STRANGE, "a.png", VANISHING]
    assert sorted(map(sorted, runs.values())) == sorted(map(sorted, [good, good, [*good, "a.png", "b.png"]]))
    assert sorted(Path(row["name"]).name for row in saved.skipped) == [BROKEN] * 4
    named = [name for row in saved.results for name in writing.names_in(row["files"])]
    assert len(named) == len(set(named))
    assert {str(path.relative_to("o")) for path in Path("o").rglob("*") if path.is_file()} == {
        *("index.html", "results.json"),
        *named,
    }


PLACES = {
    "--out": ("file/below", "file/below.png", "link/below.png", 300 * "x" + ".png"),
    "--json": ("file/below.json", "folder", "/dev/null"),
    "--sheet": ("file/below.png", "folder", "x.zzz"),
}


def places() -> Iterator[tuple[str, str, str]]:
    """Every option of every command that names what is written, with places that cannot be written to."""
    for name, command in all_commands(typer.main.get_command(app)):
        for option in {word for parameter in command.params for word in parameter.opts} & set(PLACES):
            for place in PLACES[option]:
                yield name, option, place
    yield from ((name, "--out", "x.zzz") for name in ("sanity", "measure classify", "measure robustness"))


@pytest.mark.parametrize(("name", "option", "place"), sorted(places()))
def test_where_it_goes_is_checked_before_the_work(
    name: str, option: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    Path("link").symlink_to("nowhere")
    Path("r.toml").write_text(RECIPE.format(data="nowhere"))
    monkeypatch.setattr("fovea.networks.loading.load", None)  # whoever begins to work fails otherwise
    monkeypatch.setattr("fovea.cli.commands.refuse", lambda values: None)  # what else is wrong may be told first
    words, _ = WORDS.get(name, ("", 0))
    named = ("data", "judge", "finder", "tnet", "x-fold0", "x-fold1", "two", "proto", "good", "index")
    given = dict.fromkeys(named, "x")
    command, *rest = name.split()
    status, out, err = Run(command, monkeypatch, capsys)(*rest, *words.format(**given).split(), option, place)
    assert (status, out) == (2, ""), err
    assert err.startswith(f"error: {option} {place} ")
    assert sorted(os.listdir()) == ["file", "folder", "link", "r.toml"]
