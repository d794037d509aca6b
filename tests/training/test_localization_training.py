"""The techniques that are judged by localization, over two networks, as docs/wsol.md has them: each takes a step."""

import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea.training import log, loop
from fovea.training.recipe import read

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/wsol.md").read_text(encoding="utf-8").split("| technique |")[1].split("\n\n")[0]
ROWS = {name: sets for name, *sets in re.findall(r"^\| ([^|]+?) \| (.*?) \| (.*?) \|$", TABLE, re.MULTILINE)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that a color tells apart, and a ResNet-50 with random weights as fovea saves one."""
    home = tmp_path_factory.mktemp("birds")
    for number, name in enumerate(("blue", "red")):
        (home / "train" / name).mkdir(parents=True)
        pixels = np.random.default_rng(number).integers(0, 120, (70, 80, 3), dtype=np.uint8)
        pixels[..., 2 - 2 * number] += 120
        for i in range(2):
            Image.fromarray(pixels).save(home / "train" / name / f"{i}.png")
    torch.manual_seed(0)
    fovea.load("timm/resnet50", pretrained=False).save(home / "resnet50.safetensors")
    return home


def changes(cell: str) -> list[str]:
    """What `--set KEY=VALUE --set …` in a cell of the table says."""
    words = [] if cell == "as it is" else shlex.split(cell.strip("`"))
    assert words[::2] == ["--set"] * (len(words) // 2)
    return words[1::2]


def test_the_five_techniques_and_all_forms_of_acol_are_there() -> None:
    acol = ["ACoL", "ACoL detached, with convolutions of its own", "ACoL, the paper's form"]
    assert list(ROWS) == ["GAP", "ADL", *acol, "Hide-and-Seek", "CutMix"]


@pytest.mark.parametrize("column", [0, 1], ids=["efficientnet_lite0", "resnet50"])
@pytest.mark.parametrize("technique", ROWS)
def test_a_technique_takes_a_step_and_has_maps_of_14_by_14(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, technique: str, column: int
) -> None:
    monkeypatch.chdir(folder)  # where the table's resnet50.safetensors lies
    train = folder / "train"
    few = [f"data.train={train}", f"data.validation={train}:limit=1", f"data.test={train}:limit=1", "data.side=70"]
    few += ["batch=4", "epochs=1", "half=false", "network.size=64", "ema=0"]
    asked = read(ROOT / "recipes/wsol-cub100.toml", [*changes(ROWS[technique][column]), *few])
    network = loop.train(asked, tmp_path / "out", device="cpu").network
    (loss,) = (row["loss"] for row in log.read(tmp_path / "out") if "loss" in row)
    assert math.isfinite(loss)
    assert fovea.explain(network, torch.rand(1, 3, 224, 224), method="cam").values.shape == (1, 1, 14, 14)
