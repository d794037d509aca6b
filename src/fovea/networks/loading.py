"""Name to network: weights, transform and labels in one object."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fovea import basics
from fovea.basics import REFERENCE, BadChoice, BadNetwork, FoveaError, printable
from fovea.networks import names
from fovea.networks.building import MOST, Budget, Classes, Load, budget_of, build
from fovea.networks.facts import LETTERS, MADE_ANEW, PIXELS, Facts, facts, refuse_options, refused, yourself
from fovea.networks.folders import load_folder, refuse_more
from fovea.networks.heads import classes_in, new_head
from fovea.networks.heads import keep_classes as keep_classes
from fovea.networks.hubs import PLAIN
from fovea.networks.names import FILES, HUBS, OFFLINE, card_of, demand_known, is_known, our_file, ours
from fovea.networks.network import Network, wrap
from fovea.networks.registry import model, split
from fovea.networks.running import Origin, placed
from fovea.networks.weights import of_extractor, put, read_weights
from fovea.pictures import Prepare

NetworkLike = Network | nn.Module | str | Path
Options = Mapping[str, Any] | None


@basics.bounded
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
    such as `{"drop_rate": 0.2}` for timm."""
    if names.is_of_transformers(str(name)):
        refuse_more(str(name), weights, options)
        network = load_folder(str(name), pretrained)
        if classes is not None:
            new_head(network, classes)
        return network
    return _load(load, str(name), weights, pretrained, classes, options)


def _load(
    loads: Load, name: str, weights: str | Path | None, pretrained: bool, classes: Classes, options: Options
) -> Network:
    """`loads` gives the networks that it is built over."""
    basics.demand_kinds(_load, locals())
    if names.is_file_name(name):
        demand_known(name)
        if weights is not None:
            raise BadChoice(f"{name!r} is a weights file itself: give a network's name, or leave weights={weights} out")
        return _load_file(Path(name), classes, options)
    if weights is None and name in ours():
        file = our_file(name)
        return _load_file(file, classes, options) if pretrained else _like(file, classes, options)
    kind, given = kind_of(name), dict(options or {})
    if not is_known(kind) and not split(kind)[0]:
        demand_known(name)
    if weights is None:
        network = build(loads, kind, pretrained, classes, given)
    else:
        path = Path(weights)
        network = _trained(loads, kind, path, read_weights(path), classes, given, MOST)
    network.name, network.origin = kind if REFERENCE.fullmatch(name) else name, network.origin or Origin(kind, given)
    network.module.eval()
    return network


def _trained(
    loads: Load, kind: str, path: Path, state: dict[str, Tensor], classes: Classes, options: dict[str, Any], values: int
) -> Network:
    """A network with the weights of a file. A file of fovea's says how many classes it has, of another it is told by
    its tensors."""
    about = facts(path)
    labels = about.labels if about.network == kind else None
    new = classes is not None  # a last layer, which no file has
    network = build(loads, kind, False, len(labels) if labels else None, options, Budget(kind, values, new))
    if classes is None and of_extractor(state, network.module) is not state:
        mend = "Give classes=N for a new one to train, or load the file itself"
        raise BadChoice(f"{path} is a TNet's: its features fit {kind}, which needs a last layer of its own. {mend}")
    told = None if labels else classes_in(state, network.module)
    network = network if told is None else build(loads, kind, False, told, options, Budget(kind, values, new))
    put(network.module, state, path)
    network.temperature = about.temperature if about.network == kind else None
    if classes is not None:
        new_head(network, classes)
    return network


def _load_within(name: str, weights: None, pretrained: bool, classes: Classes, options: Options) -> Network:
    """What the network of a weights file is built over: known by name, and never fetched or another file's."""
    if Path(name).suffix.lower() in FILES or (pretrained and _is_fetched(name)):
        raise BadNetwork(
            f"its features would be fetched, or read from another file ({printable(name)[:LETTERS]}), and no file may "
            "ask for that: name them yourself, fovea.load(NAME, weights=FILE, options=…)"
        )
    return _load(_load_within, name, None, pretrained, classes, options)


def _is_fetched(name: str) -> bool:
    """Whether the weights of a network are a hub's."""
    kind, inner = split(name)
    return name.startswith(HUBS) or (bool(kind) and (model.entry(kind).traits["over"] == "timm" or _is_fetched(inner)))


def as_network(net: NetworkLike, device: str | torch.device | None = None) -> Network:
    """A network as verbs take it: by name or weights file, as a module, or as it is; on a device if one is named, where
    it stays ('auto': the GPU if there is one)."""
    network = load(net) if isinstance(net, (str, Path)) else net if isinstance(net, Network) else wrap(net)
    return network if device is None else placed(network, device)


def kind_of(name: str) -> str:
    """The name that builds a network: what a weights file of ours is for, what a builder of the user's own is
    registered as, any other name itself."""
    if name in ours():
        return str(facts(our_file(name)).network)
    return model.entry(name).name if REFERENCE.fullmatch(name) else name


def _load_file(path: Path, classes: int | None, options: Mapping[str, Any] | None) -> Network:
    about, given = facts(path), dict(options or {})
    state = read_weights(path)  # a refusal for what is in the file comes before the question what it is for
    if about.network is None:
        way = f"fovea.load('timm/<name>', weights={str(path)!r})"
        raise BadNetwork(f"{path} does not say which network it is for; {way}")
    _check_known(about.network, path)
    built, kind = _options(path, about, given), kind_of(about.network)
    try:
        network = _trained(_load_within, kind, path, state, classes, built, budget_of(state))
    except FoveaError as error:
        raise BadNetwork(str(error) if str(path) in str(error) else f"{path} cannot be loaded: {error}") from None
    except Exception as error:  # whatever its options made the builder do
        said = printable(f"{type(error).__name__}: {error}")[:LETTERS]
        raise BadNetwork(f"{path} is damaged, or not fovea's ({kind} cannot be built: {said}): {MADE_ANEW}") from None
    network.origin = network.origin or Origin(about.network, built)
    network.module.eval()
    return _described(network, path, about, classes, card_of(path))


def _options(path: Path, about: Facts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a file, where one may ask for them, and the caller's, which come first."""
    declared, opens = _declared(about.network or "")
    asked = {key: value for key, value in about.options.items() if key not in given}
    refuse_options(path, asked, declared)
    for key in opens & asked.keys():
        if asked[key] is not None and not _is_at_hand(str(asked[key])):
            raise refused(key, path, f"{asked[key]!r} does not come with fovea; {yourself(path)}")
    return asked | dict(given)


def _is_at_hand(source: str) -> bool:
    """Whether a patch source, KIND:NET,key=value, is fovea's, and so is its network."""
    kind, colon, rest = source.partition(":")
    pieces, at_hand = [piece.strip() for piece in rest.split(",")], {*OFFLINE, *ours()}
    settings = [piece for piece in pieces if "=" in piece and Path(piece).suffix.lower() not in FILES]
    known = kind in basics.declared_names("method", "patch_source")
    return not colon or (known and at_hand.issuperset({*pieces} - {*settings}))


def _declared(name: str) -> tuple[dict[str, Any], frozenset[str]]:
    """The options that a file may give a network, with their types; and those of them that name another network."""
    if name in ours():
        return _declared(kind_of(name))
    kind, inner = split(name)
    if not kind and name not in model:
        return PLAIN, frozenset()
    builder = model.get(kind or inner)
    theirs, opens = ({}, frozenset()) if not kind else _declared("timm/" if builder.over == "timm" else inner)
    return {**theirs, **builder.types}, opens | frozenset(builder.entry.traits.get("opens", ()))


def _check_known(name: str, path: Path) -> None:
    """A weights file may not have code imported: what it is for must be known already."""
    if not is_known(name):
        inner = name.rpartition("/")[2]
        reference = inner if REFERENCE.fullmatch(inner) else f"package.module:{inner}"
        raise BadNetwork(
            f"{path} is for the network {name!r}, which is not registered here: import the module that declares it "
            f"first, or fovea.load({name.removesuffix(inner) + reference!r}, weights={str(path)!r})"
        )


def _like(path: Path, classes: int | None, options: Mapping[str, Any] | None) -> Network:
    """The network of a weights file of ours, built anew with random weights."""
    about = facts(path)
    built = about.options | dict(options or {})
    count = classes or len(about.labels or ()) or None
    network = load(about.network or "", pretrained=False, classes=count, options=built)
    return _described(network, path, about, classes)


def _described(network: Network, path: Path, about: Facts, classes: Classes, card: Options = None) -> Network:
    """With labels and transform as its weights file tells them, and what its card says it was trained on."""
    if classes is None:
        network.labels = about.labels or None
    if about.transform is not None:
        network.transform = Prepare(**about.transform.model_dump())
    elif isinstance(network.transform, Prepare) and math.prod(network.transform.size) > PIXELS:
        raise BadNetwork(f"{path} asks for pictures of {network.transform.size} pixels; at most {PIXELS:,} are taken")
    network.name = _called(path, about)
    if card is not None and card.get("chosen_on"):
        network.chosen_on = printable(str(card["chosen_on"]))[:LETTERS]
    if classes is None and about.labels and card is not None:
        network.trained_on = printable(str(card.get("trained_on", ""))).partition(":")[0][:LETTERS]
    return network


def _called(path: Path, about: Facts) -> str:
    """As its file says, but never as one that comes with fovea; else as the file, or a run's folder, is called."""
    if about.name is not None and about.name not in {*ours(), *OFFLINE}:
        return about.name
    return path.absolute().parent.name if path.name == "weights.safetensors" else path.stem
