"""Training with patches, end to end on a few pictures."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from PIL import Image

import fovea
from fovea.basics import BadChoice
from fovea.models.twostream import TwoStream
from fovea.training import loop, recipe
from made_recipes import written


def colored_squares(folder: Path, classes: int = 3, each: int = 4, side: int = 48) -> Path:
    """One folder per class, its pictures of one color."""
    for label in range(classes):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(each):
            color = tuple(250 - 10 * number if i == label else 10 for i in range(3))
            Image.new("RGB", (side + 4 * number, side), color).save(folder / f"class{label}" / f"{number}.png")
    return folder


OPTIONS = {"side": 40, "size": 32, "patch": 32, "crop": 0.875, "hidden": 8, "steps": 3, "source": "random:count=3"}


def read(folder: Path, changes: list[str]) -> recipe.Recipe:
    content = {
        "epochs": 2,
        "batch": 6,
        "precision": "fp32",
        "network": {"name": "twostream/timm/resnet10t", "pretrained": False, "options": OPTIONS},
        "data": {"train": str(folder), "test": str(folder)},
        "augment": {"area": [0.5, 1.0], "patch_area": [0.7, 1.0], "flip": True},
        "loss": {"name": "two_streams"},
        "optimizer": {"lr": 0.01},
    }
    return recipe.read(written(folder.parent, content), changes)


@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["network.options.share=true"],
        ["network.options.local=none"],
        ["network.options.local=cnn"],
        ["network.options.local=lstm"],
        ["network.options.self_attention=true"],
        ["network.options.source=embedded", "network.options.share=true"],
        ["network.options.readout=sum:2", "network.options.patches=3"],
    ],
)
def test_every_switch_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = colored_squares(tmp_path / "pictures")
    done = loop.train(read(pictures, changes), tmp_path / "out")
    assert set(done.score) >= {"top1", "global_top1", "local_top1"}
    again = fovea.load(done.weights)
    assert isinstance(again.module, TwoStream)
    assert isinstance(done.network.module, TwoStream)
    x = torch.randn(2, 3, 40, 40)
    with torch.no_grad():
        assert torch.equal(again(x), done.network(x))


def test_a_local_stream_beside_a_frozen_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in by a recipe: the classifier's weights, norms and answers stay what they were."""
    monkeypatch.chdir(tmp_path)
    pictures = colored_squares(tmp_path / "pictures")
    classifier = fovea.load("timm/resnet10t", pretrained=False, classes=3)
    classifier.labels = ("class0", "class1", "class2")
    classifier.save(tmp_path / "mine.safetensors")
    name = f"local/{tmp_path / 'mine.safetensors'}"
    options = '{ patch = 32, hidden = 8, steps = 3, source = "whole" }'
    changes = [f"network.name={name}", f"network.options={options}", "network.pretrained=true", "network.size=32"]
    changes += ['optimizer.groups=[{match="whole.*", lr=0}]']
    done = loop.train(read(pictures, changes), tmp_path / "out")
    assert isinstance(done.network.module, TwoStream)
    after = done.network.module.whole.state_dict()
    before = classifier.module.state_dict()
    assert all(torch.equal(value, after[f"module.{key}"]) for key, value in before.items())
    again = fovea.load(done.weights)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(x), done.network(x))


def test_two_runs_end_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = colored_squares(tmp_path / "pictures")
    one, other = (loop.train(read(pictures, []), tmp_path / name) for name in ("one", "other"))
    assert one.hash == other.hash


def test_mixing_is_refused(tmp_path: Path) -> None:
    pictures = colored_squares(tmp_path / "pictures")
    with pytest.raises(BadChoice, match="two windows of one picture"):
        loop.train(read(pictures, ["augment.mixup=0.2"]), tmp_path / "out")


def test_without_a_source_the_recipe_is_told(tmp_path: Path) -> None:
    pictures = colored_squares(tmp_path / "pictures")
    with pytest.raises(BadChoice, match="network has no patch source"):
        loop.train(read(pictures, ["network.options={side=40, patch=32}"]), tmp_path / "out")


@pytest.mark.parametrize("name", ["twostream-vgg19-cub", "twostream-resnet34-cub"])
def test_the_thesis_recipes_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A step of each on small pictures: their weights come from a hub."""
    monkeypatch.chdir(tmp_path)
    pictures = colored_squares(tmp_path / "pictures")
    changes = [f"data.train={pictures}", f"data.test={pictures}", "network.pretrained=false", "epochs=0.2", "batch=4"]
    changes += [
        "network.options.side=64",
        "network.options.patch=64",
        "network.options.source=random",
        "precision=fp32",
    ]
    done = loop.train(recipe.read(Path(__file__).parents[2] / f"recipes/{name}.toml", changes), tmp_path / "out")
    module = done.network.module
    assert isinstance(module, TwoStream)
    assert module.local is not None
    assert module.local.recurrent is not None
    assert (module.local.recurrent.ask is not None) == ("resnet34" in name)
    assert module.local.steps == 10


ROOT = Path(__file__).parents[2]
TABLE, DOCS = ROOT / "recipes/twostream-cub100-table.toml", (ROOT / "docs/twostream.md").read_text(encoding="utf-8")
ROWS = {name: shlex.split(sets)[1::2] for name, sets in re.findall(r"`row (\S+)((?: --set [^` ]+)*)`", DOCS)}
LARGE = {"network.options.patch=448": "network.options.patch=128"}
OF_ANOTHER = {"own", "none16"}  # the one has patches by a network that is trained first, the other is told in words


@pytest.mark.parametrize("row", sorted(ROWS.keys() - OF_ANOTHER))
def test_the_rows_of_the_table_take_a_step_at_one_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = colored_squares(tmp_path / "pictures")
    few = [f"data.{part}={pictures}" for part in ("train", "validation", "test")]
    few += ["network.pretrained=false", "epochs=0.2", "batch=4", "precision=fp32", "data.side=64", "ema=0"]
    few += [f"network.options.{key}=64" for key in ("side", "size", "patch")] + ["network.options.source=random"]
    asked = recipe.read(TABLE, [*few, *(LARGE.get(change, change) for change in ROWS[row])])
    assert asked.optimizer.groups == []
    done = loop.train(asked, tmp_path / "out")
    assert 0 <= done.score["top1"] <= 1


def test_the_tables_rows_and_names() -> None:
    """Networks that are all called as the recipe could not be measured side by side."""
    compared = {"none", "cnn", "lstm", "attention", "self", "self-first", "unranked", "detached", "prototypes"}
    assert compared | OF_ANOTHER | {"patch448", "stride16", "sum3"} == ROWS.keys()
    commands = re.findall(r"fovea train recipes/twostream-cub100-table.toml --name (\S+) --out out/table/(\S+)", DOCS)
    assert commands == [("$1-seed$seed",) * 2, ("read3-seed0",) * 2]
    assert DOCS.count("fovea train recipes/twostream-cub100-table.toml") == 2


def test_the_tables_patches_are_found_by_a_network_that_knows_no_bird() -> None:
    asked = recipe.read(TABLE)
    assert str(asked.network.options["source"]).startswith("l2caf:efficientnet_lite0,")
    assert asked.data.train == "cub100:split=train,part=fit"
    assert asked.data.validation == "cub100:split=train,part=choose"


def test_the_global_stream_after_its_own_epochs_finds_the_patches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = colored_squares(tmp_path / "pictures")
    alone = loop.train(read(pictures, ["network.options.local=none"]), tmp_path / "alone")
    source = f"l2caf:{alone.weights},thresholds=0.15/0.4"
    done = loop.train(read(pictures, [f"network.options.source={source}"]), tmp_path / "both")
    assert isinstance(done.network.module, TwoStream)
    assert done.network.module.source == source
    assert list((tmp_path / "out/patches").iterdir())


@pytest.mark.parametrize("share", ["false", "true"])
def test_a_read_out_is_trained_and_all_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str) -> None:
    """Table 6.2: the steps of a network with attention are summed, and the last layer learns to read the sum."""
    monkeypatch.chdir(tmp_path)
    pictures = colored_squares(tmp_path / "pictures")
    changes = [f"network.options.share={share}"]
    first = loop.train(read(pictures, changes), tmp_path / "first")
    changes += [f"network.weights={first.weights}", "network.options.readout=sum:2"]
    changes += ['optimizer.groups=[{match="local.classifier.*"}, {match="*", lr=0}]']
    second = loop.train(read(pictures, changes), tmp_path / "second")
    before, after = (done.network.module.state_dict() for done in (first, second))
    assert before.keys() - after.keys() == {"local.attention"}
    changed = {key for key in after if not torch.equal(before[key], after[key])}
    assert changed == {"local.classifier.weight", "local.classifier.bias"}
