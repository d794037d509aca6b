"""A name and options to a network with random weights, or with those of the hub or of what it is built over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from fovea.basics import BadChoice, BadNetwork, demand_options, uncollected
from fovea.networks.budget import Budget
from fovea.networks.hubs import load_offline, load_timm, load_torchvision, timm_features
from fovea.networks.names import FILES, OFFLINE
from fovea.networks.network import Network, wrap
from fovea.networks.registry import Builder, model, refused, split
from fovea.networks.running import Origin

Load = Callable[..., Network]  # fovea.load
Classes = int | None
Options = dict[str, Any]


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
