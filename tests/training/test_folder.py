"""fovea train on a folder of one's own: how it is divided, what is refused, and the whole way to the page."""

import json
import sys
import tomllib
from pathlib import Path

import pytest
from PIL import Image

import fovea
from checks import refused
from fovea import cli
from fovea.data import open_data
from fovea.training import folder
from fovea.training.recipe import read

pytest.importorskip("sklearn")
COLORS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220)}


def filled(place: Path, count: int = 10, names: tuple[str, ...] = ("red", "green", "blue")) -> Path:
    for name in names:
        (place / name).mkdir(parents=True)
        for i in range(count):
            color = tuple(min(value + 2 * i, 255) for value in COLORS.get(name, (90, 90, 90)))
            Image.new("RGB", (40, 30), color).save(place / name / f"{i}.png")
    return place


def test_a_folder_of_classes_is_divided_in_three(tmp_path: Path) -> None:
    parts = folder.divided(str(filled(tmp_path / "photos")))
    assert [sum(part.values()) for part in parts.counts()] == [18, 6, 6]
    assert parts.name == "photos"


@pytest.mark.parametrize(
    ("splits", "validation", "test"),
    [
        (("train", "test"), ":split=train,folds=8-9", ":split=test"),
        (("train", "val"), ":split=train,folds=8-9", ":split=val"),
        (("train", "val", "test"), ":split=val", ":split=test"),
        (("train",), ":folds=6-7", ":folds=8-9"),
    ],
)
def test_splits_of_its_own_stay_as_they_are(
    splits: tuple[str, ...], validation: str, test: str, tmp_path: Path
) -> None:
    for split in splits:
        filled(tmp_path / split)
    parts = folder.divided(str(tmp_path))
    assert (parts.validation, parts.test) == (f"{tmp_path}{validation}", f"{tmp_path}{test}")
    names = [
        {sample.name for sample in open_data(part).samples} for part in (parts.train, parts.validation, parts.test)
    ]
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & names[2]


def test_what_cannot_be_trained_on_is_said(tmp_path: Path) -> None:
    refused("holds one class, 'red'", folder.divided, str(filled(tmp_path / "one", names=("red",))))
    refused(r"too few pictures of blue \(2\), green \(2\), red \(2\)", folder.divided, str(filled(tmp_path / "two", 2)))
    (filled(tmp_path / "empty") / "grey").mkdir()
    refused("no picture of the class 'grey'", folder.divided, str(tmp_path / "empty"))
    alike = filled(tmp_path / "alike", names=("red", "Red "))
    refused("'Red ' and 'red' have the same name", folder.divided, str(alike))
    refused("divided by folds= or part= already", folder.divided, f"{filled(tmp_path / 'folds')}:folds=0-3")


def test_the_recipe_is_whole_whatever_a_folder_is_called(tmp_path: Path) -> None:
    given = filled(tmp_path / 'a "b" \n[network]')
    text = folder.text_of(folder.divided(str(given)), "smallnet", "mine", ["head"])
    content = tomllib.loads(text)
    assert content["network"] == {"name": "smallnet", "squash": True}
    assert content["data"]["test"] == f"{given}:folds=8-9"
    assert content["optimizer"]["groups"] == [{"match": "head.*", "lr": 3e-3}]


def train(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    short = ("--net", "smallnet", "--device", "cpu", "--set", "epochs=2", "--set", "network.options={side = 32}")
    monkeypatch.setattr(sys, "argv", ["fovea", "train", *words, *short])
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_from_a_folder_to_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    filled(tmp_path / "mybirds")
    (tmp_path / "mybirds" / "red" / "broken.png").write_bytes(b"no picture")
    code, out, err = train(monkeypatch, capsys, "--data", "mybirds")
    assert code == 0, err
    assert "31 pictures of 3 classes: 19 to train, 6 for validation, 6 to test" in out
    assert "skipped mybirds/red/broken.png" in err
    run = tmp_path / "out/train/mybirds"
    assert out.splitlines()[-1] == "out/train/mybirds/page/index.html"
    assert "fovea explain new.jpg --net out/train/mybirds/weights.safetensors" in out
    net = fovea.load(run / "weights.safetensors")
    assert (net.name, net.labels) == ("mybirds", ("blue", "green", "red"))
    card = json.loads((run / "card.json").read_text())
    assert card["chosen_on"] == "mybirds:folds=6-7"
    assert (card["recipe"], card["tested_on"]) == ("out/train/mybirds/recipe.toml", "mybirds:folds=8-9")
    assert read(run / "recipe.toml").best
    rows = json.loads((run / "page/results.json").read_text())["results"]
    wrong = [row["label"] != row["truth"] for row in rows]
    assert wrong == sorted(wrong, reverse=True)  # those first
    assert sum(wrong) / len(wrong) == pytest.approx(1 - json.loads((run / "test.json").read_text())["rows"][0]["top1"])
    assert (run / "page/index.html").is_file()
    code, _, err = train(monkeypatch, capsys, "--data", "mybirds")
    assert code == 2
    assert "--resume goes on with it, --fresh throws it away" in err
    assert train(monkeypatch, capsys, "--data", "mybirds", "--resume")[0] == 0


def test_without_the_packages_it_is_said_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fovea.cli.train.NEEDED", ("lightning", "nothing_such"))
    code, _, err = train(monkeypatch, capsys, "--data", str(tmp_path))
    assert code == 2
    assert "training needs more packages (nothing_such): pip install 'fovea[train]'" in err
