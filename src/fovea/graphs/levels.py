"""The levels of a TNet as graphs: what is seen in windows of a level, and where to look closer in them. The walk from
level to level is whoever runs them's: docs/export.md has it in numpy."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.export import Dim

import fovea
from fovea.basics import BadChoice, whole
from fovea.graphs.tracing import Graph, program
from fovea.graphs.writing import Names, format_of, ran, write
from fovea.models.locations import Grid
from fovea.models.tnet import planned
from fovea.networks import Network, as_found
from fovea.pictures import Prepare

MOST = 1e-4  # by which what a graph gives may differ from what the network gives
NOTE = (
    "`windows` are normalized, (value / 255 - mean) / std, zero where they reach over the picture's edge, and brought "
    "to `side` x `side` bilinearly: with `antialias` as Pillow resizes, or, where a window's sides are multiples, by "
    "the mean of each block; without, from the nearest four pixels. `cells` are the window's place on the grid of its "
    "level, x and y. The logits of all windows are averaged, by the softmax of `score` where there is one. `steps` are "
    "the glimpses in turn: in which of the windows read each lies, and the rank of its region there by `probability`."
)


class _Placed(Protocol):
    grid: Grid


@runtime_checkable
class Leveled(Protocol):
    """A module that reads windows level by level."""

    levels: int
    glimpses: int
    antialias: bool
    location: _Placed
    extractor: nn.Module
    weigh: nn.Module | None

    def read_regions(
        self, windows: Tensor, cells: Tensor, level: int, onwards: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]: ...


def write_levels(network: Network, out: Path, precision: str) -> tuple[tuple[Path, ...], dict[str, Any]]:
    """One file per level, NAME-level1.onnx, …, and what they say of themselves."""
    module, kind = network.module, format_of(out)
    assert isinstance(module, Leveled)
    if precision == "int8":
        raise BadChoice(
            "a TNet is exported in fp32 or fp16: the range of values differs too much between its levels for int8"
        )
    files, about = list[Path](), _about(network, module, precision)
    side, channels = about["input"]["side"], about["input"]["channels"]
    examples = (
        torch.randn(5, channels, side, side),
        torch.tensor([[0, 0], [1, 2], [2, 1], [0, 1], [1, 1]]),
    )  # 5: no other axis has
    for level in range(module.levels):
        onwards = level + 1 < module.levels
        outputs = ("logits", *(("score",) if module.weigh is not None else ()), *(("probability",) if onwards else ()))

        graph = _graph(module, level, onwards, (channels, side, side))
        path = out.with_name(out.name[: -len(kind)] + f"-level{level + 1}{kind}")
        with as_found(network):
            made, own = program(graph, examples, ({0: Dim.AUTO}, {0: Dim.AUTO})), graph(*examples)
        names = Names(("windows", "cells"), outputs, {**about, "level": level + 1})
        with whole(path) as part:
            write(made, part, kind, names, precision)
            given = ran(part, kind, dict(zip(names.inputs, examples, strict=True)))
            for name, mine, theirs in zip(outputs, own, given, strict=True):
                off = float((mine - torch.from_numpy(theirs)).abs().max() / mine.abs().max())
                if precision == "fp32" and off > MOST:
                    raise BadChoice(
                        f"the graph of level {level + 1} gives other {name}, by {off:.2g}: nothing was written"
                    )
        files.append(path)
    return tuple(files), about


def _graph(module: Leveled, level: int, onwards: bool, shape: tuple[int, ...]) -> Graph:
    """windows, cells -> logits, score, probability: those that there are."""

    def graph(windows: Tensor, cells: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            found = module.read_regions(windows.reshape(windows.shape[0], *shape), cells, level, onwards)
        return tuple(each for each in found if each is not None)

    return graph


def _about(network: Network, module: Leveled, precision: str) -> dict[str, Any]:
    grid, transform = module.location.grid, network.transform
    side = int(module.extractor.base)  # type: ignore[arg-type]
    if not isinstance(transform, Prepare):
        raise BadChoice("this TNet's transform is not fovea's own, so how windows are normalized is not known")
    return {
        "version": fovea.__version__,
        "net": network.name,
        "method": "glimpses",
        "solver": "levels",
        "precision": precision,
        "labels": None if network.labels is None else list(network.labels),
        "temperature": network.temperature,
        "several": network.can("several"),
        "input": {
            "name": "windows",
            "channels": len(transform.mean),
            "side": side,
            "size": list(transform.size),
            "mean": list(transform.mean),
            "std": list(transform.std),
            "interpolation": transform.interpolation,
            "antialias": module.antialias,
        },
        "grid": {"cells": grid.n, "share": grid.fraction},
        "levels": module.levels,
        "steps": planned(module.glimpses, module.levels, grid.n**2),
        "note": NOTE,
    }
