"""The last layer of any network: a new one for other classes, or the rows of some of its classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fovea.networks.network import Network


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
    network.labels = tuple(map(str, range(classes)))


def classes_in(state: Mapping[str, Tensor], module: nn.Module) -> int | None:
    """How many classes a state dict was trained for, where its tensors differ from the module's in that alone."""
    pairs = [(value, state[key]) for key, value in module.state_dict().items() if key in state]
    pairs = [(ours, its) for ours, its in pairs if ours.shape != its.shape and its.ndim]
    counts = {len(its) for ours, its in pairs if ours.shape[1:] == its.shape[1:]}
    return counts.pop() if len(counts) == 1 else None
