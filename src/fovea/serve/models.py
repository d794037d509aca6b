"""The networks of a service: loaded when it starts, named by nobody else."""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fovea import __version__
from fovea.basics import BadChoice, nearest, shown, uncollected
from fovea.data import PHOTOGRAPHS, SENTENCES
from fovea.heatmaps import DEFAULT, method, names
from fovea.networks import ABILITIES, OFFLINE, Network, described, device_of, load, ours, placed
from fovea.patches import medium_of
from fovea.remote.questions import Asking
from fovea.retrieval import Index
from fovea.serve.options import ServeOptions
from fovea.serve.refusing import Refused
from fovea.serve.store import EXAMPLE
from fovea.serve.verbs import VERBS, Verb

FIRST = {"zoom": "tnet-imagenet", "localize": "efficientnet_lite0"}  # where several can


def usual() -> list[str]:
    """All that come with fovea, or with a package that is installed."""
    installed = [name for name, (package, _) in OFFLINE.items() if find_spec(package) is not None]
    return [*installed, *ours()]


def loaded(options: ServeOptions, index: Index | None = None, progress: Any = None) -> "Networks":
    """Those named, or all that can be asked for something."""
    device, found = device_of(options.device), dict[str, Network]()
    wanted = list(dict.fromkeys(options.nets)) or usual()
    for number, name in enumerate(wanted, 1):
        called = Path(name).stem if Path(name).exists() else name  # where a file lies is nobody's business
        if called in found:
            raise BadChoice(f"two networks are called {called}, and requests name them: rename one of the files")
        with uncollected():
            found[called] = placed(load(name), device).fitted()
            found[called].name = called  # two files may say that they hold the same
        if progress is not None:
            progress(number, len(wanted))
    able = {name: network for name, network in found.items() if any(verb.can(network) for verb in VERBS.values())}
    if not able and index is None:
        raise BadChoice(f"{', '.join(found)} takes neither pictures nor texts that a service could be sent")
    return Networks(able, index)


@dataclass(frozen=True)
class Networks:
    """By name, the usual one first."""

    found: dict[str, Network]
    index: Index | None = None

    def able(self, verb: Verb) -> tuple[str, ...]:
        """The names of those that can do it, the usual one first."""
        names = [name for name, network in self.found.items() if verb.can(network)]
        first = FIRST.get(verb.name)
        return tuple(sorted(names, key=lambda name: name != first))

    def get(self, name: str) -> Network:
        if name not in self.found:
            words = f"no network {shown(name)} here{nearest(name, self.found)}; there are: {', '.join(self.found)}"
            raise Refused(404, words)
        return self.found[name]

    def of(self, verb: Verb, asked: Asking) -> Network:
        """The one that is asked."""
        if verb.name == "search":
            if self.index is None:
                raise Refused(
                    404, "this service has no index to search: start it with --index FILE ('fovea index' makes one)"
                )
            return self.index.known.network
        able = self.able(verb)
        if asked.net is not None and asked.net not in self.found:
            words = f"no network {shown(asked.net)} here{nearest(asked.net, self.found)}"
            raise Refused(422, f"{words}; for {verb.name} there are: {', '.join(able) or 'none'}")
        text = getattr(asked, "text", None) is not None
        fit = [name for name in able if (medium_of(self.found[name]) == "texts") == text]
        if asked.net is None and fit:
            return self.found[fit[0]]
        if asked.net in fit:
            return self.found[asked.net]
        what = "texts" if text else "pictures"
        who = f"{asked.net} cannot {verb.name} {what}" if asked.net else f"no network here can {verb.name} {what}"
        raise Refused(422 if asked.net else 404, f"{who}; there are: {', '.join(fit) or 'none'}")

    @cached_property
    def facts(self) -> list[dict[str, Any]]:
        return [_facts(name, network) for name, network in self.found.items()]

    def about(self, options: ServeOptions, index: Index | None) -> dict[str, Any]:
        """What the page needs to know."""
        able = {name: self.able(verb) for name, verb in VERBS.items()}
        texts = [name for name in able["localize"] if self.found[name].can("texts")]
        able |= {"localize": tuple(name for name in able["localize"] if name not in texts), "text": tuple(texts)}
        entries, limits = method.entries(), options.limits
        return {
            "version": __version__,
            "models": self.facts,
            "methods": [
                {"name": name, "about": entries[name].about, "costly": bool(entries[name].traits.get("costly"))}
                for name in names()
            ],
            "usual": {"method": DEFAULT, "net": {name: names[0] for name, names in able.items() if names}},
            "examples": [{"id": f"{EXAMPLE}{name}", "name": name} for name in PHOTOGRAPHS],
            "texts": list(SENTENCES) if texts else [],
            "index": None
            if index is None
            else {"name": index.file.name, "pictures": len(index), "net": index.known.name},
            "limits": {"bytes": limits.bytes, "pixels": limits.pixels, "seconds": limits.seconds},
        }


def _facts(name: str, network: Network) -> dict[str, Any]:
    about, score = [*described(name), "", ""][:2]
    size = getattr(network.transform, "size", None)
    module: Any = network.module
    return {
        "name": name,
        "about": about,
        "score": score,
        "classes": None if network.labels is None else len(network.labels),
        "takes": medium_of(network),
        "can": [ability for ability in ABILITIES if network.can(ability)],
        "verbs": [verb.name for verb in VERBS.values() if verb.can(network)],
        "input": None if size is None else [size[1], size[0]],
        "glimpses": [module.least, module.most] if network.can("glimpses") else None,
    }
