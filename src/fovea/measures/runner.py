"""What is the same for every measure: networks and data are opened, what was measured is noted, and checked."""

import html
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, cast

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from fovea import networks, results
from fovea.basics import LOCAL, BadChoice, BadPicture, Engine, Progress, demand_bounds, nearest, quiet, whole
from fovea.data import DataSet, Sample, open_clips, open_data, open_loosely, open_sounds, parsed, pictures_of
from fovea.measures.figures import Figures, Row, text_of
from fovea.measures.registry import BENCH, Declared
from fovea.measures.registry import measure as registry
from fovea.networks import Group, Matching, Network, NetworkLike, as_network, device_of, input_of, ours, placed
from fovea.pictures import Placement, Shown

Fit = Literal["crop", "squash", "whole"]

STYLE = ".wide { overflow-x: auto } figure { margin: 16px 0 } figure img { max-width: 100% }"
Nets = NetworkLike | Sequence[NetworkLike]


@dataclass(frozen=True)
class Given:
    """What a measure is taken of, as the user gave it. `weights` and `untrained` go with names."""

    nets: Sequence[NetworkLike] | Mapping[str, NetworkLike | None] = ()  # in order, or by their roles
    data: Any = None  # a name, a path, or an opened set
    split: str | None = None
    limit: int | None = None
    fit: Fit | None = None
    device: str | None = None  # auto where None; a Network stays where it is
    weights: Path | None = None
    untrained: bool = False
    engine: Engine = LOCAL  # who looks at the pictures, of a measure that may be spread


class Input(NamedTuple):
    """A batch of pictures as a network takes it."""

    tensors: Tensor  # N,C,H,W
    shown: Sequence[Shown]
    places: list[Placement]

    @staticmethod
    def of(group: Group) -> "Input":
        places = [cast(Placement, shown.placement) for shown in group.shown]
        return Input(cast(Tensor, group.batch), group.shown, places)


Inputs = tuple[list[Sample], list[Input]]  # one Input per network


@dataclass
class Run:
    """One measurement: its networks and data, opened when they are first asked for, so that a measure can refuse a
    wrong option before that takes its time."""

    declared: Declared
    given: Given
    progress: Progress = quiet
    tell: Callable[[str], None] = lambda words: None  # what is being done, where that changes
    workers: int = 0  # processes that may help
    skipped: list[tuple[str, str]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # methods that do not apply to a network, and why
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def networks(self) -> dict[str, Network]:
        """By name where there are one or several, by role where they have roles."""
        if isinstance(self.given.nets, Mapping):
            return {role: self.load(net) for role, net in self.given.nets.items() if net is not None}
        found = [self.load(net) for net in self.given.nets]
        names = [one.name or "network" for one in found]
        if not names or len(set(names)) < len(names):
            raise BadChoice(f"name one network or several, each by another name; got {names}")
        return dict(zip(names, found, strict=True))

    @property
    def engine(self) -> Engine:
        return self.given.engine

    @property
    def network(self) -> Network:
        """The one network."""
        return next(iter(self.networks.values()))

    @property
    def net(self) -> NetworkLike:
        """The one network as it was given, for a measure that builds it itself."""
        assert not isinstance(self.given.nets, Mapping)
        return self.given.nets[0]

    @property
    def names(self) -> list[str]:
        """What the networks are called, of a measure that loads them itself."""
        assert not isinstance(self.given.nets, Mapping)
        return [str(net) for net in self.given.nets]

    def load(self, net: NetworkLike, classes: int | None = None, options: Mapping[str, Any] | None = None) -> Network:
        """A network as this measure takes it. A Network keeps its transform and device unless they are asked for.

        `classes` and `options` are for whoever builds a network by name."""
        given, made = self.given, isinstance(net, Network)
        where = None if made and given.device is None else device_of(self.device)  # refused before weights are read
        network, trained = net, self.declared.trained and not given.untrained
        if isinstance(net, (str, Path)):
            network = networks.loading.load(net, given.weights, trained, classes, options)
        network = as_network(network)
        network = network if where is None else placed(network, where)
        fit = given.fit or (None if made else self.declared.fit)
        network = network.fitted(fit) if fit else network
        return network if self.declared.any_size else network.of_one_size()

    def other(self, net: NetworkLike) -> Network:
        """A network beside those that are measured, as it comes."""
        return net if isinstance(net, Network) else placed(as_network(net), self.device)

    @property
    def device(self) -> str:
        asked = self.given.device or (self.declared.usual or {}).get("device", "auto")
        return str(device_of(asked))

    @cached_property
    def opened(self) -> Any:
        """The data: pictures, clips or sounds."""
        given = self.given
        if given.data is None:
            raise BadChoice(f"measure {self.declared.name!r} needs data: a name or a path, or an opened set")
        if isinstance(given.data, (list, tuple)) and "labels?" in self.declared.needs:
            return pictures_of(given.data).first(given.limit)
        if not isinstance(given.data, (str, Path)):
            if given.split is not None:
                raise BadChoice(f"split={given.split!r} is of data given by name; this set is opened already")
            return given.data if given.limit is None else given.data.first(given.limit)
        if self.declared.data != "pictures":
            return (open_clips if self.declared.data == "clips" else open_sounds)(str(given.data))
        labels = self.network.labels if {"labels", "labels?"} & {*self.declared.needs} else None
        opens = open_loosely if "labels?" in self.declared.needs else open_data
        return opens(given.data, given.split, labels).first(given.limit)

    @cached_property
    def data(self) -> DataSet:
        """Pictures; those with boxes where the measure needs them."""
        found: DataSet = self.opened
        if "boxes" not in self.declared.needs:
            return found
        with_boxes = found.with_boxes()
        if not len(with_boxes):
            raise BadChoice(f"{found.name} has no boxes to measure by (a folder takes them from boxes.csv: file,boxes)")
        return with_boxes

    def known_classes(self, tensors: Tensor) -> Matching | None:
        """Which outputs the data's classes are. None where it has none that the network knows, which is told: then what
        the network predicts stands for them."""
        try:
            found = networks.match_by_trying(self.network, self.data, tensors) if self.data.labeled else None
        except BadChoice:  # it knows some of them, or has fewer outputs
            found = None
        if found is not None and not found.how.endswith("differ"):
            return found
        name, label = self.network.name or "the network", self.data.samples[0].label
        some = self.data.labels[label] if label < len(self.data.labels) else str(label)
        why = f"{name} does not know all classes of {self.data.name}, as {some!r}" if some else "there are no labels"
        self.warnings = list(dict.fromkeys([*self.warnings, f"{why}: by the class that the network predicts"]))
        return None

    def about(self, images: int) -> dict[str, Any]:
        """How the rows of one network begin."""
        return {"net": self.network.name or "network", "data": self.data.name, "images": images}

    def inputs(self, size: int, of: Sequence[Network] = (), parts: int = 1) -> Iterator[Inputs]:
        """The samples of the data as batches, one for every network: decoded once for all of them. Those that cannot be
        read are noted, and it is an error if none can. Progress is told, as the first of so many parts; 0: the measure
        tells it."""
        if parts:
            self.progress(0, len(self.data) * parts)  # from here on it is timed
        some = False
        for groups in networks.groups_for(of or list(self.networks.values()), self.data, size):
            self.skipped += groups[0].skipped
            if groups[0].batch is not None:
                some = True
                yield groups[0].of(self.data.samples), [Input.of(group) for group in groups]
                if parts:
                    self.progress(groups[0].done, groups[0].total * parts)
        if not some:
            self.refuse_empty()

    def examples(self, count: int) -> set[int]:
        """So many pictures to draw, by their places in the data, spread evenly."""
        return set(np.linspace(0, len(self.data) - 1, min(count, len(self.data))).round().astype(int).tolist())

    def refuse_empty(self) -> NoReturn:
        reason = self.skipped[0][1] if self.skipped else "it is empty"
        raise BadPicture(f"no picture of {self.data.name} could be read: {reason}")

    def figures(self, rows: Sequence[Row], settings: Mapping[str, Any], **more: Any) -> Figures:
        """The figures of this run: its data, how pictures came in, the settings, and what was skipped."""
        inputs = ", ".join(dict.fromkeys(map(input_of, self.networks.values())))
        more["warnings"] = [*self.warnings, *more.get("warnings", ()), *refusals(self.refused)]
        about = {"data": self.data.name, "input": inputs, **settings, "skipped": len(self.skipped)}
        return Figures(self.declared.name, about, rows, self.skipped, **more)


def refusals(refused: Mapping[str, str]) -> list[str]:
    """One line for all methods that do not apply for the same reason."""
    names = {words: [name for name in refused if refused[name] == words] for words in refused.values()}
    return [f"no maps by {', '.join(methods)}: {words}" for words, methods in names.items()]


# A public door: what is measured, of what, and how pictures come in; the measure's own options follow.
def measure(
    name: str,
    net: Nets | None = None,
    data: Any = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    fit: Fit | None = None,
    device: str | None = None,
    progress: Progress = quiet,
    workers: int = 0,
    engine: Engine = LOCAL,
    **options: Any,
) -> Figures:
    """The figures of a measure by its name, or `package.module:name` of your own: fovea.measure("wsol", net, "cub100").

    `net`: a name, a module or a Network, or several where the measure takes several; networks in other roles, and the
    measure's own options, by their names, as `method=["cam"]`. `fit` and `device` are of networks given by name unless
    they are given. `engine`, as fovea.jobs.Cluster(), looks at the pictures of a measure that may be spread. A script
    that asks for `workers` processes starts from `if __name__ == "__main__":`."""
    declared = registry.get(name).declared
    nets: Any = () if net is None else net
    if declared.roles:
        nets = {role: net if role == "net" else options.pop(role, None) for role in declared.roles}
    elif isinstance(net, (str, Path, Network, torch.nn.Module)):
        nets = (net,)
    return take(name, Given(nets, data, split, limit, fit, device, engine=engine), options, progress, workers)


def take(
    name: str,
    given: Given,
    options: Mapping[str, Any],
    progress: Progress = quiet,
    workers: int = 0,
    tell: Callable[[str], None] = lambda words: None,
) -> Figures:
    """Take a measure, and note which part of the data it was of."""
    measure = registry.get(name)
    declared = measure.declared
    for option in options:
        if option not in declared.options:
            known = list(declared.options)
            near = f"{nearest(option, known)} (its options: {', '.join(known)})"
            raise BadChoice(f"measure {declared.name!r} has no option {option!r}{near}")
    demand_bounds({**options, "limit": given.limit, "workers": workers}, before=f"measure {declared.name!r}: ")
    named = [role for role, net in given.nets.items() if net is not None] if isinstance(given.nets, Mapping) else []
    missing = [role for role in declared.nets if role in declared.roles and role not in named]
    if missing:
        raise BadChoice(f"measure {declared.name!r} needs a network as its {missing[0]}: {missing[0]}=NET")
    if declared.nets == "one" and len(given.nets) > 1:
        raise BadChoice(f"measure {declared.name!r} takes one network, and {len(given.nets)} are given")
    if not given.engine.here and not declared.spread:
        raise BadChoice(f"measure {declared.name!r} is not spread over workers: leave the engine out")
    if given.weights is not None and len(given.nets) > 1:
        raise BadChoice(f"--weights is for one network, and {len(given.nets)} are named: name the files by --net")
    usual = declared.usual or {}
    data = usual.get("data") if given.data is None else given.data
    limit = usual.get("limit") if given.limit is None else given.limit
    given = replace(given, nets=given.nets or usual.get("net", ()), data=data, limit=limit)
    run = Run(declared, given, progress, tell, workers)
    found = _checked(declared, measure(run, {**declared.options, **options}))
    if declared.data == "none" or declared.name.startswith(BENCH):
        return found
    warnings = list(found.warnings)
    if str(found.settings.get("labels", "")).endswith("differ"):
        name = run.data.labels[min(sample.label for sample in run.data.samples)]
        warnings.append(f"the network knows no {name!r}: is it for these classes?")
    part = part_of(given)
    loaded: dict[str, Network] = vars(run).get("networks", {})  # a measure may have none, or build its own
    settings = {**chosen_on(loaded.values()), **found.settings, "part": part}
    if declared.chosen:
        settings["settings_chosen_on"] = f"{declared.chosen}: {run.data.name}{f':{part}' if part else ''}"
    return replace(found, settings=settings, warnings=warnings)


def chosen_on(networks: Iterable[Network]) -> dict[str, str]:
    """What the settings of networks were chosen on, of those whose cards say it, for a result's settings."""
    known = {network.name: network.chosen_on for network in networks if network.chosen_on}
    return {"chosen_on": "; ".join(f"{name}: {data}" for name, data in known.items())} if known else {}


def _checked(declared: Declared, found: Any) -> Figures:
    """What an author gave, or what is wrong with it in words for the author."""
    words = f"measure {declared.name!r} gives Figures (run.figures(rows, settings))"
    if not isinstance(found, Figures):
        raise BadChoice(f"{words}; got {type(found).__name__}")
    if not found.rows:
        raise BadChoice(f"{words} with at least one row; got none")
    for row in found.rows:
        if not isinstance(row, Mapping) or any(isinstance(value, (Mapping, list, Tensor)) for value in row.values()):
            raise BadChoice(f"{words} whose rows are flat: keys with numbers and words; got {row!r}")
    return found


def part_of(given: Given) -> str | None:
    """Which part of the data was measured, as split=test,limit=200; matched by name, ignoring folders."""
    typed = {name: str(value) for name, value in (("split", given.split), ("limit", given.limit)) if value is not None}
    options = typed | (parsed(str(given.data))[1] if isinstance(given.data, (str, Path)) else {})
    if given.limit is not None:
        options["limit"] = str(min(given.limit, int(options["limit"])))  # of two, the smaller is what was measured
    return ",".join(f"{name}={Path(value).name}" for name, value in options.items()) or None


def recipe_of(found: Figures, given: Given) -> str | None:
    """The recipe of what was measured, where every network of --net is one of ours as it comes with fovea."""
    nets = [given.nets.get("net") or given.nets.get("full")] if isinstance(given.nets, Mapping) else given.nets
    if given.weights is not None or given.untrained or not all(str(net) in ours() for net in nets):
        return None
    recipes = {ours()[row["net"]]["recipe"] for row in found.rows if row.get("net") in ours()}
    return recipes.pop() if len(recipes) == 1 else None


def draw(found: Figures, declared: Declared, path: Path) -> None:
    """The measure's picture of its figures: a matplotlib figure or a PIL picture."""
    drawn = _drawn(found, declared)
    if isinstance(drawn, Image.Image) and path.suffix.lower() == ".svg":
        figure = Figure(figsize=(drawn.width / 100, drawn.height / 100), dpi=100)
        figure.figimage(np.asarray(drawn))
        drawn = figure
    with whole(path) as part:
        drawn.save(part) if isinstance(drawn, Image.Image) else drawn.savefig(part)


def page(found: Figures, declared: Declared, title: str) -> str:
    """The tables and the picture, as one file that opens anywhere."""
    drawn, body = _drawn(found, declared), [f"<h1>{html.escape(title)}</h1>"]
    if not isinstance(drawn, Image.Image):
        drawn.savefig(buffer := BytesIO(), format="png", dpi=150)
        drawn = Image.open(buffer)
    for words, rows in found.told(title, declared.columns, declared.interval).items():
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = ["".join(f"<td>{html.escape(text_of(row.get(name)))}</td>" for name in names) for row in rows]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        heading = "" if words == title else f"<h2>{html.escape(words)}</h2>"
        body.append(
            f'{heading}<div class="wide"><table><tr>{head}</tr><tr>{"</tr><tr>".join(lines)}</tr></table></div>'
        )
    body += [f"<p>{html.escape(note)}</p>" for note in found.notes]
    return results.page(title, [*body, results.figure(drawn, "")], STYLE)


def _drawn(found: Figures, declared: Declared) -> Image.Image | Figure:
    made: Image.Image | Figure = getattr(sys.modules[registry.get(declared.name).function.__module__], declared.figure)(
        found
    )
    return made
