"""L2-CAF where the head is not affine in the filter, as a graph: so many steps of the search on the sphere for every
picture, so that none depends on a number that only a run would tell.

The steps are those of `heatmaps.iterative`: along the great circle to where the loss's tangent has its minimum, then
where L-BFGS says, with the curvature that the steps have shown. There a picture is done when there is nothing more to
gain; here all take as many, and where a step gains nothing the filter stays."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fovea.graphs.tracing import Values
from fovea.heatmaps import Aim, Look

TRIALS, EVALUATIONS = 3, 14  # of the head: from every start, and of the best of them in all
MEMORY = 5  # steps whose curvature is remembered
TINY = torch.finfo(torch.float32).tiny


class _At(NamedTuple):
    """Where a search is, picture by picture."""

    f: Tensor  # N,P
    loss: Tensor  # N,1
    slope: Tensor  # N,P
    bend: Tensor  # N,1: the inverse curvature of the last step
    reach: Tensor  # N,1: the longest step that is trusted
    pairs: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()  # steps, how the slope changed along them, their product

    @property
    def along(self) -> Tensor:
        """The slope on the sphere."""
        return self.slope - _dot(self.slope, self.f) * self.f

    def step(self) -> tuple[Tensor, Tensor]:
        """A direction of unit length, and the angle."""
        along = self.along
        steep = _length(along)
        direction, angle = -along / steep.clamp(min=TINY), torch.atan2(steep, -_dot(self.slope, self.f))
        if self.pairs:
            d = self._quasi_newton(along)
            d = d - _dot(d, self.f) * self.f
            length = _length(d)
            curved = (_dot(d, along) < 0) & (self.bend > 0)
            direction = torch.where(curved, d / length.clamp(min=TINY), direction)
            angle = torch.where(curved, length.atan(), angle)
        return direction, torch.minimum(angle, self.reach)

    def _quasi_newton(self, along: Tensor) -> Tensor:
        """-H g by L-BFGS's two loops (Nocedal and Wright, Algorithm 7.4); pairs that were of no use are zero."""
        q, shares = along, list[Tensor]()
        for way, turn, product in reversed(self.pairs):
            shares.append(torch.where(product > 0, _dot(way, q) / product.clamp(min=TINY), 0.0))
            q = q - shares[-1] * turn
        q = self.bend * q
        for (way, turn, product), share in zip(self.pairs, reversed(shares), strict=True):
            q = q + (share - torch.where(product > 0, _dot(turn, q) / product.clamp(min=TINY), 0.0)) * way
        return -q

    def next(self, sloped: Callable[[Tensor], tuple[Tensor, Tensor]]) -> "_At":
        """After another point was tried: it is kept if it is better, and what it says of the curvature in any case."""
        direction, angle = self.step()
        f = angle.cos() * self.f + angle.sin() * direction
        f = f / _length(f)
        loss, slope = sloped(f)
        way, turn = f - self.f, slope - _dot(slope, f) * f - self.along
        product = _dot(way, turn)
        useful = product > 1e-6 * _length(way) * _length(turn)
        pair = torch.where(useful, way, 0.0), torch.where(useful, turn, 0.0), torch.where(useful, product, 0.0)
        bend = torch.where(useful, product / _dot(turn, turn).clamp(min=TINY), self.bend)
        better = loss < self.loss
        reach = torch.where(better, torch.maximum(self.reach, 2 * angle), angle / 2)
        f, loss, slope = (torch.where(better, a, b) for a, b in ((f, self.f), (loss, self.loss), (slope, self.slope)))
        return _At(f, loss, slope, bend, reach, (*self.pairs, pair)[-MEMORY:])

    def best(self, other: "_At") -> "_At":
        """Picture by picture the search that got further; both took as many steps."""
        ahead = other.loss < self.loss
        best: _At = tree_map(lambda mine, theirs: torch.where(ahead, theirs, mine), self, other)
        return best


def searched(run: Any, evaluations: int = EVALUATIONS) -> Values:
    """The map of an L2CAF."""

    def values(look: Look, aim: Aim) -> Tensor:
        loss, tangent = run.loss(look, aim), run.tangent(look, aim).detach()

        def sloped(f: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                f = f.detach().requires_grad_()
                found = loss(look.opened.filtered(f))
                (slope,) = torch.autograd.grad(found.sum(), f)
            return found.detach().unsqueeze(1), slope

        even = torch.ones_like(tangent)
        found: _At | None = None
        for start in (even, torch.where(_length(tangent) > 0, -tangent, even)):
            f = start / _length(start)
            value, slope = sloped(f)
            at = _At(f, value, slope, torch.zeros_like(value), torch.full_like(value, math.pi))
            for _ in range(TRIALS - 1):
                at = at.next(sloped)
            found = at if found is None else found.best(at)
        assert found is not None
        for _ in range(evaluations - TRIALS):
            found = found.next(sloped)
        return found.f if run.signed else found.f.abs()

    return values


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1, keepdim=True)


def _length(a: Tensor) -> Tensor:
    return _dot(a, a).sqrt()
