"""Which map to look at: the last one whose cells the output still depends on."""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fovea.networks.layout import layout_of, stretch

MOST_STRETCH = math.log(4.01)  # a map whose proportions are further from the input's is none
POOLS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.Dropout, nn.Dropout2d, nn.Identity)


def choose(steps: Sequence[tuple[Any, Any, bool]], output: Tensor, batch: Tensor, narrow: bool = False) -> Any | None:
    """The last map still read; when the output is itself spatial (`narrow`: a segmentation), the last of the narrowest.
    A step is (name, value, is a projection); a projection's output is no token stream (queries, keys, hidden units)."""
    names, maps, grids, lengths, patches = [], [], [tuple(batch.shape[-2:])], set(), set()
    samples = {len(batch), len(batch) * batch.shape[1]} if batch.ndim == 5 else {len(batch)}
    for name, value, projection in steps:
        if not isinstance(value, Tensor) or not value.requires_grad or len(value) not in samples:
            continue
        merged = [(grid[0] // 2, grid[1] // 2) for grid in grids if len(grid) == 2]  # tokens, two by two
        layout = layout_of(value, batch, grids) or layout_of(value, batch, merged)
        if layout is None or layout.cells < 2 or (layout.kind == "tokens" and projection):
            continue
        if layout.kind == "tokens":
            lengths.add(value.shape[1])
            patches.add(layout.cells)
        elif lengths & set(value.shape[1:]) or patches & set(value.shape[2:]):
            continue  # heads of an attention layer: one of its axes is the tokens
        elif stretch(layout.grid, batch.shape[-len(layout.grid) :]) > MOST_STRETCH:
            continue  # windows laid out in a row
        grids.append(layout.grid)
        names.append(name)
        maps.append(value)
    if not maps:
        return None
    if not narrow and not (output.ndim >= 3 and output.ndim == batch.ndim and math.prod(output.shape[2:]) > 1):
        return next((names[place] for place in _read_from_the_end(output, maps, batch)), None)
    read = are_read(output, maps, batch)
    kept = [(name, one) for name, one, is_read in zip(names, maps, read, strict=True) if is_read]
    cells = [layout.cells for _, one in kept if (layout := layout_of(one, batch))]
    narrowest = [name for (name, _), count in zip(kept, cells, strict=True) if count == min(cells)]
    return narrowest[-1] if narrowest else None


def _read_from_the_end(output: Tensor, maps: Sequence[Tensor], batch: Tensor) -> Iterator[int]:
    """The places of maps that are read, the last first; a few at a time, so that gradients need not go far back."""
    stop, some = len(maps), 4
    while stop > 0:
        start = max(stop - some, 0)
        read = are_read(output, maps[start:stop], batch)
        yield from (place for place in reversed(range(start, stop)) if read[place - start])
        stop, some = start, 2 * some


def are_read(output: Tensor, maps: Sequence[Tensor], batch: Tensor) -> list[bool]:
    """Does the output still depend on each map's cells? After a ViT's last block it reads the class token alone."""
    probe = torch.rand(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    grads = torch.autograd.grad(output, maps, probe, allow_unused=True, retain_graph=True)
    layouts = [layout_of(one, batch) for one in maps]
    pairs = zip(grads, layouts, strict=True)
    return [
        grad is not None and layout is not None and bool(layout.by_cell(grad).ne(0).any()) for grad, layout in pairs
    ]


def stirred(module: nn.Module) -> nn.Module:
    """A copy whose all-zero weights are random: a network not yet trained may have a last layer that reads nothing."""
    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    for parameter in other.parameters():
        if parameter.ndim > 1 and not bool(parameter.any()):
            parameter.data.copy_(0.02 * torch.randn(parameter.shape, generator=generator))
    return other
