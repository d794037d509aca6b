"""Recipes that were not run, most of them the papers' own set-ups: a step of each, on a made sample of its data."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea.training import loop
from fovea.training.recipe import read
from made_data import Made, write_pack

ROOT = Path(__file__).parents[2]
ELSEWHERE = (  # take their steps in test_patch_training.py, test_localization_training.py and test_two_streams.py
    "densenet169-imagenette-patches", "resnext50_32x4d-imagenette-patches", "twostream-cub100-table", "wsol-cub100",
)  # fmt: skip
NOT_RUN = [path.stem for path in sorted((ROOT / "recipes").glob("*.toml")) if not read(path).expected]
CARS = ["network.size=64", "batch=4", "per_class=2", "data.train=cars", "data.test=cars", "loss.margin=1"]
FEW = ["batch=2", "network.pretrained=false", "precision=fp32", "save_every=1000"]
STREETS = ["network.options.base=64", "network.options.side=160", "data.side=160"]
CANVASES = "megapixel:canvas=128,copies=3,others=2,count=8,clutter=5,noise=0"
TWO_STREAMS = ["network.options.side=64", "network.options.patch=64", "network.options.source=random"]
SMALLER: dict[str, list[str]] = {  # the same networks on smaller pictures, and all classes that the sample has
    "acol_vgg16-cub": ["network.size=64"],
    "adl_resnet50se-cub": ["network.size=64"],
    "adl_vgg16-cub": ["network.size=64"],
    "anchornet-imagenet": ["network.options.side=120"],
    "bagnet77-imagenet": ["network.options.side=96"],
    "efficientnet_b0-fmow": ["network.size=64", "data.test=fmow:split=val,crop=boxes"],
    "efficientnet_lite0-gtsdb": ["network.size=64", "data.side=80"],
    "efficientnet_lite0-gtsdb-boxes": ["network.size=64", "data.side=80"],
    "embedding_googlenet-cars": CARS,
    "embedding_resnet50-cub": ["network.size=64", "batch=4", "data.train=cub", "data.test=cub"],
    "tnet-bagnet77-imagenet": [],
    "tnet-digits-majority": [
        f"network.weights={ROOT / 'src/fovea/weights/tnet-digits.safetensors'}",
        f"data.train={CANVASES}",
        f"data.test={CANVASES}",
        "data.side=128",
        "network.options.side=128",
        "network.options.base=32",
    ],
    "tnet-fmow": ["data.test=fmow:split=val"],
    "tnet-fmow-first": ["data.test=fmow:split=val"],
    "tnet-gtsdb": STREETS,
    "tnet-gtsdb-first": STREETS,
    "twostream-resnet34-cub": TWO_STREAMS,
    "twostream-vgg19-cub": TWO_STREAMS,
    "twostream-vgg19-dogs": TWO_STREAMS,
}
OTHERWISE = [  # what their comments say to set for a table's other rows
    ("adl_vgg16-cub", ["network.options.adl=[]"]),
    ("adl_vgg16-cub", ["data.train=imagenet:split=train", "data.test=imagenet:split=val"]),
    ("embedding_googlenet-cars", ["network.name=embedding/timm/resnet50"]),
    ("embedding_googlenet-cars", ['loss={name="npair"}', "per_class=2"]),
    ("embedding_resnet50-cub", ["loss.name=triplet"]),
    ("efficientnet_b0-fmow", ["network.options.drop_path_rate=0.3", "schedule.at=[22]", "data.train=fmow:split=train"]),
    ("twostream-vgg19-dogs", ["network.options.local=none"]),
]


@pytest.fixture
def samples(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of these data sets, found by name; two pictures of each bird at least, and no two pictures alike."""
    birds = made("cub", "cub")
    with (birds / "images.txt").open("a") as images, (birds / "image_class_labels.txt").open("a") as labels:
        images.write("4 002.Laysan_Albatross/Laysan_Albatross_0002.jpg\n")
        labels.write("4 2\n")
    for file, line in (("train_test_split", "4 0"), ("bounding_boxes", "4 1.0 1.0 9.0 9.0")):
        with (birds / f"{file}.txt").open("a") as lines:
            lines.write(f"{line}\n")
    (birds / "images/002.Laysan_Albatross/Laysan_Albatross_0002.jpg").touch()
    for kind in ("cars", "dogs", "fmow", "imagenet"):
        made(kind, kind)
    random = np.random.default_rng(0)
    for file in sorted(tmp_path.rglob("*.[jJ]*[gG]")):
        noise(random).save(file)
    (tmp_path / "gtsdb").mkdir()  # ten scenes of each label, so that there is one in every fold
    scenes = [(f"{label}{i}.png", noise(random), label, "3 2 9 8", "train") for label in "ab" for i in range(10)]
    write_pack(tmp_path / "gtsdb", scenes)
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def noise(random: np.random.Generator) -> Image.Image:
    return Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8))


def step(name: str, changes: Sequence[str] = (), finish: bool = False) -> None:
    """One, into the folder where `fovea train` would write: every layer that learns is another one after it."""
    asked = read(ROOT / f"recipes/{name}.toml", [*FEW, *SMALLER[name], *changes])
    with loop.running(asked, f"out/train/{name}", name, device="cpu") as run:
        weights = [one for one in run.network.module.parameters() if one.ndim > 1]
        before = [one.detach().clone() for one in weights]
        run.go(1)
        assert run.loss is not None
        assert math.isfinite(run.loss)
        moved = [not torch.equal(old, new) for old, new in zip(before, weights, strict=True)]
        assert sum(moved) > (0 if name.startswith("embedding") else 0.9) * len(moved)  # theirs learn at 1e-5 and less
        if finish:
            run.finish()


@pytest.mark.parametrize("name", [name for name in NOT_RUN if name not in ELSEWHERE])
def test_a_recipe_that_was_not_run_takes_a_step(name: str, samples: Path) -> None:
    if name in ("tnet-fmow", "tnet-gtsdb"):
        step(f"{name}-first", finish=True)  # whose weights it starts from, where they lie
    changes = []
    if name == "embedding_googlenet-cars":  # untrained it takes all pictures for the same, and no triplet counts
        network = fovea.load("embedding/torchvision/googlenet", pretrained=False)
        for weight in network.module.parameters():
            if weight.ndim == 4:
                torch.nn.init.kaiming_normal_(weight)
        network.save(samples / "start.safetensors")
        changes = [f"network.weights={samples / 'start.safetensors'}"]
    step(name, changes)


@pytest.mark.parametrize(("name", "changes"), OTHERWISE, ids=lambda value: str(value))
def test_the_other_rows_of_its_table_take_a_step(name: str, changes: list[str], samples: Path) -> None:
    step(name, changes)


@pytest.mark.parametrize("name", NOT_RUN)
def test_it_says_that_it_was_not_run_and_what_it_needs(name: str) -> None:
    first = (ROOT / f"recipes/{name}.toml").read_text().splitlines()[0]
    assert re.match(r"# Not run(: needs| yet, so without a score)", first)
    assert f"`{name}`" in (ROOT / "docs/train.md").read_text()
