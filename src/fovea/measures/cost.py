"""What a network costs: parameters, multiplications, time, memory, and what it reads."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor

from fovea import networks
from fovea.basics import BadChoice, Progress, quiet
from fovea.measures import Figures, Run, measure
from fovea.measures.figures import giga
from fovea.measures.timing import seconds
from fovea.networks import Network, answered, as_found, input_shape, macs, model, parameters
from fovea.patches import Anchored
from fovea.pictures import read


@dataclass(frozen=True)
class Told:
    """What a paper says of a network."""

    paper: str
    classes: int
    params: float  # with batch norm's statistics
    macs: Mapping[int | None, float] = field(default_factory=dict)  # by the number of locations


Spent = dict[str, float]  # figures by their keys
WARM_UP = 3  # forwards before those that are timed
PAPERS = {
    "bagnet77": (Told("TNet, Table 1", 1000, 20.55e6, {None: 18.42e9}),),
    "tnet-bagnet77": (Told("TNet, Table 1", 1000, 21.86e6, {0: 1.82e9, 1: 3.63e9, 2: 5.43e9, 3: 7.24e9, 5: 10.84e9}),),
    "tnet-b0": (Told("TNet, Table 2", 62, 4.56e6, {0: 0.39e9, 1: 0.77e9, 2: 1.16e9, 3: 1.55e9, 4: 1.94e9, 6: 2.71e9}),),
    "saccader": (
        Told("TNet, Table 1", 1000, 35.58e6, {2: 19.5e9, 6: 19.5e9, 20: 19.51e9, 30: 19.51e9}),
        Told("Saccader, supplement", 1001, 35_583_913),
    ),
    "dram": (
        Told("TNet, Table 1", 1000, 45.61e6, {2: 1.86e9, 4: 3.1e9, 8: 5.58e9, 20: 13.03e9}),
        Told("Saccader, supplement", 1001, 45_610_219),
    ),
}


@measure(
    "cost",
    title="Cost",
    about="What a network costs: parameters, multiplications, time, memory, and the pixels it reads. Weights do not "
    "matter and are not fetched. Where a paper's tables can be read in several ways, each has a row, the paper's "
    "configuration first.",
    example="--net torchvision/resnet50 --batch 16",
    data="none",
    trained=False,
    usual={"device": "cpu"},
)
def cost(
    run: Run,
    *,
    size: int | None = None,
    batch: int = 1,
    classes: int | None = None,
    option: Sequence[str] = (),
    glimpses: Sequence[int] | None = None,
    rounds: int = 11,
    picture: Path | None = None,
) -> Figures:
    """One row per reading of the network's name, and per number of `glimpses` where a network reads glimpses. For
    pictures of `size` x `size`, or of the size that the network takes. `picture` is a file whose pixels and bytes are
    told beside those of the network's input. `option`: key=value, for whoever builds the network."""
    in_file = {}
    if picture is not None:
        image = read(picture)
        in_file = {"picture_pixels": image.width * image.height, "picture_bytes": picture.stat().st_size}
    rows, tables = [], {}
    for options in [options_of(option)] if option else readings(run.net):
        network = run.load(run.net, classes, options)
        for count in glimpses or (None,):
            row = {**_row(run, network, size, batch, rounds, count), **in_file}
            # an option may be called as a figure is: DRAM's locations
            row |= {key: value for key, value in options.items() if key not in row}
            rows.append(row)
            built = "".join(f", {key}={value}" for key, value in options.items())
            looked = "" if count is None else f", {count} glimpses"
            where = f"on {network.device.type}, {torch.get_num_threads()} thread(s)"
            tables[f"{row['net']}{built} at {row['size']}{looked}, batch {batch}, {where}"] = readable(row)
    settings = {
        "device": network.device.type,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "params": "trained values; buffers_params counts the running statistics of batch norm with them",
        "macs": "multiplications a picture (TNet, Eq. 11), those between activations in attention included",
        "ms_per_picture": f"median of {rounds} forwards of the batch after {WARM_UP} to warm up, by the batch",
        "peak_mb": "the most that the tensors of one forward of the batch take up at once, weights not counted",
        "pixels": "that the network takes of each picture, and their bytes as a tensor",
    }
    return Figures("cost", settings, rows, tables=tables)


def _row(run: Run, network: Network, size: int | None, batch: int, rounds: int, glimpses: int | None) -> dict[str, Any]:
    shape = input_shape(network, size)
    pixels = noise(network, shape, batch)
    multiplications = macs(network, pixels[:1], glimpses)
    with as_found(network), torch.no_grad():
        answer = answered(network, pixels[:1], glimpses)
    return {
        "net": network.name or "network",
        "params": parameters(network.module),
        "buffers_params": parameters(network.module) + networks.statistics(network.module),
        "macs": multiplications,
        "size": shape[-1] if shape[-1] == shape[-2] else f"{shape[-2]} x {shape[-1]}",
        **({"locations": answer.glimpses} if network.can("glimpses") else {}),
        "batch": batch,
        **spent(network, pixels, glimpses, rounds, run.progress),
        "pixels": shape[-2] * shape[-1],
        "bytes": pixels[0].nbytes,
        **seen_by_cells(network, (shape[-2], shape[-1])),
    }


def noise(network: Network, shape: Sequence[int], batch: int) -> Tensor:
    """So many pictures of this shape, C,H,W, with anything on them."""
    return torch.rand(batch, *shape, generator=torch.Generator().manual_seed(0)).to(network.device, network.dtype)


def spent(network: Network, pixels: Tensor, glimpses: int | None, rounds: int, progress: Progress = quiet) -> Spent:
    """Time and memory of a batch, or of so many glimpses of its pictures."""

    def forward() -> Any:
        with torch.no_grad():
            return answered(network, pixels, glimpses)

    with as_found(network):
        times = []
        for turn in range(WARM_UP + rounds):
            times.append(seconds(forward, network.device))
            progress(turn + 1, WARM_UP + rounds)
        peak = networks.peak_mb(forward, network.device)
    return {"ms_per_picture": round(median(times[WARM_UP:]) / len(pixels) * 1e3, 3), "peak_mb": round(peak, 1)}


def readings(net: Any) -> Sequence[Mapping[str, Any]]:
    """How a paper's tables can be read: the options of each network that fits them."""
    known: Sequence[Mapping[str, Any]] = ({},)
    return model.entry(net).traits.get("readings", known) if isinstance(net, str) and net in model else known


def options_of(given: Sequence[str]) -> dict[str, Any]:
    """key=value as the builder's options; numbers, lists and truth values as TOML writes them."""
    options: dict[str, Any] = {}
    for words in given:
        key, equals, text = words.partition("=")
        if not equals or not key.strip():
            raise BadChoice(f"an option is written key=value, as se=local; got {words!r}")
        try:
            options[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            options[key.strip()] = text.strip()  # a plain word needs no quotes
    return options


def seen_by_cells(network: Network, size: tuple[int, int]) -> dict[str, str]:
    """The patches of a network with branches: their sides, and how many there are; nothing of another network."""
    if not network.can("branches"):
        return {}
    module = cast(Anchored, network.module)
    found = module.geometries(size)
    return {
        "receptive_fields": "/".join(f"{one.size[0]:g}" for one in found),
        "grids": "/".join(" x ".join(map(str, one.grid)) for one in found),
        "patches": "cells see their own patch" if module.proven else "cells see the whole picture",
    }


def readable(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row as lines for people."""
    lines = {
        "parameters": f"{giga(row['params'])} ({giga(row['buffers_params'])} with batch norm's statistics)",
        "multiplications a picture": f"{giga(row['macs'])}MACs",
        "time a picture": f"{row['ms_per_picture']:,.3g} ms",
        "peak memory of a batch": f"{row['peak_mb']:,.1f} MB beside the weights",
        "read of a picture": f"{row['pixels']:,} pixels, {row['bytes']:,} bytes as a tensor",
    }
    if "locations" in row:
        lines["locations read"] = str(row["locations"])
    if "receptive_fields" in row:
        lines["receptive fields"] = f"{row['receptive_fields']} pixels; {row['patches']}"
        lines["grids"] = row["grids"]
    for told in PAPERS.get(row["net"], ()):
        count = told.macs.get(row.get("locations"))
        shown = f"{giga(round(told.params))} parameters" + ("" if count is None else f", {giga(round(count))}MACs")
        lines[f"{told.paper}, says"] = f"{shown}, with {told.classes:,} classes"
    if "picture_pixels" in row:
        lines["in the file given"] = f"{row['picture_pixels']:,} pixels, {row['picture_bytes']:,} bytes"
    return [{"what": what, "figure": figure} for what, figure in lines.items()]
