"""Cells of a feature map, and the part of the input that each can see."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice, BadNetwork, shown
from fovea.networks.geometry.following import Sight
from fovea.networks.layout import Layout, layout_of

Box = tuple[int, ...]  # starts, then stops, the last axis first: x0 y0 x1 y1


@dataclass(frozen=True)
class Field:
    """One axis: cell i sees input positions i * stride + start up to, without, i * stride + stop. Where all cells see
    the same, or there is one cell only, the stride is 0."""

    stride: float
    start: float
    stop: float

    @property
    def size(self) -> float:
        return self.stop - self.start


@dataclass(frozen=True)
class Geometry:
    """Cells of a grid and what each can see of an input of this size; rows come before columns."""

    axes: tuple[Field, ...]
    grid: tuple[int, ...]
    input: tuple[int, ...]
    seen: Tensor = field(repr=False, compare=False)  # P,2·axes: the box of every cell, in reading order
    assumed: tuple[str, ...] = ()  # operations taken to read all they were given, for want of a rule

    @property
    def size(self) -> tuple[float, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def stride(self) -> tuple[float, ...]:
        return tuple(axis.stride for axis in self.axes)

    @property
    def everything(self) -> bool:
        """Whether every cell sees the whole input, or all that any cell sees: then a cell stands for no place."""
        same = bool((self.seen == self.seen[0]).all()) and bool(self.seen.any())
        return same and (len(self.seen) > 1 or tuple(self.seen[0].tolist()) == box([0] * len(self.input), self.input))

    def region(self, cell: Sequence[int] | int) -> Box:
        """What a cell (row, column) can see, half open: x0 y0 x1 y1, or start and stop of a 1-D input."""
        return tuple(self.seen[self.number(cell)].tolist())

    def number(self, cell: Sequence[int] | int) -> int:
        """A cell's place in reading order."""
        place: tuple[Any, ...] = (cell,) if isinstance(cell, (int, Integral)) else tuple(cell)
        if not all(isinstance(at, Integral) for at in place):
            raise BadChoice(f"a cell is given by whole numbers, row and column; got {shown(cell)}")
        if len(place) != len(self.grid) or not all(0 <= at < n for at, n in zip(place, self.grid, strict=True)):
            highest = ", ".join(str(n - 1) for n in self.grid)
            raise BadChoice(f"no cell {place} in a grid of {by(self.grid)}: the last cell is ({highest})")
        return reduce(lambda total, step: total * step[1] + step[0], zip(place, self.grid, strict=True), 0)

    def boxes(self) -> Tensor:
        """What every cell can see, in reading order: P,4 (P,2 for a 1-D input)."""
        return self.seen.clone()

    def __str__(self) -> str:
        unit = "pixels" if len(self.input) == 2 else "positions"
        axes = len(self.input)
        most = (self.seen[:, axes:] - self.seen[:, :axes]).amax(0).tolist()[::-1]
        if self.everything:
            what = "the whole input" if tuple(most) == self.input else f"the same {by(most)} {unit}"
            said = f"every cell sees {what}"
        elif all(self.stride):
            stride = by(self.stride if len(set(self.stride)) > 1 else self.stride[:1])
            said = f"cells see {by(self.size)} {unit}, stride {stride}"
        else:
            said = f"cells see up to {by(most)} {unit}"
        said += f", grid {by(self.grid)}, input {by(self.input)}"
        return said + (f" (taken to read all they are given: {', '.join(self.assumed)})" if self.assumed else "")


def geometry_of(shape: torch.Size, sight: Sight, inputs: Tensor) -> Geometry:
    space = tuple(inputs.shape[2:] or inputs.shape[1:])
    axes = len(space)
    reach = sight.reach or (torch.tensor(-torch.inf).expand(shape),) * (4 * axes)
    layout = _layout(reach[: 2 * axes], inputs, axes)
    grid = (1,) * axes if layout is None else layout.grid
    arrays = [by_cell(array, layout).amax((0, 1)).cpu() for array in reach]  # P each
    starts, stops, beyond_starts, beyond_stops = (
        torch.stack(arrays[first : first + 2 * axes : 2], 1) * sign  # P,axes
        for first, sign in ((0, -1), (1, 1), (2 * axes, -1), (2 * axes + 1, 1))
    )
    seen = torch.cat([starts.flip(1), stops.flip(1)], 1)  # P,2·axes
    seen = seen.masked_fill(seen.isinf(), 0).long()
    ends = (each.T.reshape(axes, *grid) for each in (beyond_starts, beyond_stops))
    fields = map(_field, *ends, range(axes), space)
    return Geometry(tuple(fields), grid, space, seen, tuple(sorted(sight.assumed)))


def _field(starts: Tensor, stops: Tensor, axis: int, length: int) -> Field:
    """The narrowest field that holds what every cell of a grid sees: exact where each sees the same, one stride on."""
    starts, stops = (one.double().movedim(axis, -1) for one in (starts, stops))  # ..., cells
    blind = starts.isinf()
    if blind.all():
        return Field(0, 0, 0)
    cells = starts.shape[-1]
    stride = 0.0 if blind.any() else float((starts[..., -1] - starts[..., 0]).mean()) / max(1, cells - 1)
    at = torch.arange(cells) * stride
    start, stop = float((starts - at)[~blind].min()), float((stops - at)[~blind].max())
    if stride == 0:
        start, stop = max(start, 0.0), min(stop, float(length))
    return Field(*(int(one) if one.is_integer() else one for one in (stride, start, stop)))


def _layout(reach: Sequence[Tensor], inputs: Tensor, axes: int) -> Layout | None:
    """Where the cells are: along the axes where what is seen changes, and read off the shape where nothing changes."""

    def changes(axis: int, along: int) -> bool:
        return any(bool((array != array.narrow(along, 0, 1)).any()) for array in reach[2 * axis : 2 * axis + 2])

    shape, count = tuple(reach[0].shape), reach[0].ndim
    if count == axes + 2:
        if any(changes(axis, axis + 2) for axis in range(axes)):
            return Layout("channels first", shape[2:])
        if any(changes(axis, axis + 1) for axis in range(axes)):
            return Layout("channels last", shape[1:-1])
    elif count == axes + 1 and changes(axes - 1, axes):
        return Layout("channels first", shape[1:])  # one channel, whose axis was dropped
    if count < 3:
        return None
    found = layout_of(reach[0], inputs)
    if found is None:
        raise BadNetwork(f"no grid of cells is known in a tensor of {by(shape)}: pick one that has channels and a grid")
    return found


def by_cell(values: Tensor, layout: Layout | None) -> Tensor:
    """As N,channels,P; a tensor without space is one cell."""
    if layout is None:
        return values.reshape(1, -1, 1) if values.ndim < 2 else values.flatten(1).unsqueeze(-1)
    dropped = layout.kind == "channels first" and values.ndim == len(layout.grid) + 1
    return layout.by_cell(values.unsqueeze(1) if dropped else values)


def box(starts: Sequence[int], stops: Sequence[int]) -> Box:
    return (*reversed(starts), *reversed(stops))


def by(sides: Sequence[float]) -> str:
    return " x ".join(f"{side:g}" for side in sides)
