"""Every registered model builds, states what it can do, and answers; models of a user's own are taken alike."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import raises, refused
from fovea.basics import BadChoice, BadNetwork
from fovea.networks import ABILITIES, described, is_untrained, model

SMALL: dict[str, dict[str, object]] = {  # options that make a network small
    "anchornet_text": {"words": ["a", "b"], "width": 8},
    "bagnet77": {"width": 0.1},
    "dram": {"width": 0.05},
    "saccader": {"width": 0.05},
    "textcnn": {"words": ["a", "b"], "width": 8},
    "tnet": {"base": 64},
    "tnet-bagnet77": {"width": 0.1},
    "twostream": {"side": 64, "patch": 32, "hidden": 8, "share": True, "self_attention": True, "source": "whole"},
    "local": {"patch": 32, "hidden": 8, "source": "whole"},
    "video": {"size": 64},
}
OVER = {"network": "timm/resnet10t", "classifier": "timm/resnet10t", "timm": "resnet10t"}


def loaded(kind: str) -> fovea.Network:
    entry = model.entry(kind)
    over = entry.traits.get("over")
    classes = None if "embedding" in entry.traits.get("can", ()) else 3
    return fovea.load(f"{kind}/{OVER[over]}" if over else kind, None, False, classes, SMALL.get(kind, {}))


def inputs(network: fovea.Network) -> Tensor:
    if network.can("texts"):
        return torch.full((2, 9), 2)
    if network.can("sounds"):
        return torch.randn(2, 32, 30)
    pictures = torch.randn(2, 3, *network.transform.size)
    return pictures.unsqueeze(1) if network.can("frames") else pictures


@pytest.mark.parametrize("kind", list(model))
def test_every_model_builds_states_its_abilities_and_answers(kind: str, tmp_path: Path) -> None:
    network = loaded(kind)
    declared = model.entry(kind).traits.get("can", ())
    assert {ability for ability in ABILITIES if network.can(ability)} == set(declared)
    x = inputs(network)
    with torch.no_grad():
        out = network(x)
    assert out.shape == ((2, 128) if network.can("embedding") else (2, 3))
    assert out.isfinite().all()
    with pytest.raises((BadChoice, RuntimeError)):  # it says what it takes
        network.module(torch.zeros(1, 1, 1))
    network.save(tmp_path / "net.safetensors")
    again = fovea.load(tmp_path / "net.safetensors")
    assert (again.labels, again.layer, again.transform) == (network.labels, network.layer, network.transform)
    with torch.no_grad():
        assert torch.equal(again(x), out)
        if network.labels is not None:  # a new last layer, and the rest as it was
            more = fovea.load(tmp_path / "net.safetensors", classes=5)
            assert more(x).shape == (2, 5)
            kept, other = network.module.state_dict(), more.module.state_dict()
            alike = [key for key, value in kept.items() if value.shape == other[key].shape]
            assert all(torch.equal(kept[key], other[key]) for key in alike)
            assert len(kept) - 12 <= len(alike) < len(kept)
    assert any(model.entry(kind).about in line for line in described(kind))


def test_options_that_nobody_takes_are_refused_with_the_nearest() -> None:
    refused("smallnet has no option 'sid'; did you mean 'side'", fovea.load, "smallnet", options={"sid": 64})
    with pytest.raises(BadChoice, match="saccader has no option 'locatons'; did you mean 'locations'"):
        fovea.load("saccader", options={"locatons": 2})
    refused("tnet is built over another network: give tnet/NAME", fovea.load, "tnet")


def test_what_only_says_how_a_network_is_built_is_untrained() -> None:
    assert all(map(is_untrained, ("smallnet", "tnet/resnet10t", "gap/efficientnet_lite0", "acol/x", "my.module:net")))
    assert not any(map(is_untrained, ("efficientnet_lite0", "timm/resnet10t", "anchornet-cub100")))


STRANGERS = """
from torch import nn
import fovea
from fovea.networks.registry import model

class Tiny(nn.Module):
    def __init__(self, classes, width=4):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, width, 3), nn.Linear(width, classes)
    def forward(self, x):
        return self.last(self.conv(x).mean((2, 3)))

@model("strangers-tiny", about="a network of somebody's own")
def tiny(classes: int, width: int = 4):
    return Tiny(classes, width)

def plain(classes, width=4):
    return fovea.wrap(Tiny(classes, width), labels=classes)

def wrong(classes):
    return ["not", "a", "network"]

@model("strangers-over", over="network")
def over(features, classes, width: int = 4):
    return Tiny(classes, width)
"""


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "strangers_net.py").write_text(STRANGERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(model, "_given", dict(model._given))
    monkeypatch.setattr(model, "_made", dict(model._made))
    monkeypatch.delitem(sys.modules, "strangers_net", raising=False)
    return "strangers_net"


def test_a_builder_of_a_users_own(strangers: str, tmp_path: Path) -> None:
    network = fovea.load(f"{strangers}:tiny", classes=2, options={"width": 5})
    x = torch.randn(1, 3, 9, 9)
    assert network(x).shape == (1, 2)
    assert network.labels == ("0", "1")
    assert isinstance(network.module.last, nn.Linear)
    assert network.name == "strangers-tiny"
    network.save(tmp_path / "tiny.safetensors")
    assert torch.equal(fovea.load(tmp_path / "tiny.safetensors")(x), network(x))
    assert fovea.load("strangers-tiny", classes=4)(x).shape == (1, 4)
    assert fovea.load("strangers-over/timm/resnet10t", pretrained=False, classes=2)(x).shape == (1, 2)
    with pytest.raises(BadNetwork, match=r"wrong returned a list: a builder returns a fovea\.Network"):
        fovea.load(f"{strangers}:wrong", classes=2)
    with pytest.raises(BadChoice, match="has no option 'widht'; did you mean 'width'"):
        fovea.load(f"{strangers}:plain", classes=2, options={"widht": 5})


@pytest.mark.parametrize("name", ["tiny", "plain"])
def test_a_weights_file_imports_no_code(
    strangers: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, x = fovea.load(f"{strangers}:{name}", classes=2), torch.randn(1, 3, 9, 9)
    file = tmp_path / "net.safetensors"
    network.save(file)
    monkeypatch.setattr(model, "_given", {})
    monkeypatch.setattr(model, "_made", {})
    monkeypatch.delitem(sys.modules, strangers)
    raises(BadNetwork, r"import the module that declares it first, or fovea\.load", fovea.load, file)
    assert strangers not in sys.modules
    assert torch.equal(fovea.load(f"{strangers}:{name}", weights=file)(x), network(x))
