"""fovea.export: a network and a method as one graph, that gives logits and heatmap of a class chosen at run time."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim

import fovea
from fovea import networks
from fovea.basics import BadChoice, BadNetwork, DoesNotApply, FoveaError, demand_kinds, nearest, whole
from fovea.data import DataSet
from fovea.graphs.branches import Branches
from fovea.graphs.levels import Leveled, write_levels
from fovea.graphs.search import EVALUATIONS, searched
from fovea.graphs.tracing import Takes, Traced, Values, alone, program
from fovea.graphs.writing import PRECISIONS, Feed, Names, format_of, ran, write
from fovea.heatmaps import Additive, Aim, Finding, Look, Method, find
from fovea.heatmaps.explain import explain
from fovea.networks import Inputs, Network, NetworkLike, as_found, as_network, cut, input_shape, labeled
from fovea.pictures import LONGEST, Prepare

MOST = 1e-4  # by which an exact map may differ from fovea's own, of its greatest value; and a searched one:
SEARCHED = 0.05
EXAMPLES = ((2, (0, 1)), (1, (0, 0)), (3, (1, -1)))  # pictures and steps of their sides, of a graph that is checked
CALIBRATING = 128  # pictures that ranges are taken from
NOTE = (
    "Cells divide the input evenly: cell i of n along a side of s pixels is centered at (i + 0.5) * s / n, whatever s "
    "is; `stride` and `offset` (rows, columns) are for `size`. `target` is a class, or -1 for the best."
)
OTHERS = {  # abilities of networks that answer otherwise than by one pass
    "streams": "looks at a picture in steps",
    "frames": "takes clips",
    "texts": "reads texts",
    "sounds": "hears sounds",
    "complement": "fuses the maps of two classifiers",
    "embedding": "gives an embedding, and a graph explains a class",
}


@dataclass(frozen=True)
class Exported:
    """What was written. `about` is what the file says of itself; `difference` by how much its heatmaps were off
    fovea's own when it was tried, of the greatest value."""

    files: tuple[Path, ...]
    about: Mapping[str, Any]
    difference: float


def export(
    net: NetworkLike,
    out: str | Path,
    *,
    method: str = "l2caf",
    precision: str = "fp32",
    calibrate: Inputs | DataSet | None = None,
    layer: str | None = None,
    size: int | None = None,
    fit: str | None = None,
) -> Exported:
    """Write a graph that gives `logits` and `heatmap` for `pixels` and a `target`, and needs no gradients.

    `out`: NAME.onnx; NAME.pt2 for torch.export's own format; NAME.aoti.pt2 compiled for this kind of machine. `method`:
    of those that take one pass: l2caf, cam, gradcam, … `precision`: fp32, fp16 or int8, of ONNX; int8 takes ranges from
    pictures to `calibrate` by. `size`: the side of the input, where it is not the network's own. `fit` and `layer` are
    as for `explain`. Of a TNet, one file per level: NAME-level1.onnx, …

    The network stays as it is. The graph is tried on noise of several sizes before it is there: its heatmaps are
    fovea's own, or it is refused."""
    demand_kinds(export, locals(), but="calibrate")
    out = Path(out)
    kind = format_of(out)
    if precision not in PRECISIONS:
        near = nearest(precision, PRECISIONS)
        raise BadChoice(f"no precision {precision!r}{near} (there are: {', '.join(PRECISIONS)})")
    if precision != "fp32" and kind != ".onnx":
        raise BadChoice(f"{precision} is for .onnx; {kind} keeps what the network has: leave the precision out")
    found, network = find(method), _copied(as_network(net).fitted(fit))
    if isinstance(network.module, Leveled):
        return Exported(*write_levels(network, out, precision), 0.0)
    for ability, words in OTHERS.items():
        if network.can(ability):
            raise BadChoice(f"{_name(network)} {words}: export takes classifiers of pictures")
    if network.can("glimpses"):
        raise BadChoice(f"{_name(network)} reads glimpses as no graph can: only a TNet can be exported")
    takes = takes_of(network, size)
    asked = _Asked(found, layer, out, precision, [] if calibrate is None else _feeds(takes, network, calibrate))
    if takes.step:
        try:
            return _written(network, takes, asked)
        except (BadChoice, DoesNotApply):
            raise
        except Exception:  # whatever cannot be traced, or run, for inputs of any size: see whether it can for one
            takes = replace(takes, step=0)
    try:
        return _written(network, takes, asked)
    except FoveaError:
        raise
    except Exception as error:  # of torch's tracer and exporter, or of a runtime
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        why = "its forward may decide by tensors' values, or do what no operation of a graph does"
        raise BadNetwork(f"{_name(network)} with {method} cannot be a graph ({lines[-1].strip()}): {why}") from error


def plain(net: NetworkLike, out: str | Path, *, size: int | None = None, fit: str | None = None) -> Path:
    """The network alone, pixels to logits, by the same exporter: what a graph with a map is compared with."""
    network = _copied(as_network(net).fitted(fit))
    takes = takes_of(network, size)
    with as_found(network):
        made = program(alone(network, takes), (takes.example(takes.count, 0, (0, 1)),), (takes.dynamic,))
    with whole(Path(out)) as part:
        write(made, part, format_of(Path(out)), Names((takes.name,), ("logits",), {"net": network.name}))
    return Path(out)


class _Differs(FoveaError):
    """A graph that does not give what fovea gives."""


def _name(network: Network) -> str:
    return network.name or type(network.module).__name__


def _copied(network: Network) -> Network:
    """The network on the CPU, in single precision, as it answers: what is traced is not the user's."""
    layer = network.layer
    if layer is not None and not isinstance(layer, str):
        layer = next(name for name, part in network.module.named_modules() if part is layer)
    module = copy.deepcopy(network.module).to("cpu", torch.float32).eval().requires_grad_(False)
    fresh: dict[str, Any] = {"_cuts": {}, "_placements": {}, "_classes": {}, "_steps": {}, "_parts": None, "kept": {}}
    return replace(network, module=module, layer=layer, **fresh)


def takes_of(network: Network, size: int | None = None) -> Takes:
    """What a graph of this network is given."""
    transform = network.transform
    prepare = transform if isinstance(transform, Prepare) else None
    channels, height, width = input_shape(network, size)
    shape = channels, height, width
    if prepare is not None:
        prepare = replace(prepare, size=(height, width))
    step = network.step() if prepare is not None else _step(network, shape)
    return Takes(shape, prepare, step)


def _step(network: Network, shape: tuple[int, ...]) -> int:
    """Of a network whose transform is not fovea's: whether it takes other sizes, found by running it."""
    try:
        with torch.no_grad():
            usual, other = (network(torch.zeros(1, shape[0], shape[1] - by, shape[2] + by)) for by in (0, 32))
    except Exception:  # whatever its layers say of a size that they were not made for
        return 0
    return 32 if usual.shape == other.shape else 0


def _feeds(takes: Takes, network: Network, pictures: Inputs | DataSet) -> list[Feed]:
    """Pictures one by one, as a graph is given them."""
    feeds = list[Feed]()
    for group in networks.groups(network, pictures, 1):
        if group.batch is not None and len(feeds) < CALIBRATING:
            feeds.append({takes.name: takes.given(group.batch).numpy(), "target": np.array([-1])})
    if not feeds:
        raise BadChoice("none of the pictures to calibrate by can be read")
    return feeds


@dataclass(frozen=True)
class _Way:
    """How a method's map is worked out in a graph, in words, and by how much it may differ from fovea's."""

    values: Values
    solver: str
    most: float


def _way(method: Method, network: Network, batch: Tensor, layer: str | None) -> _Way:
    known = explain(network, batch, method=method, layer=layer, target="top1")
    run: Any = method.run
    if isinstance(run, Additive) and run.additive:
        if known.solver in ("exact", "closed form"):
            return _Way(lambda look, aim: run.of_tangent(run.tangent(look, aim)).values, known.solver, MOST)
        if known.solver == "vanilla":
            raise DoesNotApply(f"{method.name} would run all of {_name(network)} for every step here: export gradcam")
        return _Way(searched(run), f"search of {EVALUATIONS} evaluations", SEARCHED)
    if method.passes != 1 or method.on != "cells" or method.oblivious:
        why = "takes more than one pass, or what a graph has no operation for"
        raise DoesNotApply(
            f"{method.name} {why}: export l2caf, cam, gradcam, layercam, hirescam, xgradcam or gradcam++"
        )

    def values(look: Look, aim: Aim) -> Tensor:
        given = run(look, aim)
        return given.values if isinstance(given, Finding) else given

    return _Way(values, known.solver, MOST)


@dataclass(frozen=True)
class _Asked:
    """What is to be written where."""

    method: Method
    layer: str | None
    out: Path
    precision: str
    feeds: Sequence[Feed]


def _written(network: Network, takes: Takes, asked: _Asked) -> Exported:
    given, target = takes.example(takes.count, 0, (0, 1)), torch.tensor([0, -1, 1][: takes.count])
    with as_found(network) as parts:
        batch = takes.batch(given)
        network = labeled(network, batch, parts)
        made = cut(network, batch, asked.layer, parts)
        opened = made.open(takes.batch(takes.example(1)))
        if network.labels is None or opened.output.ndim != 2:
            shape = tuple(opened.output.shape[1:])
            raise BadChoice(f"{_name(network)} gives {shape} per picture and no classes: a graph explains a class")
        way = _way(asked.method, network, batch, asked.layer)
        branches = Branches.of(network, takes.shape[1:]) if network.can("branches") else None
        traced = Traced(network, made, opened.layout, takes, branches is not None)
        graph = traced.explaining(way.values, branches.outputs if branches else None)
        made_of = program(graph, (given, target), (takes.dynamic, {0: Dim.AUTO}))
    about = _about(network, takes, asked, way.solver, opened.layout.grid) | (branches.about if branches else {})
    outputs = ("logits", "heatmap", "explained", *(branches.names if branches else ()))
    names = Names((takes.name, "target"), outputs, about)
    with whole(asked.out) as part:
        kind = format_of(asked.out)
        write(made_of, part, kind, names, asked.precision, asked.feeds)
        difference = _difference(
            network, takes, asked, lambda *feed: ran(part, kind, dict(zip(names.inputs, feed, strict=True)))
        )
        if asked.precision == "fp32" and not difference <= way.most:
            raise _Differs(
                f"the graph of {_name(network)} gives other heatmaps than fovea, by {difference:.2g} of the greatest "
                f"value: nothing was written; export another method, such as gradcam"
            )
    return Exported((asked.out,), about, difference)


def _difference(network: Network, takes: Takes, asked: _Asked, run: Callable[..., list[Any]]) -> float:
    """The most by which heatmaps differ from fovea's own, of their greatest value, on noise of several sizes."""
    most = 0.0
    for count, steps in EXAMPLES:
        given, target = takes.example(count, 1 + count, steps), torch.tensor([-1, 1, 0][:count])
        _, heatmap, explained, *_ = run(given, target)
        batch, classes = takes.batch(given), torch.from_numpy(explained)
        own = explain(network, batch, method=asked.method, layer=asked.layer, target=classes).numpy()[:, 0]
        if heatmap.shape != own.shape:
            return float("inf")
        most = max(most, float(np.abs(heatmap - own).max() / max(np.abs(own).max(), 1e-30)))
    return most


def _about(network: Network, takes: Takes, asked: _Asked, solver: str, grid: tuple[int, ...]) -> dict[str, Any]:
    """All that whoever runs the graph needs to know."""
    channels, *size = takes.shape
    given = {"name": takes.name, "channels": channels, "size": size, "dynamic": bool(takes.step)}
    if takes.prepare is not None:
        given |= {key: value for key, value in asdict(takes.prepare).items() if key != "size"} | {"longest": LONGEST}
        given["step"] = given["step"] if takes.step else 0  # a graph of one size: what does not fill it is padded
    return {
        "version": fovea.__version__,
        "net": network.name,
        "method": asked.method.name,
        "solver": solver,
        "precision": asked.precision,
        "labels": None if network.labels is None else list(network.labels),
        "temperature": network.temperature,
        "several": network.can("several"),
        "input": given,
        "cells": {
            "grid": list(grid),
            "stride": [side / cells for side, cells in zip(size, grid, strict=True)],
            "offset": [side / cells / 2 for side, cells in zip(size, grid, strict=True)],
        },
        "note": NOTE,
    }
