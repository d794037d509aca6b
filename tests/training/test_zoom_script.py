"""recipes/zoom.sh: every training that it asks for can be asked for, and all networks get the same."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from fovea.data.options import parsed
from fovea.training.recipe import Recipe, read

ROOT = Path(__file__).parents[2]
STAND_IN = """#!/usr/bin/env bash
echo "$@"
[ "$1" != train ] || { mkdir -p "out/train/$4" && touch "out/train/$4/card.json"; }
"""  # says what it was asked for, and leaves what a training leaves last


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "fovea.sh").write_text(STAND_IN)
    return tmp_path


def run(root: Path, *words: str, **more: str) -> list[str]:
    given = {**os.environ, "FOVEA": "bash fovea.sh", **more}
    found = subprocess.run(["bash", "recipes/zoom.sh", *words], cwd=root, env=given, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout.splitlines()


def asked(root: Path) -> dict[str, Recipe]:
    """The recipe of every training so far, by what its network is called."""
    found = {}
    for log in (root / "out/logs").iterdir():
        for line in log.read_text().splitlines():
            train, path, *words = shlex.split(line)
            assert (train, words[:3]) == ("train", ["--name", log.name, "--resume"])
            assert words[3::2] == ["--set"] * len(words[4::2])
            found[log.name] = read(ROOT / path, words[4::2])
    return found


def test_every_job_trains_by_a_recipe_on_equal_terms(root: Path) -> None:
    jobs = run(root, "list")
    assert len(jobs) == len(set(jobs)) == 6 * 3 * 5 + 4 + 4 * 2 * 3 + 3
    assert run(root, "jobs", AT_ONCE="2") == ["left: 0"]
    trained = asked(root)
    epochs = dict[str, int]()
    for name, recipe in trained.items():
        start, before = Path(recipe.network.weights or ""), recipe
        while start.parts[:2] == ("out", "train"):  # of this script, on the same pictures with the same seed
            before = trained[start.parent.name]
            assert (before.data.train, before.seed) == (recipe.data.train, recipe.seed)
            epochs[name] = epochs.get(name, 0) + before.epochs
            start = Path(before.network.weights or "")
        assert not str(start).startswith("out/")
        epochs[name] = epochs.get(name, 0) + recipe.epochs
        assert not recipe.data.test.startswith("gtsdb") or recipe.data.test != recipe.data.train
    first = ("-first-", "saccader-representation", "saccader-locations")  # these are not the last stage
    last = {name: count for name, count in epochs.items() if not any(part in name for part in first)}
    assert {count for name, count in last.items() if "gtsdb" in name} == {60}
    assert {count for name, count in last.items() if "imagenette" in name} == {30}
    assert len(last) == len(jobs)


def test_folds_that_train_and_folds_that_test_are_all_ten_tenths(root: Path) -> None:
    run(root, "jobs", "^gtsdb (224|boxes) ")
    for name, recipe in asked(root).items():
        folds = [parsed(data)[1]["folds"] for data in (recipe.data.train, recipe.data.test)]
        tenths = [set[int]() for _ in folds]
        for part, own in zip(folds, tenths, strict=True):
            for piece in part.split("+"):
                low, _, high = piece.partition("-")
                own.update(range(int(low), int(high or low) + 1))
        fold = int(name[-1])
        assert tenths[1] == {2 * fold, 2 * fold + 1}
        assert tenths[0] == {*range(10)} - tenths[1]


def test_a_job_goes_on_where_it_was_stopped(root: Path) -> None:
    assert run(root, "jobs", "majority", FOVEA="false") == ["failed: digits majority", "left: 1"]
    assert run(root, "jobs", "saccader norm 0", MORE="--set save_every=30") == ["left: 0"]
    lines = [log.read_text() for log in (root / "out/logs").glob("saccader-*")]
    assert [line.count("--set save_every=30") for line in lines] == [1, 1, 1]
    (root / "out/train/saccader-imagenette-norm-seed0/card.json").unlink()
    assert run(root, "jobs", "saccader norm 0") == ["left: 0"]
    assert sorted(len(log.read_text().splitlines()) for log in (root / "out/logs").glob("saccader-*")) == [1, 1, 2]


def test_what_is_trained_is_measured(root: Path) -> None:
    untrained = run(root, "measure")
    assert [line.split()[:2] for line in untrained] == [["measure", "zoom"], ["bench", "zoom"]]
    run(root, "jobs")
    lines = run(root, "measure")
    assert [line.split()[1] for line in lines] == ["folds", "folds", "folds", "zoom", "zoom", "zoom", "zoom"]
    folds, below, boxes, digits, majority, rivals, _ = lines
    nets = [line.count("--net ") for line in (folds, below, boxes, digits, majority, rivals)]
    assert nets == [5 * 15, 2 * 15, 15, 4, 1, 8 * 3 + 3]
    assert folds.index("lite0-gtsdb-896-seed0-fold0") == folds.index("--net ") + len("--net out/train/efficientnet_")
    assert "megapixel:canvas=896,copies=3,others=2,count=1000," in majority


def test_settings_are_chosen_on_scenes_apart(root: Path) -> None:
    subprocess.run(["bash", "recipes/zoom.sh", "choose"], cwd=root, env={**os.environ, "FOVEA": "bash fovea.sh"})
    trained = asked(root)
    assert len(trained) == 2 * (7 + 4)
    for recipe in trained.values():
        assert (recipe.data.train, recipe.data.test) == ("gtsdb:folds=2-7", "gtsdb:folds=8-9")
    for name, before in (("on", "all"), ("half", "all"), ("learned", "all"), ("paper", "paper")):
        start = trained[f"tnet-choose-{name}-seed1"].network.weights
        assert start == f"out/train/tnet-choose-first-{before}-seed1/weights.safetensors"
