"""Tiles of an input whose cells, put together, are the cells of the whole.

A cell of a tile is the whole's where all that it can see lies in the tile, or where the tile ends with the input: then
what it sees beyond is the padding that it sees in the whole. A tile begins whole strides from the input's start and
ends whole strides before its end, so that every layer on the way, also one that pads by what is left over (TensorFlow's
SAME), has its positions where they are in the whole."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import ge

from fovea.basics import BadChoice, BadNetwork
from fovea.networks.geometry.cells import Field, Geometry

Span = tuple[int, int]  # start, stop
Find = Callable[[tuple[int, int]], Sequence[Geometry]]  # of maps of cells, for an input of this height and width


@dataclass(frozen=True)
class Axis:
    """One axis of an input, with the fields of maps whose cells are equally far apart, and how many cells they have."""

    length: int
    fields: tuple[Field, ...]
    cells: tuple[int, ...]

    @property
    def stride(self) -> int:
        return int(self.fields[0].stride)

    def spans(self, side: int, least: int = 1) -> Iterator[tuple[Span, list[Span]]]:
        """Stretches of about `side` pixels, of `least` at least where there are so many, each with the cells of every
        map that are taken from it: all of them once, in order."""
        stride, length, done = self.stride, self.length, [0] * len(self.cells)
        first, last = min(field.start for field in self.fields), max(field.stop for field in self.fields)
        more = max(int(side - (last - first)) // stride, 1) * stride
        while done != [*self.cells]:
            start = max(int(min(done) * stride + first) // stride * stride, 0)
            stop = max(int(min(done) * stride + last) + more, least)
            stop = min(stop + (length - stop) % stride, length)
            ends = [int(stop - field.stop) // stride + 1 for field in self.fields]
            if any(map(ge, ends, self.cells)):  # too little would be left of the input for a tile of its own
                stop = length
            ends = [*self.cells] if stop == length else ends
            start = min(start, max(stop - least, 0) // stride * stride)
            yield (start, stop), [*zip(done, ends, strict=True)]
            done = ends


@dataclass(frozen=True)
class Tile:
    """A window of the input (rows, columns), and which cells of each map are taken from it (rows, columns)."""

    rows: Span
    columns: Span
    cells: tuple[tuple[Span, Span], ...]
    stride: tuple[int, int]

    def inner(self, number: int) -> tuple[slice, slice]:
        """The cells of a map, counted in the tile's own."""
        starts = self.rows[0] // self.stride[0], self.columns[0] // self.stride[1]
        rows, columns = (
            slice(first - start, stop - start) for (first, stop), start in zip(self.cells[number], starts, strict=True)
        )
        return rows, columns

    def outer(self, number: int) -> tuple[slice, slice]:
        """The same cells, counted in the whole's."""
        rows, columns = self.cells[number]
        return slice(*rows), slice(*columns)


@dataclass(frozen=True)
class Tiling:
    """What maps of cells there are of an input of some size, and the tiles to have them from."""

    axes: tuple[Axis, Axis]  # rows, columns

    @property
    def grids(self) -> list[tuple[int, int]]:
        """Of every map."""
        rows, columns = self.axes
        return [*zip(rows.cells, columns.cells, strict=True)]

    def tiles(self, side: int, least: int = 1) -> list[Tile]:
        rows, columns = (list(axis.spans(side, least)) for axis in self.axes)
        stride = self.axes[0].stride, self.axes[1].stride
        return [
            Tile(down, across, tuple(zip(taken, taken_across, strict=True)), stride)
            for (down, taken), (across, taken_across) in product(rows, columns)
        ]

    def reach(self) -> int:
        """The most pixels of a side that a cell sees."""
        return max(int(field.size) for axis in self.axes for field in axis.fields)

    def extent(self, number: int) -> tuple[float, float, float, float]:
        """The part of the input that a map's cells divide evenly, each around the middle of what it sees: x0 y0 x1 y1;
        it may lie inside the input, or reach over it."""
        ends = []
        for axis in reversed(self.axes):
            field, cells = axis.fields[number], axis.cells[number]
            start = (field.start + field.stop - axis.stride) / 2
            ends.append((start, start + cells * axis.stride))
        (x0, x1), (y0, y1) = ends
        return x0, y0, x1, y1


def tiling(find: Find, size: tuple[int, int], usual: tuple[int, int]) -> Tiling | None:
    """Of an input of this height and width; None where cells do not see the same wherever they are, and so no tile has
    the whole's: maps of a network that looks at everything, or in windows that hang on the input's size. `usual` is a
    size that the network takes, near which its cells are looked at."""
    try:
        known = find(usual)
        strides = {axis.stride for geometry in known for axis in geometry.axes}
        if len(strides) != 1 or not (stride := strides.pop()) or stride != int(stride):
            return None
        step = int(stride)
        near = tuple(least + (length - least) % step for length, least in zip(size, usual, strict=True))
        here, there = find((near[0], near[1])), find((near[0] + step, near[1] + step))
    except (BadChoice, BadNetwork):  # it takes inputs of its own size only
        return None
    for geometry, larger in zip(here, there, strict=True):
        grown = tuple(cells + 1 for cells in geometry.grid)
        if geometry.axes != larger.axes or grown != larger.grid:
            return None
    axes = [
        Axis(
            size[axis],
            tuple(geometry.axes[axis] for geometry in here),
            tuple(geometry.grid[axis] + (size[axis] - near[axis]) // step for geometry in here),
        )
        for axis in (0, 1)
    ]
    return Tiling((axes[0], axes[1])) if min(min(axis.cells) for axis in axes) > 0 else None
