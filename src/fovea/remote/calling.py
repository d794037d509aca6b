"""fovea.client: the verbs, done by a service."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Self, TypedDict, Unpack

from fovea.basics import BadChoice, BadText, demand_kinds, shown, within
from fovea.evidence import Evidence
from fovea.glimpses import ZoomAnswer
from fovea.heatmaps import ALL, ByMethod, HeatMaps, concat
from fovea.networks import Prediction, Predictions
from fovea.patches.localized import collected
from fovea.pictures import Given, gather, tell_skipped
from fovea.remote.asking import Question
from fovea.remote.neighbors import SearchAnswer
from fovea.remote.service import Service
from fovea.results import Results, pack, unpack

TIMEOUT, AT_ONCE = 120.0, 8
Pictures = Given | Iterable[Given]
Words = str | int | list[str] | list[int] | list[str | int] | None


def client(url: str, token: str | None = None, timeout: float = TIMEOUT, at_once: int = AT_ONCE) -> "Client":
    """The service that 'fovea serve' runs at an address: `fovea.client("http://127.0.0.1:8000").explain("cat.jpg")`.

    `token`: the service's, where it has one; $FOVEA_TOKEN if not given. A question takes `timeout` seconds at most,
    waiting for a busy service included; `at_once` are on their way at a time. Pictures are sent, and results have the
    classes and values that they have in process; they are drawn here, of the pictures that are here."""
    demand_kinds(client, locals())
    within("at_once", at_once, 1, 64)
    within("timeout", timeout, 0.1, 86_400)
    return Client(Service(url, token or os.environ.get("FOVEA_TOKEN") or None, timeout, at_once))


class LocalizeWords(TypedDict, total=False):
    """What may be asked of localize."""

    count: int | None
    overlap: float | None
    share: float | None
    branch: int | None
    target: str | int | None
    method: str | None
    side: int | None
    evidence: str | None
    fit: str | None


class ZoomWords(TypedDict, total=False):
    """What may be asked of zoom."""

    glimpses: int | None
    until: float | None
    order: str | None
    levels: int | None
    budget_ms: float | None
    budget_macs: float | None


class Client:
    """A service's verbs. `net` is one of its networks (`models()` tells them), the usual one of the verb if not given;
    pictures are paths, folders, globs, PIL pictures, arrays. What else may be asked is as for the verb in process, and
    as there what cannot be read is left out, with a warning and an entry in `.skipped`."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.service.close()

    def __repr__(self) -> str:
        return f"<Client of {self.service.url}>"

    def models(self) -> dict[str, Any]:
        """What there is: networks and what each can do, methods, limits."""
        return unpack(dict[str, Any], self.service.read(self.service.ask("v1/models")))

    def ask(self, verb: str, given: Any, net: str | None = None, /, **fields: Any) -> Question:
        """Step after step, so that a folder of any size needs the memory of a few pictures. `fields` are the service's;
        those that are None are its to choose. A str is a text where the network takes texts."""
        if net is not None and not isinstance(net, str):
            raise BadChoice(f"net is the name of one of the service's networks; got {shown(net)}")
        asked = pack({name: value for name, value in {"net": net, **fields}.items() if value is not None})
        texts = verb == "localize" and net is not None and self._takes(net) == "texts"
        return Question(self.service, verb, asked, _texts(given) if texts else gather(given))

    def _takes(self, net: str) -> str:
        found = [model.get("takes") for model in self.models().get("models", ()) if model.get("name") == net]
        return found[0] if found else "pictures"

    def explain(
        self,
        pictures: Pictures,
        net: str | None = None,
        *,
        method: str | list[str] | None = None,
        target: Words = None,
        layer: str | None = None,
        fit: str | None = None,
    ) -> HeatMaps | ByMethod:
        """As `fovea.explain`: one HeatMap per picture; by method name when several methods are given."""
        asked = self.ask("explain", pictures, net, method=_listed(method), target=_listed(target), layer=layer, fit=fit)
        found, skipped = list[Mapping[str, Any]](), list[tuple[str, str]]()
        for step in asked:
            found += [{part.method: part for part in result.parts} for result in step.results]
            skipped += step.skipped
        tell_skipped(bool(found), skipped, stacklevel=3)
        settings = {key: value for key, value in asked.settings.items() if key not in ("methods", "target")}
        by_method = ByMethod(asked.refused)
        for name in (name for name in found[0] if all(name in maps for maps in found)):
            whole = concat([maps[name].alone() for maps in found])
            how = settings | {"method": name, "layer": whole.layer}
            by_method[name] = replace(whole, skipped=tuple(skipped), settings=how)
        return by_method if method == ALL or isinstance(method, (list, tuple)) else next(iter(by_method.values()))

    def look(
        self,
        pictures: Pictures,
        net: str | None = None,
        *,
        method: str | None = None,
        glimpses: int | None = None,
        forwards: int | None = None,
        trust: bool = True,
        fit: str | None = None,
    ) -> Results[Evidence]:
        """As `fovea.look`."""
        words = {"method": method, "glimpses": glimpses, "forwards": forwards, "trust": trust, "fit": fit}
        asked = self.ask("look", pictures, net, **words)
        return Results.of(asked, "look", asked.settings)

    def localize(self, given: Any, net: str | None = None, **options: Unpack[LocalizeWords]) -> Results[Any]:
        """As `fovea.localize`: pictures, or texts for a network that takes them."""
        target = {"target": str(options["target"])} if options.get("target") is not None else {}
        asked = self.ask("localize", given, net, **options | target)
        if asked.items and isinstance(asked.items[0], str):
            return _of_texts(asked)
        return Results.of(asked, "localize", asked.settings)

    def zoom(self, pictures: Pictures, net: str | None = None, **options: Unpack[ZoomWords]) -> Results[ZoomAnswer]:
        """As `fovea.zoom`."""
        asked = self.ask("zoom", pictures, net, **options)
        return Results.of(asked, "zoom", asked.settings)

    def predict(self, pictures: Pictures, net: str | None = None, k: int = 5, *, fit: str | None = None) -> Predictions:
        """As `Network.predict`: the `k` best labels of every picture, with their probabilities."""
        asked = self.ask("predict", pictures, net, top=k, fit=fit)
        found, skipped = list[Prediction](), list[tuple[str, str]]()
        for step in asked:
            found += step.results
            skipped += step.skipped
        tell_skipped(bool(found), skipped, stacklevel=3)
        predicted = Predictions(found)
        predicted.skipped, predicted.note = tuple(skipped), asked.settings.get("note", "")
        return predicted

    def search(self, pictures: Pictures, count: int | None = None) -> Results[SearchAnswer]:
        """The nearest pictures of the service's index, drawn by the service."""
        asked = self.ask("search", pictures, None, count=count)
        return Results.of(asked, "search", asked.settings)


def _of_texts(asked: Question) -> Results[Any]:
    return collected(asked, "text", BadText, asked.settings)


def _texts(given: str | Iterable[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(text, str) for text in texts):
        raise BadChoice("this network takes texts: give a str, or several")
    return texts


def _listed(given: Words) -> list[str] | None:
    """One or several, as a service takes them: in words."""
    if given is None or isinstance(given, (str, Integral)):
        return None if given is None else [str(given)]
    items = list(given) if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(item, (str, Integral)) for item in items):
        raise BadChoice(f"a service takes methods and targets by name, or by index; got {shown(given)}")
    return [str(item) for item in items]
