"""Heatmaps of files too large to load: of an overview and then of the regions that it finds, or of everything.

Everywhere, a network whose cells see a known patch (geometry tells) has the map of the whole: features are taken from
tiles with as much overlap as a cell sees, and what comes after the cut runs once. Any other map is put together from
windows as large as the network's input. Each window's map counts by the probability that the window gives the class,
and fades towards the window's edges into its neighbors', or into the overview's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fovea import networks
from fovea.basics import BadChoice, demand_bounds, iou, tell
from fovea.heatmaps.heatmap import HeatMaps
from fovea.heatmaps.looking import ByMethod, Layer, Target, look_at, look_into
from fovea.heatmaps.methods import Method
from fovea.heatmaps.targets import TOP
from fovea.networks import Cut, Network, Opened, geometry
from fovea.networks.cutting.parts import alike
from fovea.networks.geometry import Geometry
from fovea.networks.geometry.tiles import Tiling, tiling
from fovea.pictures import BigFacts, BigPicture, Picture, Placement, Prepare, Shown, fitting, on_pixels, regions_on

Box = tuple[float, float, float, float]  # x0 y0 x1 y1, in full-resolution pixels
REGIONS = 8  # that are looked into, at most
CLOSER = 4  # a region is at least so many times smaller than the picture
CELLS = 32  # of a window's map a side; one of pixels is made coarser
SIDE = 4096  # cells of the whole map a side
TILE = 640  # pixels a side, or twice what a cell sees
FEATURES = 1 << 26  # values that are kept of the whole: 256 MB
RIM = 4  # pixels around a tile that is shrunk, beyond what shrinking looks at
FAINT = 1e-3  # of what a window counts in its middle: at its edge, and the overview below it
BLENDED = "put together from windows, each weighed by the probability that it gives the class: not the map of the whole"


@dataclass(frozen=True)
class Closer:
    """How a big picture is looked at: `all` of it, or the regions that its overview finds; `resolution` is the share of
    its own (1: every pixel), as fine as a region fits into the network's input unless given, or 1 everywhere."""

    all: bool = False
    resolution: float | None = None

    def __post_init__(self) -> None:
        demand_bounds({"resolution": self.resolution})


OVERVIEW = Closer()


@dataclass(frozen=True)
class Part:
    """Maps of a window, and where the window lies."""

    values: NDArray[np.float32]  # K,h,w
    placement: Placement  # of the input in full-resolution pixels
    weights: Sequence[float]  # K

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height in full-resolution pixels."""
        x0, y0, x1, y1 = self.placement.extent
        return (x1 - x0) / self.values.shape[2], (y1 - y0) / self.values.shape[1]


def on_extent(size: tuple[int, int], extent: Box, grid: Sequence[int]) -> Placement:
    """Where cells lie that divide a part of the picture evenly."""
    x0, y0, x1, y1 = extent
    scale = (x1 - x0) / grid[1], (y1 - y0) / grid[0]
    return Placement(size, (grid[1], grid[0]), scale, (x0, y0))


def within(placement: Placement, box: Box, size: tuple[int, int]) -> Placement:
    """A place on a picture that is a window of a larger one, on that."""
    wide, high = (box[2] - box[0]) / placement.picture[0], (box[3] - box[1]) / placement.picture[1]
    (sx, sy), (ox, oy) = placement.scale, placement.offset
    return Placement(size, placement.input, (sx * wide, sy * high), (box[0] + ox * wide, box[1] + oy * high))


def blended(parts: Sequence[Part], size: tuple[int, int], below: Part | None) -> NDArray[np.float32]:
    """One map per target, as fine as the finest part: K,h,w."""
    cells = [part.cell for part in parts] or [below.cell] if below else [part.cell for part in parts]
    grid = [min(-(-side // min(cell)), SIDE) for side, cell in zip(size, zip(*cells, strict=True), strict=True)]
    wide, high = (int(side) for side in grid)
    count = len((parts[0] if parts else below).values)  # type: ignore[union-attr]
    total, weight = np.zeros((count, high, wide), np.float32), np.zeros((high, wide), np.float32)
    for part in [*parts, *([below] if below else [])]:
        place = part.placement.at_size((wide, high))
        x0, y0, x1, y1 = place.window
        left, top, right, bottom = int(x0), int(y0), min(-int(-x1 // 1), wide), min(-int(-y1 // 1), high)
        moved = replace(
            place, picture=(right - left, bottom - top), offset=(place.offset[0] - left, place.offset[1] - top)
        )
        if part is below:
            counts: Any = FAINT**2
        else:
            down, across = _fading(top, bottom, y0, y1), _fading(left, right, x0, x1)
            counts = down[:, None] * across
        weight[top:bottom, left:right] += counts
        for number, (values, share) in enumerate(zip(part.values, part.weights, strict=True)):
            total[number, top:bottom, left:right] += counts * share * on_pixels(values, moved)
    return np.divide(total, weight, out=total, where=weight > 0)


def _fading(first: int, last: int, start: float, stop: float) -> NDArray[np.float32]:
    """From 1 in the middle of a window to almost nothing at its ends."""
    place = (np.arange(first, last) + 0.5 - start) / (stop - start)
    return np.where((place > 0) & (place < 1), (1 - abs(2 * place - 1)).clip(FAINT), 0).astype(np.float32)


def windows_in(region: Box, size: tuple[int, int], window: tuple[float, float]) -> list[Box]:
    """Windows of a size that cover a region, half over one another, moved into the picture; one where it suffices."""
    spans = []
    for axis in (0, 1):
        first, last, side, length = region[axis], region[axis + 2], min(window[axis], size[axis]), size[axis]
        count = max(-int(-(last - first - side) // (side / 2)), 0) + 1 if last - first > side * 1.001 else 1
        middle = (first + last - side) / 2
        starts = np.linspace(first, last - side, count) if count > 1 else np.array([middle])
        spans.append([(float(start), float(start + side)) for start in starts.clip(0, length - side)])
    return [(x0, y0, x1, y1) for y0, y1 in spans[1] for x0, x1 in spans[0]]


@dataclass(frozen=True)
class Viewed:
    """A big picture that a network looks at, in windows as large as the network's input."""

    network: Network
    picture: Picture
    big: BigPicture

    @property
    def whole(self) -> Box:
        return 0.0, 0.0, float(self.big.size[0]), float(self.big.size[1])

    @property
    def input(self) -> tuple[int, int]:
        """Height and width of the network's input."""
        return tuple(networks.blank(self.network).shape[2:])  # type: ignore[return-value]

    def windows(self, regions: Iterable[Box], resolution: float | None = None) -> list[Box]:
        """Windows of the network's proportions, of its size at this resolution; else each as large as its region, but
        no smaller than the input."""
        found = list[Box]()
        high, wide = self.input
        for region in regions:
            share = resolution or min(1.0, wide / (region[2] - region[0]), high / (region[3] - region[1]))
            found += windows_in(region, self.big.size, (wide / share, high / share))
        return found

    def taken(self, boxes: Sequence[Box], batch: int) -> Iterator[tuple[Tensor, list[Shown]]]:
        """The windows as the network takes them, some at a time; where they lie is in full-resolution pixels."""
        rows = list[tuple[Tensor, Shown]]()
        for number, box in enumerate(boxes):
            tell(f"window {number + 1:,} of {len(boxes):,}")
            most = 2 * self.input[1], 2 * self.input[0]
            image = self.big.read(box, fitting((round(box[2] - box[0]), round(box[3] - box[1])), most))
            tensor, placement = networks.as_taken(self.network, image)
            row = tensor, Shown(self.picture.name, within(placement, box, self.big.size), self.picture)
            if rows and (len(rows) == batch or rows[0][0].shape != tensor.shape):
                yield self._batch(rows)
                rows = []
            rows.append(row)
        if rows:
            yield self._batch(rows)
        tell("")

    def _batch(self, rows: list[tuple[Tensor, Shown]]) -> tuple[Tensor, list[Shown]]:
        tensors = torch.stack([tensor for tensor, _ in rows])
        return tensors.to(self.network.device, self.network.dtype), [shown for _, shown in rows]


def explain_big(
    seen: Viewed, methods: Sequence[Method], target: Target, layer: Layer, closer: Closer, batch: int
) -> ByMethod:
    """Of one picture, one HeatMaps per method."""
    if seen.network.can("frames"):
        raise BadChoice(f"{seen.network.name or 'this network'} takes clips, and {seen.picture.name} is a picture")
    if isinstance(target, str) and target == "pair":
        raise BadChoice(f"target 'pair' compares pictures as wholes; {seen.picture.name} is read window by window")
    if closer.all and (found := _of_the_whole(seen, methods, target, layer, closer.resolution or 1.0)) is not None:
        return found
    first = _overview(seen, methods, target, layer, batch)
    regions = [seen.whole] if closer.all else first.regions
    boxes = seen.windows(regions, closer.resolution or (1.0 if closer.all else None))
    parts: dict[str, list[Part]] = {name: [] for name in first.maps}
    left = [method for method in methods if method.name in first.maps]
    for tensors, shown in seen.taken(boxes, batch):
        rows = torch.tensor([first.classes] * len(tensors)) if first.classes else target
        found, output = look_at(seen.network, tensors, shown, left, rows, layer)
        for name, more in _parts(found, output, first.classes, seen.network).items():
            parts[name] += more
    finest = max((seen.input[1] / (box[2] - box[0]) for box in boxes), default=0.0)
    about, maps = BigFacts.of(seen.big, min(finest, 1.0), tuple(regions)), ByMethod(first.maps.refused)
    for name, heatmaps in first.maps.items():
        values = blended(parts[name], seen.big.size, None if closer.all else first.parts[name][0])
        place = on_extent(seen.big.size, seen.whole, values.shape[1:])
        there = Shown(seen.picture.name, place, seen.picture, first.predictions, about)
        maps[name] = replace(heatmaps, cells=torch.from_numpy(values)[None], shown=[there], loss=None, note=BLENDED)
    return maps


@dataclass(frozen=True)
class First:
    """What the overview says: maps, and the regions that they find, for classes (none: for the target as it is)."""

    maps: ByMethod
    parts: dict[str, list[Part]]
    regions: list[Box]
    classes: list[int]
    predictions: tuple[tuple[str, float], ...]


def _overview(seen: Viewed, methods: Sequence[Method], target: Target, layer: Layer, batch: int) -> First:
    """Where no class is named, it is what the overview, or a region that it finds, is taken for with most certainty."""
    network = seen.network
    ((tensors, shown),) = seen.taken([seen.whole], 1)
    maps, output = look_at(network, tensors, shown, methods, target, layer)
    classes = [] if network.asked else _classes(maps)
    regions, best = _regions(next(iter(maps.values()))), maps[next(iter(maps))].shown[0].predictions
    if classes and best and (target is None or (isinstance(target, str) and TOP.fullmatch(target))):
        closely = [shares_of(network(part), network) for part, _ in seen.taken(seen.windows(regions), batch)]
        shares = torch.cat([shares_of(output, network), *closely]).amax(0)
        ranked = shares.topk(max(len(best), len(classes)))
        best = tuple((network.label(i), share) for share, i in zip(*(row.tolist() for row in ranked), strict=True))
        classes = ranked.indices.tolist()[: len(classes)]
        maps, output = look_at(network, tensors, shown, methods, torch.tensor([classes]), layer)
    return First(maps, _parts(maps, output, classes, network), regions, classes, best)


def shares_of(output: Tensor, network: Network) -> Tensor:
    """The probability of every class."""
    logits = output.detach().float().cpu()
    return logits.sigmoid() if network.can("several") else logits.softmax(1)


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
    shares: list[list[float]] = shares_of(output, network)[:, list(classes)].tolist()
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
    """Where the overview's maps are high, for all targets: the boxes of segments, and of one that is large the windows
    in it, a few times smaller than the picture, that hold most of the evidence; none much over another."""
    placement, found = maps.shown[0].placement, list[tuple[Box, float]]()
    for target in range(len(maps.targets[0])):
        found += [] if placement is None else closer_regions(maps.smoothed(0, target), placement)
    return apart(found)


def closer_regions(cells: NDArray[np.float32], placement: Placement) -> list[tuple[Box, float]]:
    """Regions that a map finds, each with the map's mean in it."""
    fine, size = placement.to_draw, placement.picture
    values = np.pad(on_pixels(np.maximum(cells, 0), fine).cumsum(0, np.float64).cumsum(1), ((1, 0), (1, 0)))
    most = size[0] / CLOSER, size[1] / CLOSER
    found = list[tuple[Box, float]]()
    for region, _ in regions_on(cells, placement):
        large = region[2] - region[0] > most[0] or region[3] - region[1] > most[1]
        for box in windows_in(region, size, most) if large else [region]:
            x0, x1 = (round(side * fine.picture[0] / size[0]) for side in box[::2])
            y0, y1 = (round(side * fine.picture[1] / size[1]) for side in box[1::2])
            total = values[y1, x1] - values[y0, x1] - values[y1, x0] + values[y0, x0]
            found.append((box, float(total) / max((x1 - x0) * (y1 - y0), 1)))
    return found


def apart(found: Iterable[tuple[Box, float]], overlap: float = 0.3, most: int = REGIONS) -> list[Box]:
    """The best boxes of which none is much over another."""
    kept = list[Box]()
    for box, _ in sorted(found, key=lambda row: -row[1]):
        if len(kept) < most and (not kept or iou([box], kept).max() < overlap):
            kept.append(box)
    return kept


class _Trunk(nn.Module):
    """A network up to the cut."""

    def __init__(self, made: Cut) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        return self.made.enter(x, False)[0]


@dataclass(frozen=True)
class Level:
    """A big picture shrunk a whole number of times, in tiles as a network takes them: any tile has the pixels that the
    whole would have there."""

    big: BigPicture
    prepare: Prepare
    times: int
    network: Network

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.big.size[1] // self.times, self.big.size[0] // self.times

    def read(self, rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
        """1,C,h,w."""
        rim = 0 if self.times == 1 else RIM
        (top, bottom), (left, right) = (
            (max(first - rim, 0), min(last + rim, side))
            for (first, last), side in zip((rows, columns), self.size, strict=True)
        )
        box = tuple(side * self.times for side in (left, top, right, bottom))
        image = self.big.read(box, (right - left, bottom - top))
        image = image.crop((columns[0] - left, rows[0] - top, columns[1] - left, rows[1] - top))
        image = image.convert("L") if len(self.prepare.mean) == 1 else image
        pixels = torch.from_numpy(np.array(image)).reshape(image.height, image.width, -1).permute(2, 0, 1)
        return self.prepare.normalize(pixels)[None].to(self.network.device, self.network.dtype)

    def extent(self, made: Tiling, number: int) -> Box:
        """Where a map's cells lie, in full-resolution pixels."""
        x0, y0, x1, y1 = (side * self.times for side in made.extent(number))
        return x0, y0, x1, y1


def level_of(seen: Viewed, resolution: float) -> Level | None:
    """None where the network's transform is not known to take pixels one by one."""
    prepare = seen.network.transform
    return Level(seen.big, prepare, round(1 / resolution), seen.network) if isinstance(prepare, Prepare) else None


def side_of(made: Tiling) -> int:
    """Of tiles, in pixels: cells that see much are taken from larger ones."""
    return max(TILE, 2 * made.reach())


def _of_the_whole(
    seen: Viewed, methods: Sequence[Method], target: Target, layer: Layer, resolution: float
) -> ByMethod | None:
    """The maps that the whole has at this resolution; None where tiles do not have its cells."""
    network, level = seen.network, level_of(seen, resolution)
    if level is None or network.can("complement") or any(method.on != "cells" for method in methods):
        return None
    usual = networks.blank(network)
    with networks.switched(network) as parts:
        cut = networks.cut(network, usual, layer, parts)

        def find(size: tuple[int, int]) -> Sequence[Geometry]:
            if cut.how == "hook":
                return [geometry.of(network, cut.layer, size, usual.shape[1])]
            return geometry.of_tensors(_Trunk(cut), usual.new_zeros(1, usual.shape[1], *size), lambda out: [out])

        made = tiling(find, level.size, (usual.shape[2], usual.shape[3]))
        if made is None or not _reads_features_alone(cut, usual):
            return None
        with networks.turn(network, parts, cut.quiet, [method.run for method in methods]):
            opened = _stitched(cut, level, made, usual.shape[2:])
            if opened is None:
                return None
            place = on_extent(seen.big.size, level.extent(made, 0), made.grids[0])
            about = BigFacts.of(seen.big, 1 / level.times, stitched=True)
            shown = Shown(seen.picture.name, place, seen.picture, big=about)
            return look_into(network, opened, [shown], methods, target, cut.layer)[0]


def _reads_features_alone(cut: Cut, usual: Tensor) -> bool:
    """Whether the head makes the same of the same features, whatever input they are said to be of."""
    with torch.no_grad():
        here, there = cut.open(usual), cut.open(usual.flip(3) * 0.5 + 0.25)
        return alike(here.head(there.features), there.output)


def _stitched(cut: Cut, level: Level, made: Tiling, usual: Sequence[int]) -> Opened | None:
    """The whole picture inside the cut network, its features taken tile by tile."""
    features: Tensor | None = None
    tiles, grid, opened = made.tiles(side_of(made), max(usual)), made.grids[0], None
    for number, tile in enumerate(tiles):
        tell(f"tile {number + 1:,} of {len(tiles):,}")
        opened = cut.open(level.read(tile.rows, tile.columns))
        part = opened.features.detach()
        if features is None:
            shape = (1, part.shape[1], *grid)
            if part.ndim != 4 or opened.layout.kind != "channels first" or np.prod(shape) > FEATURES:
                return None
            features = part.new_empty(shape)
        features[(..., *tile.outer(0))] = part[(..., *tile.inner(0))]
    tell("")
    if features is None or opened is None:
        return None
    features.requires_grad_()
    layout = replace(opened.layout, grid=grid)
    output = opened.head(features)
    return replace(opened, features=features, output=output, trunk=lambda: features, layout=layout, input=None)
