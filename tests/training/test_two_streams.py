"""Eqs. 3.8 to 3.11, worked by hand; and training with patches, end to end on a few pictures."""

import math
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

import fovea
from fovea.basics.errors import BadChoice
from fovea.models.localstream import Steps
from fovea.models.twostream import TwoStream, TwoStreamOutput
from fovea.training import loop, recipe
from fovea.training.recipe import LossPart
from fovea.training.two_streams import TwoStreams


def out_of(whole: Tensor, local: Tensor, each: Tensor | None = None, weight: float = 1.0) -> TwoStreamOutput:
    each = local.unsqueeze(1) if each is None else each
    steps = Steps(each, torch.ones(each.shape[:2]), each, local)
    window = torch.zeros(len(whole), 4)
    return TwoStreamOutput(
        whole + weight * local, whole, local, weight, steps, window, window.unsqueeze(1), each.shape[1] > 1
    )


def loss_of(**settings: object) -> TwoStreams:
    return TwoStreams(LossPart.model_validate({"name": "two_streams", **settings}))


def logits(share: float) -> Tensor:
    """Of two classes, the first of which has this probability."""
    return torch.tensor([[math.log(share / (1 - share)), 0.0]])


TRUE = torch.tensor([0])


def test_the_sum_of_all_three_by_hand() -> None:
    """p_global 0.8, p_local 0.5: -ln 0.8 - ln 0.5 + 0.5 * (0.8 - 0.5 + 0.5)."""
    found = loss_of()(out_of(logits(0.8), logits(0.5)), TRUE)
    assert found.item() == pytest.approx(-math.log(0.8) - math.log(0.5) + 0.5 * 0.8)


def test_ranking_is_zero_once_the_local_stream_is_surer_by_the_margin() -> None:
    """As printed: p_local = p_global + margin gives nothing more to gain; equal probabilities cost the margin."""
    plain = loss_of(rank=0.0)
    for whole, local, by_hand in ((0.3, 0.8, 0.0), (0.6, 0.6, 0.5), (0.9, 0.2, 1.2)):
        out = out_of(logits(whole), logits(local))
        difference = loss_of(rank=1.0)(out, TRUE) - plain(out, TRUE)
        assert difference.item() == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("detach", [False, True])
def test_ranking_lowers_the_global_stream_unless_it_is_detached(detach: bool) -> None:
    whole = logits(0.6).requires_grad_()
    out = out_of(whole, logits(0.6))
    difference = loss_of(rank=1.0, detach_global=detach)(out, TRUE) - loss_of(rank=0.0)(out, TRUE)
    (gradient,) = torch.autograd.grad(difference, whole, allow_unused=True)
    by_hand = 0.0 if detach else 0.6 * 0.4  # dp/dz of the true class
    assert gradient[0, 0].item() == pytest.approx(by_hand, abs=1e-6)


def test_the_local_weight_is_the_networks_own() -> None:
    found = loss_of(rank=0.0)(out_of(logits(0.8), logits(0.5), weight=0.3), TRUE)
    assert found.item() == pytest.approx(-math.log(0.8) - 0.3 * math.log(0.5))


def test_a_stream_trained_at_every_step_has_the_mean_of_their_losses() -> None:
    each = torch.stack([logits(0.5), logits(0.9)], 1)
    found = loss_of(rank=0.0)(out_of(logits(0.8), logits(0.9), each), TRUE)
    assert found.item() == pytest.approx(-math.log(0.8) - (math.log(0.5) + math.log(0.9)) / 2, rel=1e-5)


def test_the_global_stream_alone() -> None:
    alone = TwoStreamOutput(logits(0.8), logits(0.8), None, 0.0, None, torch.zeros(1, 4), None)
    assert loss_of()(alone, TRUE).item() == pytest.approx(-math.log(0.8))


def coloured_squares(folder: Path, classes: int = 3, each: int = 4, side: int = 48) -> Path:
    """A folder a class, its pictures of one colour."""
    for label in range(classes):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(each):
            colour = tuple(250 - 10 * number if i == label else 10 for i in range(3))
            Image.new("RGB", (side + 4 * number, side), colour).save(folder / f"class{label}" / f"{number}.png")
    return folder


def read(folder: Path, changes: list[str]) -> recipe.Recipe:
    content = f"""
about = "squares"
command = "fovea train squares.toml"
epochs = 2
batch = 6
precision = "fp32"
[network]
name = "twostream/timm/resnet10t"
pretrained = false
options = {{ side = 40, size = 32, patch = 32, crop = 0.875, hidden = 8, steps = 3, source = "random:count=3,seed=1" }}
[data]
train = "{folder}"
test = "{folder}"
[augment]
area = [0.5, 1.0]
patch_area = [0.7, 1.0]
flip = true
[loss]
name = "two_streams"
[optimiser]
lr = 0.01
"""
    file = folder.parent / "squares.toml"
    file.write_text(content)
    return recipe.read(file, changes)


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
    pictures = coloured_squares(tmp_path / "pictures")
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
    pictures = coloured_squares(tmp_path / "pictures")
    classifier = fovea.load("timm/resnet10t", pretrained=False, classes=3)
    classifier.labels = ("class0", "class1", "class2")
    classifier.save(tmp_path / "mine.safetensors")
    name = f"local/{tmp_path / 'mine.safetensors'}"
    options = '{ patch = 32, hidden = 8, steps = 3, source = "whole" }'
    changes = [f"network.name={name}", f"network.options={options}", "network.pretrained=true", "network.size=32"]
    changes += ['optimiser.groups=[{match="whole.*", lr=0}]']
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
    pictures = coloured_squares(tmp_path / "pictures")
    one, other = (loop.train(read(pictures, []), tmp_path / name) for name in ("one", "other"))
    assert one.hash == other.hash


def test_mixing_is_refused(tmp_path: Path) -> None:
    pictures = coloured_squares(tmp_path / "pictures")
    with pytest.raises(BadChoice, match="two windows of one picture"):
        loop.train(read(pictures, ["augment.mixup=0.2"]), tmp_path / "out")


def test_without_a_source_the_recipe_is_told(tmp_path: Path) -> None:
    pictures = coloured_squares(tmp_path / "pictures")
    with pytest.raises(BadChoice, match="network has no patch source"):
        loop.train(read(pictures, ["network.options={side=40, patch=32}"]), tmp_path / "out")


@pytest.mark.parametrize("name", ["twostream-vgg19-cub", "twostream-resnet34-cub"])
def test_the_thesis_recipes_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A step of each on small pictures: their weights come from a hub."""
    monkeypatch.chdir(tmp_path)
    pictures = coloured_squares(tmp_path / "pictures")
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
