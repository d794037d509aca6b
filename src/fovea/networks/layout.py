"""Where the cells and the channels of a feature tensor are, read off its shape."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

MOST_PREFIX = 8  # class, distillation and register tokens before the patch tokens


@dataclass(frozen=True)
class Layout:
    """Where the cells and the channels of a feature tensor are."""

    kind: Literal["channels first", "channels last", "tokens"]
    grid: tuple[int, ...]
    prefix: int = 0

    @property
    def cells(self) -> int:
        return math.prod(self.grid)

    def by_cell(self, features: Tensor) -> Tensor:
        """The features as B,k,P: samples, channels, cells."""
        if self.kind == "channels first":
            return features.flatten(2)
        if self.kind == "channels last":
            return features.flatten(1, -2).transpose(1, 2)
        return features[:, self.prefix :].transpose(1, 2)

    def times(self, features: Tensor, f: Tensor) -> Tensor:
        """Every cell multiplied by its own number; f is B,P. Tokens before the patches pass as they are."""
        f = f.to(features.dtype)
        if self.kind == "channels first":
            return features * f.view(-1, 1, *self.grid)
        if self.kind == "channels last":
            return features * f.view(-1, *self.grid, 1)
        ones = f.new_ones(f.shape[0], self.prefix)
        return features * torch.cat([ones, f], dim=1).unsqueeze(-1)

    def times_channels(self, features: Tensor, sizes: Tensor) -> Tensor:
        """Every channel multiplied by its own number; sizes are B,k. Tokens before the patches pass as they are."""
        if self.kind == "channels first":
            return features * sizes.view(*sizes.shape, *[1] * len(self.grid))
        if self.kind == "channels last":
            return features * sizes.view(len(sizes), *[1] * len(self.grid), -1)
        return torch.cat([features[:, : self.prefix], features[:, self.prefix :] * sizes.unsqueeze(1)], dim=1)


def layout_of(features: Tensor, batch: Tensor, grids: Sequence[tuple[int, ...]] = ()) -> Layout | None:
    """Read off the shapes which axes are space: the ones whose proportions are the input's."""
    space = tuple(batch.shape[-(features.ndim - 2) :]) if features.ndim > 2 else ()
    shape = tuple(features.shape)
    if features.ndim == 3 and batch.ndim >= 4:
        return _token_layout(shape[1], tuple(batch.shape[-2:]), grids)
    if features.ndim < 3 or features.ndim > batch.ndim:
        return None
    first, last = shape[2:], shape[1:-1]
    if stretch(last, space) < 0.2 and stretch(first, space) > stretch(last, space) + 0.5:
        return Layout("channels last", last)  # channels come first unless the shape plainly says otherwise
    return Layout("channels first", first)


def stretch(grid: Sequence[int], space: Sequence[int]) -> float:
    """How far a grid is from the input's proportions."""
    ratios = [math.log(s / g) for g, s in zip(grid, space, strict=True)]
    return max(ratios) - min(ratios) if len(ratios) > 1 else max(0.0, -ratios[0])


def _token_layout(length: int, space: tuple[int, ...], grids: Sequence[tuple[int, ...]]) -> Layout | None:
    """Tokens are a grid of equal square patches after a few of another kind: the best fit, the fewest others."""
    fits = []
    for prefix in range(min(MOST_PREFIX, length - 2) + 1):
        cells = length - prefix
        middle = math.sqrt(cells * space[0] / space[1])
        for h in {math.floor(middle), math.ceil(middle)}:
            if h < 1 or cells % h or (grids and (h, cells // h) not in grids):
                continue
            w = cells // h
            whole = space[0] % h == 0 and space[1] % w == 0 and space[0] // h == space[1] // w
            off = abs(math.log((space[0] / h) / (space[1] / w)))
            if off < 0.25:
                fits.append((not whole, 0.0 if whole else round(off, 2), prefix, h, w))
    if not fits:
        return None
    _, _, prefix, h, w = min(fits)
    return Layout("tokens", (h, w), prefix)
