"""recipes/judges.sh: every training and measure that it asks for can be asked for, three seeds of each."""

import os
import shlex
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from commands import all_commands
from fovea.cli import app
from fovea.measures import seeds
from fovea.training.recipe import read

ROOT = Path(__file__).parents[2]
MEASURES = dict(all_commands(typer.main.get_command(app)))  # before other tests declare measures of their own


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    return tmp_path


def listed(root: Path, *words: str) -> list[list[str]]:
    done = subprocess.run(
        ["bash", "recipes/judges.sh", *words],
        cwd=root,
        env={**os.environ, "FOVEA": "fovea"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [shlex.split(line)[1:] for line in done.stdout.splitlines()]


def test_what_it_trains_and_measures_can_be_asked_for(root: Path) -> None:
    asked = listed(root, "list")
    trained = [words for words in asked if words[0] == "train"]
    names = [words[3] for words in trained]
    assert len(set(names)) == len(names) == 99
    assert set(Counter(seeds.of(name)[0] for name in names).values()) == {3}
    for _, path, option, _, *words in trained:
        changes = [word for option, word in pairwise(words) if option == "--set"]
        recipe = read(ROOT / path, changes)
        assert option == "--name"
        for start in (
            recipe.network.weights,
            recipe.network.options.get("source", ""),
        ):  # what it starts from is trained
            if "out/judges/" in str(start):
                assert str(start).split("out/judges/")[1].split("/")[0] in names[:6]
    for _, name, *words in (words for words in asked if words[0] == "measure"):
        MEASURES[f"measure {name}"].make_context(name, words)
        files = [Path(word) for option, word in pairwise(words) if option == "--net"]
        assert {file.parent.name for file in files} <= set(names)
    assert not [words for words in asked if words[0] not in ("train", "measure")]


def test_what_is_trained_is_left_out(root: Path) -> None:
    (root / "out/judges/none-seed0").mkdir(parents=True)
    (root / "out/judges/none-seed0/weights.safetensors").write_bytes(b"x")
    assert "none-seed0" not in [words[3] for words in listed(root, "list") if words[0] == "train"]
