"""Heatmaps of files too large to load: of an overview and then of the regions that it finds, or of everything.

Everywhere, a network whose cells see a known patch (geometry tells) has the map of the whole: features are taken from
tiles with as much overlap as a cell sees, and what comes after the cut runs once. Any other map is put together from
windows as large as the network's input. Each window's map counts by the probability that the window gives the class,
and fades towards the window's edges into its neighbors', or into the overview's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice, demand_bounds
from fovea.heatmaps.heatmap import HeatMaps
from fovea.heatmaps.looking import ByMethod, Layer, Target, look_at
from fovea.heatmaps.methods import Method
from fovea.heatmaps.stitching import of_the_whole
from fovea.heatmaps.targets import TOP
from fovea.heatmaps.windows import Box, Part, Viewed, apart, blended, closer_regions, on_extent
from fovea.networks import Network, shares_of
from fovea.pictures import BigFacts, Shown, fitting

CELLS = 32  # of a window's map a side; one of pixels is made coarser
BLENDED = "put together from windows, each weighed by the probability that it gives the class: not the map of the whole"
FAINT = 0.1  # a probability of a class, below which no window shows it
MISSED = (
    "; no window gives it more than {:.2f}: what is small in the overview may be missed, and --all looks everywhere"
)


@dataclass(frozen=True)
class Closer:
    """How a big picture is looked at: `all` of it, or the regions that its overview finds; `resolution` is the share of
    its own (1: every pixel), as fine as a region fits into the network's input unless given, or 1 everywhere."""

    all: bool = False
    resolution: float | None = None

    def __post_init__(self) -> None:
        demand_bounds({"resolution": self.resolution})

    @property
    def asked(self) -> dict[str, Any]:
        """What differs from an overview and its regions, for settings."""
        return {name: value for name, value in vars(self).items() if value}


OVERVIEW = Closer()


def explain_big(
    viewed: Viewed, methods: Sequence[Method], target: Target, layer: Layer, closer: Closer, batch: int
) -> ByMethod:
    """Of one picture, one HeatMaps per method."""
    if viewed.network.can("frames"):
        raise BadChoice(f"{viewed.network.name or 'this network'} takes clips, and {viewed.picture.name} is a picture")
    if isinstance(target, str) and target == "pair":
        raise BadChoice(f"target 'pair' compares pictures as wholes; {viewed.picture.name} is read window by window")
    if closer.all and (whole := of_the_whole(viewed, methods, target, layer, closer.resolution or 1.0)) is not None:
        return whole[0]
    first = _overview(viewed, methods, target, layer, batch)
    regions = [viewed.whole] if closer.all else first.regions
    boxes = viewed.windows(regions, closer.resolution or (1.0 if closer.all else None))
    parts: dict[str, list[Part]] = {name: [] for name in first.maps}
    left = [method for method in methods if method.name in first.maps]
    for tensors, shown in viewed.taken(boxes, batch):
        rows = torch.tensor([first.classes] * len(tensors)) if first.classes else target
        found, output = look_at(viewed.network, tensors, shown, left, rows, layer)
        for name, more in _parts(found, output, first.classes, viewed.network).items():
            parts[name] += more
    finest = max((viewed.input[1] / (box[2] - box[0]) for box in boxes), default=0.0)
    about, maps = BigFacts.of(viewed.big, min(finest, 1.0), tuple(regions)), ByMethod(first.maps.refused)
    for name, heatmaps in first.maps.items():
        values = blended(parts[name], viewed.big.size, None if closer.all else first.parts[name][0])
        place = on_extent(viewed.big.size, viewed.whole, values.shape[1:])
        there = Shown(viewed.picture.name, place, viewed.picture, first.predictions, about)
        words = [
            tuple(None if each.max() > 0 else why for each, why in zip(values, heatmaps[0].diagnosis, strict=True))
        ]
        best = min((max(shares) for shares in zip(*(part.weights for part in parts[name]), strict=True)), default=1.0)
        missed = MISSED.format(best) if best < FAINT and not closer.all else ""
        cells = torch.from_numpy(values)[None]
        maps[name] = replace(heatmaps, cells=cells, shown=[there], loss=None, diagnosis=words, note=BLENDED + missed)
    return maps


@dataclass(frozen=True)
class First:
    """What the overview says: maps, and the regions that they find, for classes (none: for the target as it is)."""

    maps: ByMethod
    parts: dict[str, list[Part]]
    regions: list[Box]
    classes: list[int]
    predictions: tuple[tuple[str, float], ...]


def _overview(viewed: Viewed, methods: Sequence[Method], target: Target, layer: Layer, batch: int) -> First:
    """Where no class is named, it is what the overview, or a region that it finds, is taken for with most certainty."""
    network = viewed.network
    ((tensors, shown),) = viewed.taken([viewed.whole], 1)
    maps, output = look_at(network, tensors, shown, methods, target, layer)
    classes = [] if network.asked else _classes(maps)
    regions, best = _regions(next(iter(maps.values()))), maps[next(iter(maps))].shown[0].predictions
    if classes and best and (target is None or (isinstance(target, str) and TOP.fullmatch(target))):
        with torch.no_grad():
            closely = [shares_of(network, network(part)) for part, _ in viewed.taken(viewed.windows(regions), batch)]
        shares = torch.cat([shares_of(network, output), *closely]).amax(0)
        ranked = shares.topk(max(len(best), len(classes)))
        best = tuple((network.label(i), share) for share, i in zip(*(row.tolist() for row in ranked), strict=True))
        classes = ranked.indices.tolist()[: len(classes)]
        maps, output = look_at(network, tensors, shown, methods, torch.tensor([classes]), layer)
    return First(maps, _parts(maps, output, classes, network), regions, classes, best)


def _parts(maps: ByMethod, output: Tensor, classes: Sequence[int], network: Network) -> dict[str, list[Part]]:
    """By method, the maps of each window of a batch."""
    return {
        name: [
            Part(_coarser(found, place), shown.placement, shares)
            for place, (shown, shares) in enumerate(
                zip(found.shown, _shares(output, classes, len(found.cells[0]), network), strict=True)
            )
            if shown.placement is not None
        ]
        for name, found in maps.items()
    }


def _classes(maps: ByMethod) -> list[int]:
    """Those that are explained, where all are known."""
    rows = [found.classes[0] for found in maps.values() if found.classes and None not in found.classes[0]]
    return [index for index in rows[0] if index is not None] if rows else []


def _shares(output: Tensor, classes: Sequence[int], count: int, network: Network) -> list[list[float]]:
    """How much each window's map of each target counts: by the probability of its class, where it is one."""
    if len(classes) != count or output.ndim != 2 or output.shape[1] < 2:
        return [[1.0] * count] * len(output)
    shares: list[list[float]] = shares_of(network, output)[:, list(classes)].tolist()
    return shares


def _coarser(maps: HeatMaps, picture: int) -> NDArray[np.float32]:
    """A window's maps, of no more cells than they are worth: K,h,w."""
    if maps.frames or len(maps.grid) != 2:
        raise BadChoice(f"maps of a big picture have rows and columns; those of {maps.layer!r} have {maps.grid}")
    values = maps.cells[picture].detach().float().cpu().numpy()
    width, height = fitting((values.shape[2], values.shape[1]), (CELLS, CELLS))
    if (height, width) == values.shape[1:]:
        return values
    small = [Image.fromarray(row).resize((width, height), Image.Resampling.BOX) for row in values]
    return np.stack([np.array(row) for row in small])


def _regions(maps: HeatMaps) -> list[Box]:
    """Where the overview's maps are highest, for all targets: none much over another."""
    placement, found = maps.shown[0].placement, list[tuple[Box, float]]()
    for target in range(len(maps.targets[0])):
        found += [] if placement is None else closer_regions(maps.smoothed(0, target), placement)
    return apart(found)
