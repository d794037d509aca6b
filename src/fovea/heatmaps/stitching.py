"""The map of the whole of a picture too large to load, from tiles with as much overlap as a cell sees."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from fovea import networks
from fovea.basics import tell
from fovea.heatmaps.looking import ByMethod, Layer, Target, look_into
from fovea.heatmaps.methods import Method
from fovea.heatmaps.windows import Box, Viewed, on_extent
from fovea.networks import Cut, Network, Opened, geometry
from fovea.networks.cutting.parts import alike
from fovea.networks.geometry import Geometry
from fovea.networks.geometry.tiles import Tiling, tiling
from fovea.pictures import BigFacts, BigPicture, Prepare, Shown

TILE = 640  # pixels a side, or twice what a cell sees
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


def level_of(seen: Viewed, resolution: float) -> Level | None:
    """None where the network's transform is not known to take pixels one by one."""
    prepare = seen.network.transform
    return Level(seen.big, prepare, round(1 / resolution), seen.network) if isinstance(prepare, Prepare) else None


def side_of(made: Tiling) -> int:
    """Of tiles, in pixels: cells that see much are taken from larger ones."""
    return max(TILE, 2 * made.reach())


def of_the_whole(
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
