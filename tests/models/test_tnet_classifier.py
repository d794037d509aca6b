from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fovea
from checks import refused
from fovea.models.glimpsing import resized
from fovea.networks import Network
from fovea.training.loop import train
from made_data import save
from made_recipes import recipe

OPTIONS = {"frozen": True, "base": 64, "side": 128, "levels": 2, "glimpses": 2, "while_training": 9}


@pytest.fixture(scope="module")
def trained() -> Network:
    return fovea.load("efficientnet_lite0")


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return fovea.load("tnet-classifier/efficientnet_lite0", options=OPTIONS)


def answers(network: Network, x: Tensor) -> Tensor:
    with torch.no_grad():
        return network.module.eval()(x)


@pytest.mark.parametrize(("name", "options"), [("tnet-classifier/efficientnet_lite0", OPTIONS), ("tnet-imagenet", {})])
def test_everything_read_is_answered_by_the_classifier(trained: Network, name: str, options: dict[str, Any]) -> None:
    network = fovea.load(name, options=options)
    side, base = network.transform.size[0], network.module.extractor.base
    x = torch.randn(2, 3, side, side)
    out = answers(network, x)
    with torch.no_grad():
        assert torch.allclose(out.each[:, 0], trained.module(resized(x, base, True)), atol=1e-4)
        vectors = []
        for i in range(out.boxes.shape[1]):
            x0, y0, x1, y1 = out.boxes[0, i].tolist()
            window = resized(x[:1, :, y0:y1, x0:x1], base, True)
            vectors.append(trained.module.forward_head(trained.module.forward_features(window), pre_logits=True))
        mean = trained.module.classifier(torch.stack(vectors).mean(0))  # averaged before the last layer
    assert torch.allclose(out.logits[:1], mean, atol=1e-4)
    assert network.labels == trained.labels


def test_only_where_to_look_is_trained_and_kept(network: Network, tmp_path: Path) -> None:
    module = network.module.train()
    assert {name.partition(".")[0] for name, one in module.named_parameters() if one.requires_grad} == {"location"}
    before = {key: value.clone() for key, value in module.state_dict().items()}
    out = module(torch.randn(2, 3, 128, 128))
    assert out.glimpses == 9
    out.log_probability[:, 0].sum().backward()
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())  # no norm has moved
    file = tmp_path / "tnet.safetensors"
    network.save(file, half=True)
    assert file.stat().st_size < 200_000
    again, x = fovea.load(file), torch.randn(1, 3, 128, 128)
    assert again.labels == network.labels
    assert torch.allclose(answers(again, x).each[:, 0], answers(network, x).each[:, 0], atol=1e-5)


def test_other_classes_are_kept_in_the_file(network: Network, tmp_path: Path) -> None:
    file = tmp_path / "tnet.safetensors"
    network.save(file)
    other = fovea.load(file, classes=7)
    other.save(tmp_path / "other.safetensors")
    again, x = fovea.load(tmp_path / "other.safetensors"), torch.randn(1, 3, 128, 128)
    assert torch.allclose(answers(again, x).logits, answers(other, x).logits, atol=1e-5)
    assert answers(again, x).logits.shape == (1, 7)


def test_a_network_without_a_linear_layer_at_its_end_is_refused() -> None:
    refused("linear layer", fovea.load, "tnet-classifier/timm/resnet10t", pretrained=False, options={"num_classes": 0})


def test_it_learns_where_to_look_from_pictures_of_any_class(tmp_path: Path) -> None:
    for place, name in enumerate(("tench", "goldfish", "tench", "goldfish")):
        save(tmp_path / "known" / name / f"{place}.png", (90, 70), 60 * place)
        save(tmp_path / "more" / f"bird {place}" / "a.png", (90, 70), 50 * place)
    known, more = str(tmp_path / "known"), str(tmp_path / "more")
    content = {
        "batch": 4,
        "half": True,
        "network": {"name": "tnet-classifier/efficientnet_lite0", "keep": "all", "options": OPTIONS},
        "data": {"train": known, "more": [more], "test": known},
        "loss": {"name": "gain", "taught_by": "efficientnet_lite0"},
        "optimizer": {"name": "adamw", "lr": 1e-3},
    }
    trained = train(recipe(**content), tmp_path / "out", "looking")
    assert trained.score.keys() == {"top1", "top5", "alone_at_1", "alone_at_2", "entropy_at_2"}
    again, began = fovea.load(trained.weights), fovea.load(content["network"]["name"], options=OPTIONS)
    assert again.labels == fovea.load("efficientnet_lite0").labels
    moved = {
        key.partition(".")[0]
        for (key, new), old in zip(again.module.state_dict().items(), began.module.state_dict().values(), strict=True)
        if not torch.equal(new, old)
    }
    assert moved == {"location"}
    for left_out in ({"network": content["network"] | {"keep": False}}, {"loss": {"name": "gain"}}):
        with pytest.raises(fovea.FoveaError, match="more is of other classes"):
            recipe(**content | left_out)
