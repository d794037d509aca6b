"""A name and options to a network with random weights, or with those of the hub or of what it is built over. How large
it may become is checked before memory is taken for it."""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fovea.basics import BadChoice, BadNetwork, demand_options, uncollected
from fovea.networks.hubs import load_offline, load_timm, load_torchvision, timm_features
from fovea.networks.names import FILES, OFFLINE
from fovea.networks.network import Network, wrap
from fovea.networks.registry import Builder, model, refused, split
from fovea.networks.running import Origin

Load = Callable[..., Network]  # fovea.load
Classes = int | None
Options = dict[str, Any]


MOST = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8  # values: half of the memory, as float32
SPARE = 2**26  # values that a network may have beside those of its file, such as a borrowed part's
RANDOM = {torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default}  # what initial weights are drawn by
LEAST = 2**12  # what a small tensor counts as, so that their number has an end too


class Budget(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While a network is built, its tensors together have at most so many values; random ones only where they are
    `drawn`, since weights that come from a file would replace them."""

    def __init__(self, name: str, values: int = MOST, drawn: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.values, self.left, self.drawn = name, values, values, drawn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        shapes = [value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not shapes and "device" in kwargs:  # a new tensor: it is made without memory first
            count = func(*args, **(kwargs | {"device": torch.device("meta"), "pin_memory": None})).numel()
            self.left -= max(count, LEAST)
        else:
            count = 0
            if len(shapes) > 1 and torch.Tag.pointwise in func.tags:
                count = math.prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
        if self.left < 0 or count > self.values:
            why = "its options, or the number of its classes, are too large"
            raise BadNetwork(f"{self.name} would have more than {self.values:,} numbers, which is refused: {why}")
        return args[0].zero_() if not self.drawn and func in RANDOM else func(*args, **kwargs)


def budget_of(state: Mapping[str, Tensor]) -> int:
    """What the weights of a file leave room for."""
    return min(MOST, SPARE + 4 * sum(max(value.numel(), LEAST) for value in state.values()))


def build(
    load: Load, name: str, pretrained: bool, classes: Classes, options: Options, budget: Budget | None = None
) -> Network:
    """`load` gives the networks that others are built over."""
    given = dict(options)
    demand_options(given, f"{name}: ")
    try:
        with budget or Budget(name), uncollected():  # timm is imported, too
            return _built(load, name, pretrained, classes, given)
    except TypeError as error:  # the builder's own refusal
        if not options:
            raise
        shown = {key: value if len(str(value)) < 80 else "…" for key, value in options.items()}  # not a vocabulary
        raise BadChoice(f"{name} cannot be built with the options {shown}: {error}") from None


def _built(load: Load, name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    source, _, inner = name.partition("/")
    if split(name)[0]:
        return _over(load, model.get(source), inner, pretrained, classes, options)
    if name in OFFLINE:
        return load_offline(name, pretrained, classes, options)
    if source == "timm" and inner:
        return load_timm(inner, pretrained, classes, options)
    if source == "torchvision" and inner:
        return load_torchvision(inner, pretrained, classes, options)
    builder = model.get(name)
    if builder.over:
        raise BadChoice(f"{name} is built over another network: give {name}/NAME, as {name}/efficientnet_lite0")
    if classes is not None and not builder.has_classes:
        raise BadChoice(f"{name} takes no number of classes: leave classes= out")
    own = builder.take(options)
    if options:
        raise refused(builder, options)
    return _checked(builder, builder((), classes, own), classes)


def _over(load: Load, builder: Builder, inner: str, pretrained: bool, classes: Classes, options: Options) -> Network:
    """Options that the builder does not take are for the network that it builds over."""
    kind, own = builder.entry.name, builder.take(options)
    if classes is not None and not builder.has_classes and builder.over == "network":
        raise BadChoice(f"{kind}/{inner} has dimensions and no classes: give options dimensions=N")
    frozen = bool(own.get("frozen"))  # then the features are what the network of that name has, always
    if frozen and Path(inner).suffix.lower() in FILES:
        raise BadChoice(f"frozen features are a network's by name, and {inner!r} is a file: leave frozen out")
    if builder.over == "timm":
        return _checked(builder, builder((timm_features(inner, pretrained, options),), classes, own), classes)
    theirs = classes if builder.over == "classifier" else None
    features = load(inner, None, pretrained or frozen, theirs, options)
    network = _checked(builder, builder((features,), classes, own), classes)
    if network.origin is None and features.origin is not None:
        # built again over the features of its kind, wherever their weights lay
        origin = Origin(inner, options) if frozen else features.origin
        network.origin = Origin(f"{kind}/{origin.name}", {**origin.options, **own})
    return network


def _checked(builder: Builder, made: Any, classes: int | None) -> Network:
    """What a builder returned, as a network: a bare module is wrapped."""
    if isinstance(made, nn.Module):
        made = wrap(made, labels=classes if builder.has_classes else None)
    if not isinstance(made, Network):
        name, kind = builder.entry.name, type(made).__name__
        raise BadNetwork(f"model {name} returned a {kind}: a builder returns a fovea.Network, or an nn.Module")
    if not hasattr(made.module, "abilities"):
        made.abilities = made.abilities | frozenset(builder.entry.traits.get("can", ()))
    return made
