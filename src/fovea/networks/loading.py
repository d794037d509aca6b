"""Name to network: weights, transform and labels in one object."""

import json
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fovea.basics import REFERENCE, BadChoice, BadNetwork, nearest
from fovea.networks.building import build
from fovea.networks.devices import placed
from fovea.networks.heads import classes_in, new_head
from fovea.networks.heads import keep_classes as keep_classes
from fovea.networks.hubs import OFFLINE as OFFLINE
from fovea.networks.hubs import torchvision_names
from fovea.networks.network import Network, wrap
from fovea.networks.registry import model, split
from fovea.networks.running import Origin
from fovea.networks.weights import FILES, facts, no_file, of_extractor, put, read_weights
from fovea.pictures import Prepare

OURS = Path(__file__).parents[1] / "weights"
HUBS = ("timm/", "torchvision/")
NetworkLike = Network | nn.Module | str | Path


def load(
    name: str | Path,
    weights: str | Path | None = None,
    pretrained: bool = True,
    classes: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Network:
    """A network by name.

    A name of our own, such as `efficientnet_lite0-cub100`: weights that come with fovea, described by their card.
    `efficientnet_lite0`, `1`, `2`: ImageNet weights from an installed package, nothing downloaded.
    `timm/<name>`, `torchvision/<name>`: the hub's weights, or none with `pretrained=False`, or the user's file with
    `weights=`. A `.safetensors` file written by `Network.save` names its own network. `package.module:name`: a builder
    of the user's own.
    `classes` other than the weights' gives a new, untrained last layer. `options` go to whoever builds the network,
    such as `{"drop_rate": 0.2}` for timm.
    """
    name = str(name)
    if Path(name).suffix.lower() in FILES and (Path(name).is_file() or not (name.startswith(HUBS) or split(name)[0])):
        if not Path(name).is_file():
            raise no_file(Path(name))
        if weights is not None:
            raise BadChoice(f"{name!r} is a weights file itself: give a network's name, or leave weights={weights} out")
        return _load_file(Path(name), classes, options)
    if weights is None and name in ours():
        file = OURS / f"{name}.safetensors"
        return _load_file(file, classes, options) if pretrained else _like(file, classes, options)
    kind, given = kind_of(name), dict(options or {})
    if not _is_known(kind) and not split(kind)[0]:
        known = [one for names in models().values() for one in names]
        raise BadChoice(f"no network {name!r}{nearest(name, known)} ('fovea models' lists them)")
    if weights is None:
        network = build(load, kind, pretrained, classes, given)
    else:
        network = _trained(kind, Path(weights), classes, given)
    network.name, network.origin = kind if REFERENCE.fullmatch(name) else name, network.origin or Origin(kind, given)
    network.module.eval()
    return network


def _trained(kind: str, path: Path, classes: int | None, options: dict[str, Any]) -> Network:
    """A network with the weights of a file. A file of fovea's says how many classes it has, of another it is told by
    its tensors."""
    state, about = read_weights(path), facts(path)
    labels = json.loads(about.get("fovea.labels", "null")) if about.get("fovea.network") == kind else None
    network = build(load, kind, False, len(labels) if labels else None, options)
    if classes is None and of_extractor(state, network.module) is not state:
        raise BadChoice(
            f"{path} is a TNet's: its features fit {kind}, which needs a last layer of its own. Give classes=N "
            "for a new one to train, or load the file itself"
        )
    told = None if labels else classes_in(state, network.module)
    network = network if told is None else build(load, kind, False, told, options)
    put(network.module, state, path)
    if classes is not None:
        new_head(network, classes)
    return network


def as_network(net: NetworkLike, device: str | torch.device | None = None) -> Network:
    """A network as verbs take it: by name or weights file, as a module, or as it is; on a device if one is named, where
    it stays ('auto': the GPU if there is one)."""
    network = load(net) if isinstance(net, (str, Path)) else net if isinstance(net, Network) else wrap(net)
    return network if device is None else placed(network, device)


def ours() -> dict[str, dict[str, Any]]:
    """The weights that come with fovea, by name, each with its card: data, recipe, score, date."""
    cards = sorted(OURS.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in cards}


def kind_of(name: str) -> str:
    """The name that builds a network: what a weights file of ours is for, what a builder of the user's own is
    registered as, any other name itself."""
    if name in ours():
        return facts(OURS / f"{name}.safetensors")["fovea.network"]
    return model.entry(name).name if REFERENCE.fullmatch(name) else name


def models(pattern: str = "") -> dict[str, list[str]]:
    """What can be loaded, by where it comes from; `pattern` is a part of a name or a glob, in either case, or the
    beginning of where it comes from: ours, offline."""
    import timm

    pattern = pattern.lower()
    wanted = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    over = [name for name, entry in model.entries().items() if entry.traits.get("over")]
    everything = {
        "ours, trained": list(ours()),
        "offline, with ImageNet weights": list(OFFLINE),
        "ours, to train": [name for name in model if name not in over],
        "ours, to train over any network": [f"{name}/NAME" for name in over],
        "timm": [f"timm/{name}" for name in timm.list_models()],
        "torchvision": [f"torchvision/{name}" for name in torchvision_names()],
    }
    return {
        source: [name for name in names if fnmatch(name.lower(), wanted) or (pattern and source.startswith(pattern))]
        for source, names in everything.items()
    }


def _load_file(path: Path, classes: int | None, options: Mapping[str, Any] | None) -> Network:
    about = facts(path)
    if "fovea.network" not in about:
        read_weights(path)  # a refusal for what is in the file comes before the question what it is for
        raise BadNetwork(
            f"{path} does not say which network it is for; fovea.load('timm/<name>', weights={str(path)!r})"
        )
    kind = about["fovea.network"]
    _check_known(kind, path)
    built = json.loads(about.get("fovea.options", "{}")) | dict(options or {})
    network = load(kind, path, classes=classes, options=built)
    _describe(network, about, classes)
    network.name = path.stem
    return network


def _check_known(name: str, path: Path) -> None:
    """A weights file may not have code imported: what it is for must be known already."""
    if not _is_known(name):
        inner = name.rpartition("/")[2]
        reference = inner if REFERENCE.fullmatch(inner) else f"package.module:{inner}"
        raise BadNetwork(
            f"{path} is for the network {name!r}, which is not registered here: import the module that declares it "
            f"first, or fovea.load({name.removesuffix(inner) + reference!r}, weights={str(path)!r})"
        )


def _is_known(name: str) -> bool:
    kind, inner = split(name)
    if kind:
        return model.entry(kind).traits["over"] == "timm" or _is_known(inner)
    return name in model or name in OFFLINE or name in ours() or name.startswith(HUBS)


def _like(path: Path, classes: int | None, options: Mapping[str, Any] | None) -> Network:
    """The network of a weights file, built anew with random weights."""
    about = facts(path)
    labels = json.loads(about.get("fovea.labels", "null"))
    built = json.loads(about.get("fovea.options", "{}")) | dict(options or {})
    network = load(
        about["fovea.network"], pretrained=False, classes=classes or len(labels or ()) or None, options=built
    )
    _describe(network, about, classes)
    network.name = path.stem
    return network


def _describe(network: Network, about: Mapping[str, str], classes: int | None) -> None:
    """Labels and transform as a weights file tells them."""
    labels = json.loads(about.get("fovea.labels", "null"))
    if classes is None:
        network.labels = tuple(labels) if labels else None
    if "fovea.transform" in about:
        given = json.loads(about["fovea.transform"])
        size, mean, std = (tuple(given.pop(key)) for key in ("size", "mean", "std"))
        network.transform = Prepare(size, mean, std, **given)
