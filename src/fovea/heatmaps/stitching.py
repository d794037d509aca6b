"""The map of the whole of a picture too large to load, from tiles with as much overlap as a cell sees."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from fovea import networks
from fovea.basics import tell
from fovea.heatmaps import targets as targeting
from fovea.heatmaps.look import Finding, Look
from fovea.heatmaps.looking import ByMethod, Layer, Target, heatmaps_of, look_into
from fovea.heatmaps.methods import Method
from fovea.heatmaps.targets import TOP, Aim
from fovea.heatmaps.windows import Box, Viewed, on_extent
from fovea.networks import Cut, Layout, Network, Opened, geometry
from fovea.networks.cutting.parts import alike
from fovea.networks.geometry import Geometry
from fovea.networks.geometry.tiles import Tiling, tiling
from fovea.pictures import BigFacts, BigPicture, Prepare, Shown

TILE = 640  # pixels a side that are taken from a tile: more is quicker where cells see much, and takes more memory
FEATURES = 1 << 26  # values that are kept of the whole: 256 MB
RIM = 4  # pixels around a tile that is shrunk, beyond what shrinking looks at


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


def level_of(viewed: Viewed, resolution: float) -> Level | None:
    """None where the network's transform is not known to take pixels one by one."""
    prepare = viewed.network.transform
    return Level(viewed.big, prepare, round(1 / resolution), viewed.network) if isinstance(prepare, Prepare) else None


def side_of(made: Tiling) -> int:
    """Of tiles, in pixels, with what their outermost cells see."""
    return TILE + made.reach()


def of_the_whole(
    viewed: Viewed, methods: Sequence[Method], target: Target, layer: Layer, resolution: float
) -> tuple[ByMethod, Tensor] | None:
    """The maps that the whole has at this resolution, and its output; None where tiles do not have its cells."""
    network, level = viewed.network, level_of(viewed, resolution)
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
            tiles = Tiles(viewed, cut, level, made)
            opened = cut.open(usual)
            if opened.layout.kind != "channels first" or opened.features.ndim != 4:
                return None
            if opened.features.shape[1] * math.prod(made.grids[0]) > FEATURES:
                return _added_up(tiles, methods, target)
            return look_into(network, _stitched(tiles), [tiles.shown()], methods, target, cut.layer)


class _Trunk(nn.Module):
    """A network up to the cut."""

    def __init__(self, made: Cut) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        return self.made.enter(x, False)[0]


def _reads_features_alone(cut: Cut, usual: Tensor) -> bool:
    """Whether the head makes the same of the same features, whatever input they are said to be of."""
    with torch.no_grad():
        here, there = cut.open(usual), cut.open(usual.flip(3) * 0.5 + 0.25)
        return alike(here.head(there.features), there.output)


@dataclass(frozen=True)
class Tiles:
    """A big picture inside a cut network, tile by tile."""

    viewed: Viewed
    cut: Cut
    level: Level
    tiling: Tiling

    @property
    def grid(self) -> tuple[int, int]:
        return self.tiling.grids[0]

    def __iter__(self) -> Iterator[tuple[tuple[slice, slice], Opened]]:
        """The cells of the whole that a tile has, and the network opened at the tile with the features of these alone,
        which may be fewer than what follows the cut can take."""
        tiles = self.tiling.tiles(side_of(self.tiling), max(self.viewed.input))
        for number, tile in enumerate(tiles):
            tell(f"tile {number + 1:,} of {len(tiles):,}")
            opened = self.cut.open(self.level.read(tile.rows, tile.columns))
            yield tile.outer(0), replace(opened, features=opened.features.detach()[(..., *tile.inner(0))])
        tell("")

    @staticmethod
    def opened(opened: Opened, features: Tensor) -> Opened:
        """The same network at other features."""
        features = features.clone().requires_grad_()
        layout = Layout("channels first", (features.shape[2], features.shape[3]))
        new = replace(opened, features=features, trunk=lambda: features, layout=layout, input=None)
        return replace(new, output=opened.head(features))

    def shown(self) -> Shown:
        big = self.viewed.big
        place = on_extent(big.size, self.level.extent(self.tiling, 0), self.grid)
        about = BigFacts.of(big, 1 / self.level.times, stitched=True)
        return Shown(self.viewed.picture.name, place, self.viewed.picture, big=about)


def _stitched(tiles: Tiles) -> Opened:
    """The network opened at the features of the whole."""
    features: Tensor | None = None
    for (rows, columns), opened in tiles:
        part = opened.features
        features = part.new_empty(1, part.shape[1], *tiles.grid) if features is None else features
        features[..., rows, columns] = part
    assert features is not None  # a picture has at least one tile
    return Tiles.opened(opened, features)


@runtime_checkable
class Additive(Protocol):
    """A method whose map of an affine head is made of what each cell adds to a score."""

    @property
    def additive(self) -> bool: ...

    def tangent(self, look: Look, aim: Aim) -> Tensor: ...

    def of_tangent(self, slope: Tensor) -> Finding: ...


def _added_up(tiles: Tiles, methods: Sequence[Method], target: Target) -> tuple[ByMethod, Tensor] | None:
    """Where features of the whole take too much memory: of a head that averages cells, what each adds is found tile by
    tile, and so is the output. A class that is not named is taken to be the overview's until the whole's is known."""
    viewed, network = tiles.viewed, tiles.viewed.network
    runs = [method.run for method in methods]
    if not all(isinstance(run, Additive) and run.additive for run in runs) or not _averages(tiles.cut, viewed):
        return None
    ((tensors, _),) = viewed.taken([viewed.whole], 1)
    ranked = target is None or (isinstance(target, str) and TOP.fullmatch(target) is not None)
    with torch.no_grad():
        wanted = targeting.aims(target, network, network(tensors))
    if any(aim.classes is None for aim in wanted):
        return None
    known = [int(aim.indices[0] or 0) for aim in wanted]
    slopes, output, opened = _tangents(tiles, runs, known)
    if ranked and (best := output[0].topk(len(known)).indices.tolist()) != known:
        known = best
        slopes, output, opened = _tangents(tiles, runs, known)
    opened = replace(opened, output=output, layout=Layout("channels first", tiles.grid))
    aims, maps = targeting.aims(torch.tensor([known]), network, output), ByMethod()
    shown = replace(tiles.shown(), predictions=networks.predictions(network, output)[0])
    for method, rows in zip(methods, slopes, strict=True):
        findings = [method.run.of_tangent(row.flatten()[None]) for row in rows]  # type: ignore[attr-defined]
        maps[method.name] = heatmaps_of(method.name, findings, aims, opened, [shown], tiles.cut.layer)
    return maps, output


def _tangents(tiles: Tiles, runs: Sequence[Any], known: list[int]) -> tuple[list[list[Tensor]], Tensor, Opened]:
    """By method and class what each cell of the whole adds (h,w), the output of the whole, and a tile."""
    cells, output = math.prod(tiles.grid), torch.zeros(())
    slopes = [[torch.zeros(tiles.grid) for _ in known] for _ in runs]
    for (rows, columns), tile in tiles:
        opened = Tiles.opened(tile, tile.features)
        share, network = opened.layout.cells / cells, tiles.viewed.network
        output = output + share * opened.output.detach().double().cpu()
        look = Look(opened, False, len(known), network)
        for number, aim in enumerate(targeting.aims(torch.tensor([known]), network, opened.output)):
            for row, run in zip(slopes, runs, strict=True):
                found = run.tangent(look, aim).detach().cpu() * share
                row[number][rows, columns] = found.view(opened.layout.grid)
    return slopes, output.float(), opened


def _averages(cut: Cut, viewed: Viewed) -> bool:
    """Whether the output of all cells is the mean of what parts of them give, and follows them in a line."""
    usual = networks.blank(viewed.network)
    with torch.no_grad():
        opened = cut.open(usual + torch.linspace(-1, 1, usual.shape[3]).to(usual))
        features, head = opened.features.detach(), opened.head
        first = features.shape[2] // 2
        parts = head(features[:, :, :first]) * first + head(features[:, :, first:]) * (features.shape[2] - first)
        line = (head(features * 3) + head(features * 0) * 2) / 3
        return alike(parts / features.shape[2], opened.output) and alike(line, opened.output)
