"""RISE: randomized input sampling (Petsiuk et al. 2018), for any network."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import Bound
from fovea.heatmaps import Aim, Finding, Look, method
from fovea.heatmaps.pixels import at_frame, confidence, pixels_of

MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


@method(
    "rise",
    about="random masks, weighted by the confidence that they leave",
    costly=True,
    instead="gradcam",
    on="pixels",
    paper="Petsiuk et al. 2018",
    takes="1,000 passes; as many as there are masks",
    needs="an input to mask",
)
@dataclass(frozen=True)
class RISE:
    """S(p) = 1 / (E[M] N) sum_i f(I * M_i) M_i(p) - mean_i f(I * M_i), over N random masks M_i.

    The first term is the paper's Eq. 6, how confident the network is where pixel p is shown; the second, its confidence
    under any mask, puts what does not matter at 0. Masks are its section 3.2's: grids of `cells` x `cells`, each cell
    shown with a probability of `shown`, enlarged bilinearly and shifted at random; what is hidden is 0 after
    normalization, the mean gray. f is a class's probability, as in the paper; of an embedding, the cosine to that of
    the whole picture. The same masks, drawn from `seed`, are used for every picture."""

    masks: Annotated[int, Bound(1, 1_000_000)] = 1000
    cells: Annotated[int, Bound(1, 256)] = 7
    shown: Annotated[float, Bound(0.01, 0.99, real=True)] = 0.5
    seed: Annotated[int, Bound(0, 2**32)] = 0

    name = "rise"

    def passes(self, look: Look) -> int:
        return self.masks

    def __call__(self, look: Look, aim: Aim) -> Finding:
        pixels = pixels_of(look)
        space = tuple(pixels.shape[2:])
        found = [self._map(look, aim, look.at_step(pixels, step), step) for step in look.each_step()]
        raw = look.join(found)  # B,P
        return Finding(raw, raw, solver=f"{self.masks:,} masks", grid=space)

    def _map(self, look: Look, aim: Aim, pixels: Tensor, step: int) -> Tensor:
        """That of one frame: N,P."""
        parts = (at_frame(look, part * pixels, step) for part in self.drawn(pixels, look.at_once))
        scores = look.scores(parts, aim, self.masks, confidence(look, aim))  # M,N
        total, start = pixels.new_zeros(len(pixels), pixels[0, 0].numel()), 0
        for part in self.drawn(pixels, look.at_once):
            rows = part.flatten(1)  # m,P
            total += scores[start : start + len(rows)].T.to(rows) @ rows
            start += len(rows)
        return total / (self.shown * self.masks) - scores.mean(0).unsqueeze(1).to(total)

    def drawn(self, pixels: Tensor, at_once: int) -> Iterator[Tensor]:
        """The masks, some at a time: m,1,1,*space."""
        space = pixels.shape[2:]
        generator = torch.Generator().manual_seed(self.seed)
        grids = torch.rand(self.masks, 1, *[self.cells] * len(space), generator=generator) < self.shown
        sides = [-(-side // self.cells) for side in space]  # of a cell, in pixels
        shifts = torch.stack([torch.randint(side, (self.masks,), generator=generator) for side in sides], 1)
        for start in range(0, self.masks, at_once):
            some = grids[start : start + at_once].to(pixels)
            large = F.interpolate(some, [(self.cells + 1) * side for side in sides], mode=MODES[len(space)])
            rows = zip(large, shifts[start : start + at_once].tolist(), strict=True)
            yield torch.stack([mask[(..., *_window(shift, space))] for mask, shift in rows]).unsqueeze(1)


def _window(shift: list[int], space: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(first, first + side) for first, side in zip(shift, space, strict=True))
