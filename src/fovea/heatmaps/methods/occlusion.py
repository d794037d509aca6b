"""Occlusion: slide a gray window over the picture (Zeiler & Fergus 2014), for any network."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated

import torch
from torch import Tensor

from fovea.basics import Bound
from fovea.heatmaps import Aim, Finding, Look, method
from fovea.heatmaps.pixels import at_frame, confidence, pixels_of

Window = tuple[slice, ...]  # of N,*space


@method(
    "occlusion",
    about="what the confidence loses under a sliding gray window",
    costly=True,
    instead="gradcam",
    on="pixels",
    paper="Zeiler and Fergus 2014",
    takes="121 passes; as many as there are windows",
    needs="an input to mask",
)
@dataclass(frozen=True)
class Occlusion:
    """S(p) = the mean of f(I) - f(I hidden in w) over the windows w that hold pixel p. `window` and `stride` are in
    pixels of the network's input: a sixth of its shorter side, and half a window, if not given. What is hidden is 0
    after normalization, the mean gray. f is a class's probability; of an embedding, the cosine to that of the whole
    picture."""

    window: Annotated[int, Bound(1, 10_000)] | None = None
    stride: Annotated[int, Bound(1, 10_000)] | None = None

    name = "occlusion"

    def passes(self, look: Look) -> int:
        return len(list(self.windows(tuple(pixels_of(look).shape[2:]))))

    def __call__(self, look: Look, aim: Aim) -> Finding:
        pixels = pixels_of(look)
        space = tuple(pixels.shape[2:])
        windows = list(self.windows(space))
        score, found = confidence(look, aim), []
        with torch.no_grad():
            before = score(look.output.detach())  # N
        for step in look.each_step():
            own = look.at_step(pixels, step)
            parts = (at_frame(look, part, step) for part in _hidden(own, windows, look.at_once))
            lost = before - look.scores(parts, aim, len(windows), score)  # W,N
            total, count = own.new_zeros(len(own), *space), own.new_zeros(1, *space)
            for window, loss in zip(windows, lost.to(own), strict=True):
                total[window] += loss.view(-1, *[1] * len(space))
                count[window] += 1
            found.append((total / count).flatten(1))
        raw = look.join(found)  # B,P
        return Finding(raw, raw, solver=f"{len(windows):,} windows", grid=space)

    def windows(self, space: tuple[int, ...]) -> Iterator[Window]:
        """From edge to edge: the last ones begin a stride after the others and end where the picture does."""
        side = min(self.window or -(-min(space) // 6), *space)
        stride = min(self.stride or max(side // 2, 1), side)
        starts = [range(0, length - side + stride, stride) for length in space]
        for corner in product(*starts):
            yield slice(None), *(slice(first, first + side) for first in corner)


def _hidden(pixels: Tensor, windows: list[Window], at_once: int) -> Iterator[Tensor]:
    """The pictures with one window after the other hidden: m,N,C,*space."""
    for start in range(0, len(windows), at_once):
        some = windows[start : start + at_once]
        part = pixels.repeat(len(some), *[1] * pixels.ndim)
        for version, window in zip(part, some, strict=True):
            version[window[:1] + window] = 0
        yield part
