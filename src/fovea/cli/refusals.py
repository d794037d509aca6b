"""What can be refused before torch is imported, which takes seconds: files that are not there, names of nothing."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fovea import data, heatmaps, networks, patches, pictures, retrieval
from fovea.basics import BadChoice, BadPicture

GPUS = ("nvidia*", "nvhost*", "nvmap", "dxg", "kfd")  # below /dev, of a machine that has one: NVIDIA's, WSL's, AMD's
NO_CLASS = re.compile(r"top-?[0-9]{1,9}|contrast|output|embedding|pair")
VERSUS = " vs "  # between two classes
SPECIAL = ("all", "random", "self-attention")  # methods that are no files of heatmaps: every one, a control, a stream's
NETS = ("net", "localizer", "full", "rival", "against", "surrogate", "texture_net")


def refuse(values: Mapping[str, Any]) -> None:
    """Refuses, by name of the option, what cannot be right whatever the network says; a service has its own."""
    values = values if values.get("server") is None else {**values, "net": None}
    if "server" in values and values["server"] is None and values["token"] is not None:
        raise BadChoice("--token is for a service: name its address, --server URL")
    bulk = values.get("parquet") or values.get("engine") == "ray"  # what lies afar is not looked for here
    left = {"pictures", "given", "device"} if bulk else set()
    for name, check in CHECKS.items():
        if (value := values.get(name)) is not None and name not in left:
            check(value)
    nets = values.get("net") or ()
    if values.get("weights") is not None and len(nets) > 1:
        raise BadChoice(f"--weights is for one network, and {len(nets)} are named: name the files themselves by --net")
    for name in ("target", "truth"):
        demand_classes(values, name)


def demand_classes(values: Mapping[str, Any], name: str) -> None:
    """Refuses classes that the network does not know, where its classes are known without loading it."""
    nets: Sequence[str] = values.get("net") or ()
    words = [word for word in _listed(values.get(name) or ()) if not NO_CLASS.fullmatch(word)]
    if words and len(nets) == 1 and values.get("weights") is None and (labels := networks.labels_of(nets[0])):
        for word in words:
            for part in word.split(VERSUS) if word.count(VERSUS) == 1 and word not in labels else [word]:
                networks.class_index(part.strip(), labels)


def _listed(given: str | Iterable[str]) -> Iterable[str]:
    return [given] if isinstance(given, str) else given


def _pictures(given: Iterable[str]) -> None:
    """Some may be missing, which is told when their turn comes; not all."""
    reasons = []
    for name in given:
        files, reason = pictures.files_of(
            name, lambda path: pictures.is_picture_name(path) or pictures.is_clip_name(path)
        )
        if files:
            return
        reasons.append(reason)
    raise BadPicture("; ".join(reasons[:3]) or "no pictures were given")


def _media(given: Sequence[str]) -> None:
    media = patches.sort_out(given)
    if given and media.missing and not media.present:
        raise BadPicture("; ".join(reason for _, reason in media.missing[:3]))
    if media.present == ["pictures"]:
        _pictures(media.pictures)


def _networks(given: str | Iterable[str]) -> None:
    for name in _listed(given):
        networks.demand_known(name)


def _weights(path: Path) -> None:
    if not path.is_file():
        raise networks.no_file(path)


def _methods(names: Iterable[str]) -> None:
    for name in names:
        if name not in SPECIAL:
            heatmaps.known(name)


def _sources(given: Iterable[str]) -> None:
    for text in given:
        patches.demand_source(text)


def _device(name: str) -> None:
    if name.startswith("cuda") and sys.platform == "linux" and not any(any(Path("/dev").glob(gpu)) for gpu in GPUS):
        raise BadChoice("there is no GPU that torch can use here: leave the device out, or name cpu")


CHECKS: dict[str, Callable[[Any], None]] = {
    "method": _methods,
    "device": _device,
    "weights": _weights,
    **dict.fromkeys(NETS, _networks),
    "pictures": _pictures,
    "given": _media,
    "picture": lambda path: None if path.is_file() else _pictures([str(path)]),
    "data": lambda given: data.demand_data(given),
    "source": _sources,
    "index": lambda path: retrieval.demand_index(path),
}
