"""What can be refused before torch is imported, which takes seconds: files that are not there, names of nothing."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fovea.basics import BadChoice, BadPicture

GPUS = ("nvidia*", "nvhost*", "nvmap", "dxg", "kfd")  # below /dev, of a machine that has one: NVIDIA's, WSL's, AMD's
NO_CLASS = re.compile(r"top-?[0-9]{1,9}|output|embedding|pair")
SPECIAL = ("all", "random", "self-attention")  # methods that are no files of heatmaps: every one, a control, a stream's


def refuse(values: Mapping[str, Any]) -> None:
    """Refuses, by name of the option, what cannot be right whatever the network says."""
    for name, check in CHECKS.items():
        if (value := values.get(name)) is not None:
            check(value)
    nets = values.get("net") or ()
    if values.get("weights") is not None and len(nets) > 1:
        raise BadChoice(f"--weights is for one network, and {len(nets)} are named: name the files themselves by --net")
    for name in ("target", "truth"):
        demand_classes(values, name)


def demand_classes(values: Mapping[str, Any], name: str) -> None:
    """Refuses classes that the network does not know, where its classes are known without loading it."""
    from fovea.networks import class_index, labels_of

    given: str | Sequence[str] = values.get(name) or ()
    nets: Sequence[str] = values.get("net") or ()
    words = [word for word in ([given] if isinstance(given, str) else given) if not NO_CLASS.fullmatch(word)]
    if words and len(nets) == 1 and values.get("weights") is None and (labels := labels_of(nets[0])):
        for word in words:
            class_index(word, labels)


def _pictures(given: Iterable[str]) -> None:
    """Some may be missing, which is told when their turn comes; not all."""
    from fovea.pictures import files_of, is_clip_name, is_picture_name

    reasons = []
    for name in given:
        files, reason = files_of(name, lambda path: is_picture_name(path) or is_clip_name(path))
        if files:
            return
        reasons.append(reason)
    raise BadPicture("; ".join(reasons[:3]) or "no pictures were given")


def _media(given: Sequence[str]) -> None:
    from fovea.patches import sort_out

    media = sort_out(given)
    if given and media.missing and not media.present:
        raise BadPicture("; ".join(reason for _, reason in media.missing[:3]))
    if media.present == ["pictures"]:
        _pictures(media.pictures)


def _network(name: str) -> None:
    from fovea.networks import demand_known

    demand_known(name)


def _weights(path: Path) -> None:
    if not path.is_file():
        from fovea.networks.names import no_file

        raise no_file(path)


def _data(given: str) -> None:
    from fovea.data import demand_data

    demand_data(given)


def _methods(names: Iterable[str]) -> None:
    from fovea.heatmaps import known

    for name in names:
        if name not in SPECIAL:
            known(name)


def _sources(given: Iterable[str]) -> None:
    from fovea.patches import demand_source

    for text in given:
        demand_source(text)


def _index(path: Path) -> None:
    from fovea.retrieval.store import demand_index

    demand_index(path)


def _file(path: Path) -> None:
    if not path.is_file():
        _pictures([str(path)])


def _device(name: str) -> None:
    if name.startswith("cuda") and sys.platform == "linux" and not any(any(Path("/dev").glob(gpu)) for gpu in GPUS):
        raise BadChoice("there is no GPU that torch can use here: leave the device out, or name cpu")


def _each(check: Callable[[str], None]) -> Callable[[str | Iterable[str]], None]:
    def every(given: str | Iterable[str]) -> None:
        for name in [given] if isinstance(given, str) else given:
            check(name)

    return every


CHECKS: dict[str, Callable[[Any], None]] = {
    "method": _methods,
    "device": _device,
    "weights": _weights,
    **dict.fromkeys(("net", "localizer", "full", "rival", "against", "surrogate", "texture_net"), _each(_network)),
    "pictures": _pictures,
    "given": _media,
    "picture": _file,
    "data": _data,
    "source": _sources,
    "index": _index,
}
