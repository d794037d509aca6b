"""Networks built over the features of others: KIND/NAME, where NAME is any network that `fovea.load` knows.

Options that a kind's own builder does not take are for the network that it builds over.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fovea.basics.errors import BadChoice
from fovea.networks.network import Network, Origin

Load = Callable[..., Network]  # fovea.load
Builder = Callable[[Load, str, bool, int | None, dict[str, Any]], Network]
WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


def taken(builder: Callable[..., Network], options: dict[str, Any]) -> dict[str, Any]:
    """The options that are the builder's own, taken out of all; the others are for the network that it builds over."""
    known = list(inspect.signature(builder).parameters)[1:]  # the first is that network
    return {key: options.pop(key) for key in known if key in options and key != "classes"}


def _over(kind: str, features: Network, network: Network, own: Mapping[str, Any]) -> Network:
    """What is built over the features of a network is built again over those of its kind, wherever its weights lay."""
    assert features.origin is not None
    network.origin = Origin(f"{kind}/{features.origin.name}", {**features.origin.options, **own})
    return network


def _build(where: str) -> Callable[..., Network]:
    """A builder by its file and name; files are read when they are needed."""
    file, _, name = where.partition(".")
    builder: Callable[..., Network] = getattr(import_module(f"fovea.models.{file}"), name)
    return builder


def _classifier(
    kind: str, where: str, load: Load, name: str, pretrained: bool, classes: int | None, options: dict[str, Any]
) -> Network:
    builder = _build(where)
    own = taken(builder, options)
    features = load(name, None, pretrained, None, options)
    return _over(kind, features, builder(features, 10 if classes is None else classes, **own), own)


def _embedding(
    kind: str, where: str, load: Load, name: str, pretrained: bool, classes: int | None, options: dict[str, Any]
) -> Network:
    if classes is not None:
        raise BadChoice(f"{kind}/{name} has dimensions and no classes: give options dimensions=N")
    builder = _build(where)
    own = taken(builder, options)
    frozen = bool(own.get("frozen"))  # then the features are what the network of that name has, always
    if frozen and Path(name).suffix.lower() in WEIGHTS:
        raise BadChoice(f"frozen features are a network's by name, and {name!r} is a file: leave frozen out")
    features = load(name, None, pretrained or frozen, None, options)
    network = _over(kind, features, builder(features, **own), own)
    if frozen:
        network.origin = Origin(f"{kind}/{name}", {**options, **own})
    return network


def _local(load: Load, name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    """A local stream beside a classifier."""
    builder = _build("twostream.add_local_stream")
    own = taken(builder, options)
    if "source" not in own:
        raise BadChoice(f"local/{name} needs a patch source: options source=KIND:NET, as 'l2caf:{name}'")
    return builder(load(name, pretrained=pretrained, classes=classes, options=options), **own)


OVER: dict[str, Builder] = {
    "protopnet": partial(_classifier, "protopnet", "protopnet.build"),
    "twostream": partial(_classifier, "twostream", "twostream.build"),
    "gap": partial(_classifier, "gap", "erasing.build_gap"),
    "acol": partial(_classifier, "acol", "erasing.build_acol"),
    "embedding": partial(_embedding, "embedding", "embedding.build"),
    "video": partial(_embedding, "video", "videonet.build"),
    "local": _local,
}
