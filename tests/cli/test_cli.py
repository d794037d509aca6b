import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea import cli
from fovea.results import Saved, read


class Run:
    """The command in this process: its exit status, and what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["fovea", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        said = self.capsys.readouterr()
        return int(stopped.value.code or 0), said.out, said.err


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, lite0: fovea.Network
) -> Run:
    monkeypatch.chdir(tmp_path)
    real = fovea.load

    def load(name: str, weights: Path | None = None, pretrained: bool = True, **more: Any) -> fovea.Network:
        return lite0 if (name, weights) == ("efficientnet_lite0", None) else real(name, weights, pretrained, **more)

    monkeypatch.setattr("fovea.networks.loading.load", load)  # the weights are read once for all tests
    return Run(monkeypatch, capsys)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A weights file of a network that takes no time."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    fovea.load("timm/test_resnet", pretrained=False).save(path)
    return path


@pytest.fixture(scope="session")
def cat(photographs: Path) -> Path:
    return photographs / "chelsea.png"


def saved(folder: str | Path = "out/explain") -> Saved:
    return read(folder)


def files_of(folder: str | Path = "out/explain") -> list[dict[str, str]]:
    return [files for row in read(folder).results for files in row["files"]["maps"]]


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "--help"]])
def test_help_is_quick_and_needs_no_torch(arguments: list[str]) -> None:
    code = (
        "import sys, fovea.cli\n"
        f"sys.argv = ['fovea', *{arguments}]\n"
        "try: fovea.cli.main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: fovea" in done.stdout
    assert after.ru_utime - before.ru_utime < 1  # seconds of work, however busy the machine is


def test_a_photograph_of_a_cat(run: Run, cat: Path) -> None:
    status, out, err = run("explain", cat)
    assert (status, err) == (0, "")
    first, *_, counted, page = out.splitlines()
    assert (counted, page) == ("explain: 1 done, 0 skipped: out/explain/results.json", "out/explain/index.html")
    assert sorted(path.name for path in Path("out/explain").iterdir()) == ["index.html", "index_files", "results.json"]
    (picture,) = saved().results
    settings = saved().settings
    assert (settings["net"], settings["methods"], saved().skipped) == ("efficientnet_lite0", ["l2caf"], [])
    assert (picture["name"], picture["size"]) == (str(cat), [451, 300])
    best = picture["predictions"][0]
    assert "cat" in best["label"] or best["label"] == "tabby"
    assert 0.2 < best["probability"] <= 1
    assert len(picture["predictions"]) == 5
    (row,) = picture["maps"]
    assert (row["target"], row["method"], row["solver"], row["diagnosis"]) == (best["label"], "l2caf", "exact", None)
    assert row["loss"] < 0
    x0, y0, x1, y1 = row["boxes"][0]
    assert 0 <= x0 < 225 < x1 <= 451  # the cat's face is in the middle
    assert 0 <= y0 < 120 < y1 <= 300
    assert first.endswith(f"{cat.name}  {best['label']}  {best['probability']:.2f}  box {x0} {y0} {x1} {y1}")


def test_files_hold_what_explain_gives(run: Run, cat: Path, lite0: fovea.Network) -> None:
    assert (
        run(
            *("explain", cat, "--method", "cam", "--method", "gradcam,l2caf", "--target", "lynx", "--target", "281"),
            "--files",
        )[0]
        == 0
    )
    seen = fovea.explain(lite0, cat, method=["cam", "gradcam", "l2caf"], target=["lynx", "tabby"])
    rows = saved().results[0]["maps"]
    assert [(row["method"], row["target"]) for row in rows] == [
        (method, target) for method in ("cam", "gradcam", "l2caf") for target in ("lynx", "tabby")
    ]
    for i, (row, files) in enumerate(zip(rows, files_of(), strict=True)):
        maps = seen[row["method"]]
        values = np.load(Path("out/explain", files["values"]))
        assert np.allclose(values, maps.map(0, i % 2), atol=1e-6)
        assert row["boxes"] == [maps.boxes[0, i % 2].tolist()]
        with Image.open(Path("out/explain", files["overlay"])) as overlay:
            assert overlay.width > 451  # the picture and its color bar


def test_top5_names_the_five_predictions(run: Run, cat: Path, tiny: Path) -> None:
    assert run("explain", cat, "--net", tiny, "--target", "top5", "--out", "maps", "--files")[0] == 0
    (picture,) = saved("maps").results
    assert [row["target"] for row in picture["maps"]] == [one["label"] for one in picture["predictions"]]
    assert len(list(Path("maps").glob("chelsea.l2caf.*.npy"))) == 5


def test_two_pictures_as_a_pair(run: Run, cat: Path, photographs: Path, tiny: Path) -> None:
    assert run("explain", cat, photographs / "coffee.png", "--target", "pair", "--net", tiny)[0] == 0
    assert [row["target"] for picture in saved().results for row in picture["maps"]] == ["alike", "alike"]
    status, _, err = run("explain", cat, "--target", "pair")
    assert (status, err) == (2, "error: target 'pair' takes pictures two by two; got 1\n")
    status, _, err = run("explain", cat, "missing.png", "--target", "pair")
    assert status == 1
    assert "'pair' needs every picture: no file or folder 'missing.png'" in err


def test_squashing_shows_the_whole_picture(run: Run, tiny: Path) -> None:
    wide = Image.new("RGB", (600, 100), "grey")
    wide.paste(Image.effect_noise((80, 80), 100).convert("RGB"), (0, 10))  # outside the crop
    wide.save("wide.png")
    boxes = []
    for options in (["--fit", "crop"], ["--fit", "squash"], []):
        words = ("explain", "wide.png", "--target", "output", "--net", tiny, "--out", "out/explain", *options)
        assert run(*words)[0] == 0
        boxes.append(saved().results[0]["maps"][0]["boxes"][0])
    assert boxes[0][0] >= 250  # the crop keeps 252 to 348
    assert boxes[0][2] <= 350
    assert boxes[1][2] - boxes[1][0] > 90


def test_bad_pictures_are_skipped_and_counted(run: Run, cat: Path, tiny: Path) -> None:
    Path("text.png").write_text("hello")
    Path("zero.jpg").touch()
    Path("cut.png").write_bytes(cat.read_bytes()[:5000])
    Image.new("RGB", (1, 1)).save("dot.png")
    Image.new("RGB", (300, 300)).save("large.png")
    Path("empty").mkdir()
    bad = ["text.png", "zero.jpg", "cut.png", "dot.png", "empty", "nowhere.png", "*.tif"]
    Image.open(cat).crop((100, 0, 380, 280)).save("good.png")
    status, out, err = run(
        "explain", *bad[:4], "good.png", "large.png", *bad[4:], "--max-pixels", 80000, "--batch", 2, "--net", tiny
    )
    assert status == 0
    assert out.splitlines()[-2] == "explain: 2 done, 7 skipped: out/explain/results.json"
    assert [row["name"] for row in saved().results] == ["good.png", "large.png"]  # which is read window by window
    assert [row["name"] for row in saved().skipped] == bad
    words = [
        "not a picture",
        "0 bytes",
        "cut short",
        "1 x 1",
        "no pictures in",
        "no file or",
        "no pictures match",
    ]
    for row, word in zip(saved().skipped, words, strict=True):
        assert word in row["reason"]
        assert f"{row['reason']}\n" in err


def test_nothing_explained_is_status_1(run: Run) -> None:
    Path("bad.png").write_text("hello")
    status, out, err = run("explain", "bad.png", "bda.png")
    assert status == 1
    assert "explain: 0 done, 2 skipped" in out
    assert "did you mean 'bad.png'?" in err
    assert len(saved().skipped) == 2


def test_the_same_name_in_two_folders(run: Run, cat: Path, photographs: Path, tiny: Path) -> None:
    for folder, source in (("a", cat), ("b", photographs / "coffee.png")):
        Path(folder).mkdir()
        Path(folder, "x.png").write_bytes(source.read_bytes())
    assert run("explain", "a", "b", "--target", "tabby", "--net", tiny, "--files")[0] == 0
    files = [files["values"] for files in files_of()]
    assert files == ["x.l2caf.tabby.npy", "x-2.l2caf.tabby.npy"]
    first, second = (np.load(Path("out/explain", name)) for name in files)
    assert not np.allclose(first, second)


def test_weights_that_are_not_numbers(run: Run, cat: Path) -> None:
    net = fovea.load("timm/test_resnet", pretrained=False)
    net.module.fc.weight.data.fill_(float("nan"))
    net.save("nan.safetensors")
    status, _, err = run("explain", cat, "--net", "nan.safetensors", "--target", "tabby")
    assert status == 1
    assert "note on 1 result(s): the network's weights hold values that are not numbers (first in 'fc.weight')" in err
    (row,) = saved().results[0]["maps"]
    assert "not numbers" in row["diagnosis"]
    assert row["boxes"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--net", "efficientnet_lite9"], "no network 'efficientnet_lite9'; did you mean 'efficientnet_lite"),
        (["--net", "mine.safetensors"], "no weights file 'mine.safetensors'"),
        (["--method", "gradcm"], "no method 'gradcm'; did you mean 'gradcam'"),
        (["--method", ","], "no method was named (there are: l2caf, "),
        (["--target", "tabbi"], "no class 'tabbi' among the network's 1000; did you mean 'tabby'"),
        (["--target", "1000"], "class 1000 does not exist: the network has classes 0 to 999"),
        (["--layer", "block"], "no layer 'block' in EfficientNet; did you mean 'blocks"),
        (["--layer", "classifier"], "layer 'classifier' gives (1000,) per picture: no spatial extent to look at"),
        (["--out", "file"], "--out file is a file; name a folder"),
        (["--mehtod", "cam"], "--mehtod"),
        (["--batch", "0"], "--batch"),
    ],
)
def test_wrong_usage_is_status_2_and_leaves_no_trace(run: Run, cat: Path, options: list[str], message: str) -> None:
    Path("file").touch()
    status, out, err = run("explain", cat, *options)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert not Path("out").exists()


def test_wrong_usage_keeps_the_results_of_the_run_before(run: Run, cat: Path, tiny: Path) -> None:
    assert run("explain", cat, "--net", tiny)[0] == 0
    before = saved()
    assert run("explain", cat, "--net", tiny, "--target", "tabbi")[0] == 2
    assert saved() == before


def test_a_run_has_a_folder_of_its_own_unless_one_is_named(run: Run, cat: Path, tiny: Path) -> None:
    for place in ("out/explain", "out/explain-2"):
        status, out, _ = run("explain", cat, "--net", tiny)
        assert (status, out.splitlines()[-1]) == (0, f"{place}/index.html")
    for net in ((), ("--method", "cam")):
        assert run("explain", cat, "--net", tiny, "--out", "out/explain", *net)[0] == 0
    assert len(saved("out/explain").results) == 2  # the first run's, which is done again, and that of cam
    assert sorted(path.name for path in Path("out").iterdir()) == ["explain", "explain-2"]


def test_lines_stand_below_each_other(run: Run, cat: Path, photographs: Path, tiny: Path) -> None:
    Path("photos/deep").mkdir(parents=True)
    for source, name in ((cat, "a.png"), (photographs / "coffee.png", "deep/a longer name.png")):
        Path("photos", name).write_bytes(source.read_bytes())
    Path("photos", "b" * 99 + ".png").write_bytes(cat.read_bytes())
    _, out, _ = run("explain", "photos", "--net", tiny)
    lines = out.splitlines()[:3]
    assert [line.split("  ")[0] for line in lines] == ["a.png", "b" * 39 + "…", "deep/a longer name.png"]
    assert len({line.index("  box ") for line in lines}) == 1


def test_no_pictures_named_is_wrong_usage(run: Run) -> None:
    assert run("explain")[0] == 2


def test_a_folder_that_cannot_be_made_is_said(run: Run, cat: Path, tiny: Path) -> None:
    Path("file").touch()
    status, _, err = run("explain", cat, "--out", "file/below", "--net", tiny)
    assert status != 0
    assert err.startswith("error: ")
    assert "file/below" in err


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"fovea {fovea.__version__}\n", "")


def test_models(run: Run) -> None:
    status, out, _ = run("models", "efficientnet_lite0")
    assert status == 0
    assert "  efficientnet_lite0: classifies photographs: 1000 classes (tench, goldfish, great white shark, …)\n" in out
    assert "  timm/tf_efficientnet_lite0\n" in out
    status, out, _ = run("models")
    assert status == 0
    assert "offline, with ImageNet weights (3)" in out
    hints = re.findall(r"fovea (models [\w']\S*)", out)
    assert len(hints) == 4
    for hint in hints:  # every command that it prints works, and shows more
        status, more, _ = run(*shlex.split(hint))
        assert status == 0
        assert more.count("\n") > 5
    status, _, err = run("models", "nosuchthing")
    assert (status, err) == (2, "error: no network matches 'nosuchthing'; 'fovea models' lists them\n")
