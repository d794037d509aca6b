"""What a network knows a picture by: its output, or, of a classifier, the features that its last layer reads."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, BadNetwork, nearest
from fovea.networks.classes import last_to_run
from fovea.networks.network import Network, as_found
from fovea.networks.stream import blank

FEATURES = ("output", "pooled")


def embedding(network: Network, features: str | None = None) -> tuple[Network, str]:
    """A network whose output is the embedding, without labels, and which features it is: 'output' or 'pooled'. A
    classifier's are pooled unless told otherwise, any other network's are its output. Layers are shared with the
    network given, which stays as it is."""
    features = features or ("pooled" if network.labels else "output")
    if features not in FEATURES:
        raise BadChoice(f"features are {' or '.join(FEATURES)}; got {features!r}{nearest(features, FEATURES)}")
    return without_last(network) if features == "pooled" else replace(network, labels=None, _cuts={}), features


def without_last(network: Network) -> Network:
    """The network without its last layer: what that layer reads is the output."""
    picture = blank(network)
    name, width = _last_layer(network, picture)
    own = replace(network, module=_with(network.module, name.split("."), nn.Identity()), labels=None, _cuts={})
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
        raise BadNetwork(
            f"{_name(network)} has no last linear layer whose input could be its features: use features='output'"
        )
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
