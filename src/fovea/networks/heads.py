"""The last layer of any network: a new one for other classes, or the rows of some of its classes."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, BadNetwork, nearest
from fovea.networks.classes import last_to_run
from fovea.networks.network import Network, as_found
from fovea.networks.stream import blank


def new_head(network: Network, classes: int) -> None:
    """An untrained last layer for so many classes, where the network has another number of them."""
    module, before = network.module, len(network.labels or ())
    if before == classes:
        return
    reset: Any = getattr(module, "reset_classifier", None)  # timm's
    if reset is not None:
        reset(classes)
    else:  # the layers with an output a class: the last one, and those of auxiliary heads
        for name, layer in list(module.named_modules()):
            if before not in (getattr(layer, "out_features", None), getattr(layer, "out_channels", None)):
                continue
            new: nn.Module
            if isinstance(layer, nn.Conv2d):
                new = nn.Conv2d(layer.in_channels, classes, layer.kernel_size, bias=layer.bias is not None)  # type: ignore[arg-type]
            else:
                new = nn.Linear(int(layer.in_features), classes, bias=layer.bias is not None)  # type: ignore[arg-type]
            module.set_submodule(name, new)
    number_labels(network, classes)


def keep_classes(network: Network, labels: Sequence[str]) -> None:
    """Of the classes that a network knows these alone, found by name: their rows of the last layer stay trained."""
    places = [network.index(label) for label in labels]
    module, before = network.module, len(network.labels or ())
    heads = {
        name: (layer.weight.detach().clone(), None if layer.bias is None else layer.bias.detach().clone())
        for name, layer in module.named_modules()
        if isinstance(layer, (nn.Linear, nn.Conv2d)) and len(layer.weight) == before
    }
    new_head(network, len(labels))
    for name, (weight, bias) in heads.items():
        layer: Any = module.get_submodule(name)
        with torch.no_grad():
            layer.weight.copy_(weight[places])
            if bias is not None:
                layer.bias.copy_(bias[places])
    network.labels = tuple(labels)


def number_labels(network: Network, classes: int) -> None:
    network.labels, network.temperature = tuple(map(str, range(classes))), None


def classes_in(state: Mapping[str, Tensor], module: nn.Module) -> int | None:
    """How many classes a state dict was trained for, where its tensors differ from the module's in that alone."""
    pairs = [(value, state[key]) for key, value in module.state_dict().items() if key in state]
    pairs = [(ours, its) for ours, its in pairs if ours.shape != its.shape and its.ndim]
    counts = {len(its) for ours, its in pairs if ours.shape[1:] == its.shape[1:]}
    return counts.pop() if len(counts) == 1 else None


FEATURES = ("output", "pooled")


def embedding(network: Network, features: str | None = None) -> tuple[Network, str]:
    """A network whose output is the embedding, without labels, and which features it is: 'output' or 'pooled'. A
    classifier's are pooled unless told otherwise, any other network's are its output. Layers are shared with the
    network given, which stays as it is."""
    features = features or ("pooled" if network.labels else "output")
    if features not in FEATURES:
        raise BadChoice(f"features are {' or '.join(FEATURES)}; got {features!r}{nearest(features, FEATURES)}")
    if features == "pooled":
        return without_last(network), features
    return replace(network, labels=None, temperature=None, _cuts={}), features


def without_last(network: Network) -> Network:
    """The network without its last layer: what that layer reads is the output."""
    picture = blank(network)
    name, width = _last_layer(network, picture)
    module = _with(network.module, name.split("."), nn.Identity())
    own = replace(network, module=module, labels=None, temperature=None, _cuts={})
    try:
        with as_found(own), torch.no_grad():
            fits = own(picture).shape == (1, width)
    except Exception:  # whatever follows the last layer may refuse what it is given
        fits = False
    if not fits:
        raise BadNetwork(
            f"{_name(network)} does more after its last layer {name!r} than to give its output, so the features before "
            "it are not the network's: use features='output', or wrap a module that returns the embedding"
        )
    return own


def _last_layer(network: Network, picture: Tensor) -> tuple[str, int]:
    """The name of the last linear layer, or 1 x 1 convolution, that runs, and how many values it reads."""
    name, _ = last_to_run(network, picture, lambda layer: _width(layer) is not None)
    if not name:
        mend = "use features='output'"
        raise BadNetwork(f"{_name(network)} has no last linear layer whose input could be its features: {mend}")
    return name, int(_width(network.module.get_submodule(name)) or 0)


def _width(layer: nn.Module) -> int | None:
    if isinstance(layer, nn.Conv2d):
        return layer.in_channels if layer.kernel_size == (1, 1) else None
    return layer.in_features if isinstance(layer, nn.Linear) else None


def _with(module: nn.Module, path: Sequence[str], layer: nn.Module) -> nn.Module:
    """A copy that differs in one layer and shares all others."""
    other = copy.copy(module)
    inner = module.get_submodule(path[0])
    other._modules = {**module._modules, path[0]: layer if len(path) == 1 else _with(inner, path[1:], layer)}
    return other


def _name(network: Network) -> str:
    return network.name or type(network.module).__name__
