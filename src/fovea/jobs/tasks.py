"""The verbs as work on any number of pictures: how a network is asked, and what is kept of the answers.

    @task("predict", about="what pictures are taken for")
    def predict(network: Network, taking: Taking, top: int = 5) -> Task: ...

Keywords are the verb's own options, by the names that they have in Python and on the command line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import starmap
from typing import Any

import numpy as np

from fovea.basics import BadChoice, Entry, Registry
from fovea.glimpses import Route, demand_route, zoom_steps
from fovea.glimpses import asked as route_settings
from fovea.heatmaps import ALL, DEFAULT, Closer, Explained, HeatMap, chosen, explain_batches, names
from fovea.jobs.parts import Maps
from fovea.networks import Network, input_of, predict_steps
from fovea.patches import LocalizeOptions, localize_steps, medium_of, refuse_unused
from fovea.pictures import MAX_PIXELS, Picture
from fovea.results import Step
from fovea.streams import look_batches

Steps = Callable[[Sequence[Picture]], Iterable[Step[Any]]]


@dataclass(frozen=True)
class Taking:
    """How pictures are taken, whatever the verb; `called` is the network as whoever asks named it."""

    batch: int | None = None
    max_pixels: int = MAX_PIXELS
    called: str = ""

    @property
    def usual_batch(self) -> int:
        return 16 if self.batch is None else self.batch


@dataclass(frozen=True)
class Task:
    """What a verb does with pictures, the settings that results tell, and the maps of a result."""

    what: str
    settings: Mapping[str, Any]
    steps: Steps
    maps: Callable[[Any], Maps] = lambda result: {}


def _checked(entry: Entry, make: Any) -> Callable[..., Task]:
    if not callable(make):
        raise BadChoice(f"task {entry.name!r} is a function of a network and how it is asked; got {make!r}")
    return make


task = Registry("task", ("fovea.jobs",), _checked)


@task("explain", about="where a network looks")
def explain(
    network: Network,
    taking: Taking,
    method: Any = DEFAULT,
    target: Any = None,
    layer: Any = None,
    all: bool = False,
    resolution: float | None = None,
) -> Task:
    if network.can("streams"):
        return _look_longer(network, taking, method, target, layer)
    closer, methods = Closer(all, resolution), chosen(list(method) if isinstance(method, (list, tuple)) else method)
    if not methods:
        raise BadChoice(f"no method was named (there are: {', '.join(names())})")
    called = list(dict.fromkeys(ALL if found.optional else found.name for found in methods))
    targets = target if target is None or isinstance(target, (list, tuple)) else (target,)
    settings = network.settings(layer=layer, methods=called, target=targets)
    settings |= {"net": taking.called or network.name, "input": input_of(network), **closer.asked}
    wanted = None if not targets else targets[0] if len(targets) == 1 else list(targets)

    def steps(pictures: Sequence[Picture]) -> Iterable[Step[Explained]]:
        return explain_batches(network, pictures, methods, wanted, layer, taking.batch, taking.max_pixels, closer)

    return Task("explain", settings, steps, _by_method)


def _by_method(result: Explained) -> Maps:
    """K,h,w each: one per target."""
    maps = [part for part in result.parts if isinstance(part, HeatMap)]
    return {part.method: part.values.detach().float().cpu().numpy() for part in maps}


def _look_longer(network: Network, taking: Taking, method: Any, target: Any, layer: Any) -> Task:
    """The same of a two-stream network: one strip per picture."""
    if layer is not None:
        raise BadChoice("--layer: a two-stream network looks at its own two maps; leave it out")
    one = [given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given for given in (method, target)]
    how, wanted = "gradcam" if one[0] == DEFAULT else one[0], one[1] or None
    if isinstance(how, (list, tuple)) or isinstance(wanted, (list, tuple)):
        raise BadChoice("a strip shows one method and one class: name at most one --method and one --target")

    def steps(pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
        return look_batches(network, pictures, how, wanted, None, taking.usual_batch, taking.max_pixels)

    return Task("look_longer", network.settings(method=how, target=wanted), steps)


@task("localize", about="which patches speak for the answer")
def localize(
    network: Network, taking: Taking, all: bool = False, resolution: float | None = None, **options: Any
) -> Task:
    if medium_of(network) != "pictures":
        raise BadChoice(f"{network.name} takes {medium_of(network)}, and bulk work is of pictures")
    wanted, closer = LocalizeOptions(**options), Closer(all, resolution)
    refuse_unused(["pictures"], asdict(wanted))
    settings = network.settings(**asdict(wanted), **closer.asked, input=input_of(network))

    def steps(pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
        return localize_steps(network, pictures, wanted, taking.usual_batch, taking.max_pixels, closer)

    return Task("localize", settings, steps, lambda result: {"evidence": np.asarray(result.heatmap, np.float32)})


@task("zoom", about="what is enough to read")
def zoom(network: Network, taking: Taking, **options: Any) -> Task:
    route = Route(**options)
    demand_route(route)

    def steps(pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
        return zoom_steps(network, pictures, route, max_pixels=taking.max_pixels)

    return Task("zoom", network.settings(**route_settings(route)), steps)


@task("predict", about="what pictures are taken for")
def predict(network: Network, taking: Taking, top: int = 5) -> Task:
    def steps(pictures: Sequence[Picture]) -> Iterable[Step[Any]]:
        return starmap(Step, predict_steps(network, list(pictures), top, taking.usual_batch, taking.max_pixels))

    return Task("predict", network.settings(input=input_of(network)), steps)
