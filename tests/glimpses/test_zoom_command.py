import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from commands import Run
from fovea.cli.glossary import OPTIONS
from fovea.models.glimpsing import ORDERS


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for name, size in (("a", (60, 40)), ("b", (300, 200))):
        values = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
        Image.fromarray(values).save(f"photos/{name}.png")
    return Run("zoom", monkeypatch, capsys)


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    network = fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625})
    network.labels = ("cat", "dog", "emu")
    path = tmp_path_factory.mktemp("zoomers") / "tnet.safetensors"
    network.save(path)
    return path


def kept(folder: str = "out/zoom") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "results.json").read_text())
    return found


def test_a_folder(run: Run, weights: Path) -> None:
    Path("photos/c.png").write_bytes(b"")
    code, out, err = run("photos", "--net", weights, "--glimpses", 3, "--json", "all.json")
    assert code == 0
    assert "c.png is empty" in err
    assert "note on 1 result(s): the last windows are 21 x 14 pixels, enlarged to 77 x 77" in err
    found = kept()
    note = "tnet knows only: cat, dog, emu (3 classes); anything else is taken for one of these, too"
    assert found["settings"] == {"net": "tnet", "glimpses": 3, "note": note}
    assert err.count(f"note: {note}") == 1
    assert note in Path("out/zoom/index.html").read_text()
    assert [row["picture"] for row in found["results"]] == ["photos/a.png", "photos/b.png"]
    assert [row["name"] for row in found["skipped"]] == ["photos/c.png"]
    for row in found["results"]:
        box = " ".join(f"{side:.0f}" for side in row["glimpses"][0]["visible"])
        assert (
            f"\n{Path(row['picture']).name}  {row['label']}  {row['probability']:.2f}  box {box}  3 glimpses, "
            in f"\n{out}"
        )
        assert row["label"] in ("cat", "dog", "emu")
        assert len(row["after"]) == 4
        names = row["files"]["view"]
        with Image.open(Path("out/zoom", names["figure"])) as shown, Image.open(row["picture"]) as picture:
            assert shown.size == picture.size
        assert len(names["more"]) == 4  # the overview and the glimpses as they were read
    assert sorted(path.name for path in Path("out/zoom").iterdir()) == ["index.html", "index_files", "results.json"]
    assert json.loads(Path("all.json").read_text())["rows"] == found["results"]
    assert "zoom: 2 done, 1 skipped: out/zoom/results.json" in out


def test_nothing_that_can_be_read(run: Run, weights: Path) -> None:
    code, out, err = run("photo/a.png", "--net", weights)
    assert (code, out) == (1, "")
    assert "no file or folder 'photo/a.png'" in err
    Path("photos/b.png").write_bytes(b"no picture")
    code, out, err = run("photos/b.png", "--net", weights)
    assert (code, "zoom: 0 done, 1 skipped" in out) == (1, True)


def test_wrong_usage(run: Run, weights: Path) -> None:
    code, _, err = run("photos", "--net", weights, "--glimpses", 26)
    assert (code, "reads 0 to 25 glimpses" in err) == (2, True)
    assert not Path("out").exists()
    code, _, err = run("photos", "--net", "smallnet", "--untrained")
    assert (code, "cannot zoom" in err) == (2, True)
    code, _, err = run("photos", "--net", weights, "--out", "photos/a.png")
    assert (code, "is a file; name a folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "stopped", "line"),
    [
        ("--until 0.01", "sure", " certain, 100 % of"),
        ("--until 1 --glimpses 2", "glimpses", "2 glimpses, 1"),
        ("--budget-ms 0", "budget", "0 glimpses, the budget spent, "),
        ("--budget-macs 1", "budget", "0 glimpses, the budget spent, "),
        ("--order best --levels 3 --glimpses 4", "glimpses", "4 glimpses, "),
    ],
)
def test_how_far_it_goes(run: Run, weights: Path, words: str, stopped: str, line: str) -> None:
    code, out, _ = run("photos/b.png", "--net", weights, *words.split())
    assert (code, line in out) == (0, True), out
    found = kept()
    assert found["results"][0]["stopped"] == stopped
    names = [word[2:].replace("-", "_") for word in words.split() if word.startswith("--")]
    assert set(found["settings"]) == {"net", "glimpses", "note", *names}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--until 1.5", "--until is 0 to 1; got 1.5"),
        ("--until sure", "--until takes a number"),
        ("--budget-ms -1", "--budget-ms is 0 to"),
        ("--levels 17", "--levels is 1 to 16"),
        ("--order worst", "'best'"),
        ("--glimpses 0 --until 0.9", "glimpses=0 is the overview alone: until would change nothing"),
        ("--levels 1 --budget-ms 5 --order best", "levels=1 is the overview alone: order and budget_ms would"),
        ("--levels 1 --glimpses 2", "a walk of 1 levels reads 0 to 0 glimpses; got 2"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, weights: Path, words: str, reason: str) -> None:
    code, _, err = run("photos", "--net", weights, *words.split())
    assert (code, reason in err) == (2, True), err
    assert not Path("out").exists()


def test_orders_are_those_that_there_are() -> None:
    assert set(OPTIONS["order"].choices) == set(ORDERS)


def test_the_usual_network(run: Run, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    network = fovea.load(weights)

    def load(name: str, *_: object, **options: object) -> fovea.Network:
        asked.append(name)
        return network

    monkeypatch.setattr("fovea.networks.loading.load", load)
    monkeypatch.setattr("fovea.networks.ours", lambda: {"efficientnet_lite0-cub100": {}})
    code, _, err = run("photos/a.png")
    assert (code, "fovea train recipes/tnet-imagenet.toml" in err) == (2, True)
    monkeypatch.setattr("fovea.networks.ours", lambda: {"tnet-digits": {}, "tnet-imagenet": {}})
    code, out, _ = run("photos/a.png")
    assert (code, "by tnet-imagenet" in out) == (0, True)  # digits are not photographs
    assert asked == ["tnet-imagenet"]


def test_an_architecture_alone_says_that_it_is_not_trained(run: Run) -> None:
    code, _, err = run("photos/a.png", "--net", "tnet-bagnet77", "--glimpses", 0)
    assert (code, "comes untrained" in err) == (0, True)
