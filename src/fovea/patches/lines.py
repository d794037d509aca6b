"""The line of text that a patch source is named by, KIND:NET,key=value,…; what is wrong with it is told
without torch."""

import re
from pathlib import Path

from fovea.basics import REFERENCE, BadChoice, importable, nearest
from fovea.heatmaps import names
from fovea.networks import FILES as WEIGHTS
from fovea.networks import demand_known, is_untrained
from fovea.patches.sources import patch_source


def kinds() -> list[str]:
    """Every source by name: the heatmaps of every method, then those that are declared."""
    return [*names(), *patch_source]


def parsed(text: str) -> tuple[str, str, dict[str, str]]:
    """'KIND:NET,key=value,key=value' in its parts; the network's name or file comes first, and may be left out."""
    kind, _, rest = text.partition(":")
    own = re.match(rf"{REFERENCE.pattern}(?=:|$)", text)
    if own is not None and kind not in kinds() and importable(kind):
        kind, rest = own[0], text[own.end() + 1 :]
    pieces = [piece.strip() for piece in rest.split(",") if piece.strip()]
    first_is_net = bool(pieces) and ("=" not in pieces[0] or Path(pieces[0]).suffix.lower() in WEIGHTS)
    net = pieces.pop(0) if first_is_net else ""
    options: dict[str, str] = {}
    for piece in pieces:
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not key:
            raise BadChoice(f"a patch source is written KIND:NET,key=value,key=value; got {piece!r} in {text!r}")
        if key in options:
            raise BadChoice(f"{key} is given twice in {text!r}")
        options[key] = value
    return kind.strip(), net, options


def without_folders(text: str) -> str:
    """The line with the last part alone of its network's path."""
    kind, net, options = parsed(text)
    name = Path(net).name if Path(net).suffix.lower() in WEIGHTS else net
    pieces = [*filter(None, [name]), *(f"{key}={value}" for key, value in options.items())]
    return f"{kind}:{','.join(pieces)}" if pieces else kind


def demand_kind(kind: str) -> None:
    if kind not in (known := kinds()) and not REFERENCE.fullmatch(kind):
        there = f"there are: {', '.join(known)}; your own: package.module:name"
        raise BadChoice(f"no patch source {kind!r}{nearest(kind, known)} ({there})")


def demand_trained(net: str) -> str:
    """A network that has weights, or is refused."""
    if is_untrained(net):
        mend = "train it and name its .safetensors file, or name one that comes with fovea ('fovea models')"
        raise BadChoice(f"{net} has no trained weights, so its patches would mean nothing: {mend}")
    return net


def demand_source(text: str) -> None:
    """Refuses a kind or a network that there is not."""
    kind, net, _ = parsed(text)
    demand_kind(kind)
    if net:
        demand_known(demand_trained(net))
