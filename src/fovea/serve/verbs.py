"""What the service does: each of the questions, who can answer it, and how a batch is done."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadPicture, BadText, tell
from fovea.evidence import LookOptions, look_steps
from fovea.evidence import settings_of as look_settings
from fovea.glimpses import Route, zoom_steps
from fovea.glimpses import asked as route_settings
from fovea.heatmaps import ALL, DEFAULT, Explained, ExplainStep, HeatMap, Sanity, chosen, explain_batches, method, names
from fovea.heatmaps.sanity import sanity
from fovea.networks import Network, input_of, predict_steps
from fovea.patches import (
    LocalizedPicture,
    LocalizedText,
    LocalizeOptions,
    localize_steps,
    medium_of,
    refuse_unused,
    text_steps,
)
from fovea.pictures import Picture
from fovea.remote.questions import (
    Asking,
    Checking,
    Explaining,
    Localizing,
    Looking,
    Predicting,
    Searching,
    Zooming,
)
from fovea.results import Panel, Shows, Step, View
from fovea.retrieval import Index
from fovea.serve.options import Limits
from fovea.serve.refusing import Refused


@dataclass(frozen=True)
class Asked:
    """What a batch is asked: of which network, in which words."""

    network: Network
    words: Any  # the fields of the verb
    limits: Limits
    index: Index | None = None


@dataclass(frozen=True)
class Answered:
    """One result; `refused` are methods that do not apply, and why."""

    result: Any
    refused: Mapping[str, str]


@dataclass(frozen=True)
class Verb:
    fields: type[Asking]  # which name the verb, too
    run: Callable[[Asked, Sequence[Any]], Iterable[Step[Any]]]
    settings: Callable[[Asked], Mapping[str, Any]]
    can: Callable[[Network], bool]
    values: Callable[[Any], NDArray[Any]] | None = None  # K,h,w: one map per method and class
    drawn: tuple[str, ...] = ("maps", "view", "png", "html")
    slow: Callable[[Any], bool] = lambda words: False

    @property
    def name(self) -> str:
        return self.fields.verb

    @property
    def about(self) -> str:
        return self.fields.__doc__ or ""

    @property
    def outputs(self) -> tuple[str, ...]:
        array, exact = ("npy",) if self.values else (), ("exact",) if self.fields.gives else ()
        return "json", *self.drawn, *array, *exact

    def answers(self, asked: Asked, items: Sequence[Any]) -> Sequence[Answered]:
        """One result per item, or why there is none."""
        found, skipped, refused = list[Any](), list[tuple[str, str]](), dict[str, str]()
        for step in self.run(asked, items):
            found += step.results
            skipped += step.skipped
            refused |= step.refused if isinstance(step, ExplainStep) else {}
        if refused and len(items) > 1:  # what applies may be a picture's affair: nobody else's
            return [answer for item in items for answer in self.answers(asked, [item])]
        if not skipped:
            return [Answered(result, refused) for result in found]
        kind = BadText if isinstance(items[0], str) else BadPicture
        raise kind(skipped[0][1])  # of several, each is then asked for by itself


def _fitted(asked: Asked) -> Network:
    return asked.network.fitted(getattr(asked.words, "fit", None))


def _demand_method(given: str) -> None:
    """A name that is registered here: a request names no module to import, and sets no options of a method."""
    if given != ALL and given not in names():
        method.entry(given)  # says which names are near
        raise Refused(422, f"no method {given!r}: name one of {', '.join(names())}")


def _explain(asked: Asked, pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
    words, target = asked.words, asked.words.target
    network = _fitted(asked)
    wanted = None if not target else target[0] if len(target) == 1 else target
    if "pair" in target:
        raise Refused(422, "target 'pair' takes two pictures, and a request has one")
    return explain_batches(network, pictures, _methods(words), wanted, words.layer, None, asked.limits.pixels)


def _methods(words: Any) -> list[Any]:
    for name in words.method:
        _demand_method(name)
    return [replace(each, optional=each.optional or words.applicable) for each in chosen(words.method or [DEFAULT])]


def _explain_settings(asked: Asked) -> Mapping[str, Any]:
    network, words = _fitted(asked), asked.words
    called = words.method or [DEFAULT]
    return network.settings(layer=words.layer, methods=called, target=words.target or None, input=input_of(network))


def _costly(given: Iterable[str]) -> bool:
    entries = method.entries()
    return any(name == ALL or (name in entries and entries[name].traits.get("costly")) for name in given)


def _localize(asked: Asked, items: Sequence[Any]) -> Iterable[Step[Any]]:
    words, network = asked.words, _fitted(asked)
    options = _patches(words)
    refuse_unused([medium_of(network)], asdict(options))
    if medium_of(network) == "texts":
        return text_steps(network, items, words.target, words.branch)
    if words.method is not None:
        _demand_method(words.method)
    return localize_steps(network, items, options, asked.limits.batch, asked.limits.pixels)


def _patches(words: Any) -> LocalizeOptions:
    return LocalizeOptions(**{each.name: getattr(words, each.name) for each in fields(LocalizeOptions)})


def _localize_settings(asked: Asked) -> Mapping[str, Any]:
    network, options = _fitted(asked), asdict(_patches(asked.words))
    if medium_of(network) == "texts":
        return {"net": network.name, "branch": options["branch"], "target": options["target"]}
    return network.settings(**options, input=input_of(network))


def _zoom(asked: Asked, pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
    return zoom_steps(asked.network, pictures, _route(asked.words), max_pixels=asked.limits.pixels)


def _route(words: Any) -> Route:
    return Route(words.glimpses, words.until, words.order, words.levels, words.budget_ms, words.budget_macs)


def _look_options(asked: Asked) -> LookOptions:
    words = asked.words
    if words.method is not None:
        _demand_method(words.method)
    given = {name: getattr(words, name) for name in ("method", "glimpses", "forwards", "trust")}
    return LookOptions(**{name: value for name, value in given.items() if value is not None})


def _look(asked: Asked, pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
    return look_steps(_fitted(asked), pictures, _look_options(asked), asked.limits.batch, asked.limits.pixels)


def _predict(asked: Asked, pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
    given = asked.words.top, asked.limits.batch, asked.limits.pixels
    return (Step(*step) for step in predict_steps(_fitted(asked), pictures, *given))


def _search(asked: Asked, pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
    count = asked.words.count
    assert asked.index is not None  # nobody else can search
    return asked.index.steps(pictures, None if count is None else min(count, len(asked.index)), asked.limits.pixels)


@dataclass(frozen=True, eq=False)
class SanityResult(Shows):
    """The sanity check of one picture's map."""

    check: Sanity

    @property
    def name(self) -> str:
        return self.check.true[0].name

    @property
    def label(self) -> str:
        return self.check.true[0].label

    @property
    def probability(self) -> float | None:
        return self.check.true[0].probability

    @property
    def boxes(self) -> list[Any]:
        return []

    def draw(self) -> Image.Image:
        return self.check.figure()

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probability": self.probability, "passed": self.check.passed,
                "copies": [{key: row[key] for key in SANITY} for row in self.check.rows]}  # fmt: skip

    def view(self) -> View:
        return View((Panel(self.draw),), words=str(self.check))


SANITY = ("randomised", "seed", "rank_correlation", "ssim")


def _sanity(asked: Asked, pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
    name = asked.words.method or DEFAULT
    _demand_method(name)
    network = _fitted(asked)
    for place, picture in enumerate(pictures, 1):
        checked = sanity(network, [picture], name, lambda done, total: tell(f"copy {done} of {total}"))
        yield Step([SanityResult(checked)], [], place, len(pictures))


def _plain(network: Network) -> bool:
    """Takes pictures and has one output to cut before."""
    return medium_of(network) == "pictures" and not any(network.can(what) for what in ("frames", "streams"))


def _classes(network: Network) -> bool:
    return medium_of(network) == "pictures" and not (network.can("frames") or network.can("embedding"))


def _whole(network: Network) -> bool:
    return _plain(network) and not network.can("glimpses")


def _settings(asked: Asked) -> Mapping[str, Any]:
    return asked.network.settings(input=input_of(_fitted(asked)))


def _maps(heatmap: HeatMap) -> NDArray[Any]:
    return heatmap.values.detach().float().cpu().numpy()


def _by_method(result: Explained) -> NDArray[Any]:
    maps = [_maps(part) for part in result.parts if isinstance(part, HeatMap)]
    if len(grids := {each.shape[1:] for each in maps}) > 1:
        sizes = ", ".join(f"{height} x {width}" for height, width in sorted(grids))
        raise Refused(422, f"maps of {sizes} cells are no one array: ask for methods one by one, or for json")
    return np.concatenate(maps)


def _evidence(result: LocalizedPicture | LocalizedText) -> NDArray[Any]:
    if isinstance(result, LocalizedText):
        raise Refused(422, "a text has no map; ask for json")
    return np.asarray(result.heatmap, np.float32)[None]


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            Looking, _look, lambda asked: look_settings(_fitted(asked), _look_options(asked)), _classes,
            lambda result: _maps(result.heatmap), slow=lambda words: True,
        ),
        Verb(Explaining, _explain, _explain_settings, _whole, _by_method, slow=lambda words: _costly(words.method)),
        Verb(
            Localizing, _localize, _localize_settings,
            lambda network: network.can("spans") or (_whole(network) and _classes(network)),
            _evidence, slow=lambda words: _patches(words).by_crops or _costly([words.method or ""]),
        ),
        Verb(
            Zooming, _zoom, lambda asked: asked.network.settings(**route_settings(_route(asked.words))),
            lambda network: network.can("glimpses"),
        ),
        Verb(Predicting, _predict, _settings, _classes, drawn=()),
        Verb(
            Searching, _search, lambda asked: asked.index.settings if asked.index is not None else {},
            lambda network: False, drawn=("view", "png", "html"),
        ),
        Verb(
            Checking, _sanity, lambda asked: {**_settings(asked), "method": asked.words.method or DEFAULT},
            lambda network: _whole(network) and _classes(network), drawn=("view", "png"), slow=lambda words: True,
        ),
    )
}  # fmt: skip
