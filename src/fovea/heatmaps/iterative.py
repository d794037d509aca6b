"""L2-CAF where the head is not affine in the filter: a quasi-Newton search on the sphere, or the paper's descent.

On |f| = 1 the minimum of an affine loss is -g / |g|, with g its gradient anywhere. So the first step of the search goes
there, along the great circle, and the later ones where L-BFGS says, with the curvature that the steps have shown."""

import math
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from fovea.basics import announce, duration, is_new
from fovea.heatmaps import constraints
from fovea.heatmaps.look import Finding, Look
from fovea.heatmaps.targets import Score


@dataclass(frozen=True)
class Descent:
    """How to search for a filter, in at most `most` evaluations of the head. From the loss's `tangent`, on the sphere:
    until a step promises less than `tolerance` of what filters can change. From the paper's `uniform` random numbers,
    and for the other constraints: Adam at a `rate`, until the loss has changed by less than `tolerance` over `window`
    iterations, measured against the size of the output's own loss where `scale_free`, so that it means the same for
    every network."""

    rate: float = 0.1
    tolerance: float = 1e-7
    window: int = 50
    most: int = 200
    scale_free: bool = True
    start: Literal["tangent", "uniform"] = "tangent"
    seed: int = 0

    @staticmethod
    def paper() -> "Descent":
        """As the paper descends (3.1)."""
        return Descent(rate=0.5, tolerance=1e-5, most=1000, scale_free=False, start="uniform")


PAPER = Descent.paper()
TRIED = 10  # iterations that show how long the others take
LONG = 10.0  # seconds that are announced
TRIALS = 5  # evaluations after which the best of the starts goes on alone
MANY, FEWER = 24, {6: 4, 12: 1}  # starts where an evaluation is cheap; after how many evaluations how many go on
AT_ONCE = 16  # pictures with so many starts
MEMORY = 8  # steps whose curvature is remembered
STALE = 6  # evaluations over which STALLED tolerances of what was gained before have to be gained
STALLED, STALLED_OF_MANY = 1e3, 3e4
SHORTEST = 1e-5  # angle


def descend(
    look: Look, loss: Score, tangent: Tensor | None, scale: Tensor, constraint: str, how: Descent, whole: bool
) -> Finding:
    """Minimize loss(FT(x, f)) over the constraint, every picture of the batch at once, one frame after the other.
    `tangent` (B,P) is a slope to start against, `scale` (B) the size of the loss."""
    filters, losses, most = [], [], 0
    for step in look.each_step():
        slope, size = None if tangent is None else look.at_step(tangent, step), look.at_step(scale, step)
        f, reached, iterations = _descend(look, loss, slope, size, constraint, how, whole, step)
        filters.append(f)
        losses.append(reached)
        most = max(most, iterations)
    f = look.join(filters)
    through = whole or look.opened.whole
    note = "each iteration ran the whole network: its head cannot be run alone" if look.opened.whole else ""
    return Finding(f, f, "vanilla" if through else "iterative", look.join(losses), most, note)


def by_steps_on_the_sphere(constraint: str, how: Descent) -> bool:
    """Whether a filter is searched for so, and not by Adam."""
    return constraint == "l2" and how.start == "tangent"


def _descend(
    look: Look, loss: Score, slope: Tensor | None, scale: Tensor, constraint: str, how: Descent, whole: bool, step: int
) -> tuple[Tensor, Tensor, int]:
    if scale.dtype in (torch.float16, torch.bfloat16):  # the network may be in half precision; the descent is not
        slope, scale = None if slope is None else slope.float(), scale.float()
    head = _Head(look, loss, step, whole)
    if slope is None or by_steps_on_the_sphere(constraint, how):
        return _search(head, slope, scale, how)
    return _adam(head, slope, scale, constraint, how)


@dataclass(frozen=True)
class _Head:
    """The loss as a function of the filters of every picture; or of some pictures, or of several filters for each."""

    look: Look
    loss: Score
    step: int
    whole: bool
    pictures: Tensor | None = None  # those of the batch that the filters are for, in its order; None: all
    copies: int = 1  # filters for each: of all of them the first, of all the second, ...
    output: Tensor | None = None  # of the whole batch

    @property
    def separable(self) -> bool:
        return self.look.opened.separable and not self.whole

    def of(self, pictures: Tensor, copies: int = 1) -> "_Head":
        """Of some pictures. What the head reads of them is copied, once."""
        every = len(pictures) == len(self.look.output)
        if every and copies == 1:
            return replace(self, pictures=None, copies=1)
        pictures = pictures.to(self.look.output.device)
        look = Look(self.look.opened.take(pictures.repeat(copies))) if self.separable else self.look
        some = None if every else pictures
        return replace(self, look=look, pictures=some, copies=copies, output=self.look.output.detach())

    def __call__(self, f: Tensor) -> Tensor:
        """R,P to R."""
        parts = [f] if self.separable else f.chunk(self.copies)
        out = torch.cat([self.look.filtered(part, self.step, self.whole) for part in parts])
        return torch.cat([self._loss_of(part) for part in out.chunk(self.copies)]).to(f.dtype)

    def _loss_of(self, out: Tensor) -> Tensor:
        """A loss is of the whole batch: the other pictures are as they were."""
        if self.pictures is None or self.output is None:
            return self.loss(out)
        return self.loss(self.output.index_copy(0, self.pictures, out.to(self.output.dtype)))[self.pictures]

    def sloped(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and its gradient, R,1 and R,P, of filters on the CPU, where steps are worked out: these are few
        numbers, and a device takes longer to be told what to do with them. No other gradient is taken."""
        with torch.enable_grad():
            f = f.detach().to(self.look.output.device).requires_grad_()
            loss = self(f)
            (slope,) = torch.autograd.grad(loss.sum(), f)
        both = torch.cat([loss.detach().unsqueeze(1), slope], 1).cpu()  # to wait once
        return both[:, :1], both[:, 1:]


@dataclass
class _Search:
    """Where a search is, row by row."""

    f: Tensor  # R,P
    loss: Tensor  # R,1
    slope: Tensor  # R,P
    ways: Tensor  # R,M,P: steps that were tried,
    turns: Tensor  # R,M,P: and how the slope on the sphere changed along them
    bend: Tensor  # R,1: the inverse curvature of the last
    reach: Tensor  # R,1: the longest step that is trusted
    past: Tensor  # R,K: the losses so far

    def take(self, rows: Tensor) -> "_Search":
        return _Search(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def along(self) -> Tensor:
        """The slope on the sphere."""
        return self.slope - _dot(self.slope, self.f) * self.f

    def step(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where to go: a direction of unit length, the angle, and what it should gain."""
        pull, along = -_dot(self.slope, self.f), self.along
        steep = along.norm(dim=1, keepdim=True)
        power = -along / steep.clamp(min=torch.finfo(steep.dtype).tiny)
        angle, gain = torch.atan2(steep, pull), self.slope.norm(dim=1, keepdim=True) - pull
        if self.ways.shape[1]:
            d = self._quasi_newton(along)
            d = d - _dot(d, self.f) * self.f
            length, fall = d.norm(dim=1, keepdim=True), -_dot(d, along)
            curved = (fall > 0) & (self.bend > 0)
            power = torch.where(curved, d / length.clamp(min=torch.finfo(length.dtype).tiny), power)
            angle, gain = torch.where(curved, length.atan(), angle), torch.where(curved, fall / 2, gain)
        return power, torch.minimum(angle, self.reach), gain

    def _quasi_newton(self, along: Tensor) -> Tensor:
        """-H g with L-BFGS's H in its compact form (Byrd, Nocedal and Schnabel 1994, Eq. 3.1)."""
        s, y, bend = self.ways, self.turns, self.bend.unsqueeze(2)
        g = along.unsqueeze(2)  # R,P,1
        sy, yy, sg, yg = s @ y.mT, y @ y.mT, s @ g, y @ g
        diagonal = sy.diagonal(dim1=1, dim2=2)
        lost = torch.diag_embed((diagonal == 0).to(sy.dtype))  # pairs that were of no use are zero
        upper = sy.triu() + lost
        p = torch.linalg.solve_triangular(upper, sg, upper=True)
        q = diagonal.unsqueeze(2) * p + bend * (yy @ p - yg)
        q = torch.linalg.solve_triangular(upper.mT, q, upper=False)
        direction: Tensor = -(bend * (g - y.mT @ p) + s.mT @ q).squeeze(2)
        return direction

    def reached(self, f: Tensor, angle: Tensor, loss: Tensor, slope: Tensor) -> "_Search":
        """After another point was tried: it is kept if it is better, and what it says of the curvature in any case."""
        there = slope - _dot(slope, f) * f
        way, turn = f - self.f, there - self.along
        product = _dot(way, turn)
        useful = product > 1e-6 * way.norm(dim=1, keepdim=True) * turn.norm(dim=1, keepdim=True)
        bend = torch.where(useful, product / _dot(turn, turn), self.bend)
        way, turn = torch.where(useful, way, 0.0), torch.where(useful, turn, 0.0)
        better = loss < self.loss
        return _Search(
            torch.where(better, f, self.f),
            torch.where(better, loss, self.loss),
            torch.where(better, slope, self.slope),
            torch.cat([self.ways, way.unsqueeze(1)], 1)[:, -MEMORY:],
            torch.cat([self.turns, turn.unsqueeze(1)], 1)[:, -MEMORY:],
            bend,
            torch.where(better, torch.maximum(self.reach, 2 * angle), angle / 2),
            torch.cat([self.past, torch.minimum(loss, self.loss)], 1),
        )

    def is_over(self, gain: Tensor, tolerance: float, stalled: float) -> Tensor:
        """R: is there nothing more to gain that could be seen, or has long nothing been gained?"""
        size = tolerance * self.slope.norm(dim=1, keepdim=True)
        over = (gain <= size + 4 * torch.finfo(self.loss.dtype).eps * self.loss.abs()) | (self.reach < SHORTEST)
        if self.past.shape[1] > STALE:
            gained = self.past[:, :1] - self.loss
            over = over | (self.past[:, -1 - STALE, None] - self.loss <= stalled * tolerance * gained)
        result: Tensor = over.squeeze(1)
        return result


def _search(head: _Head, tangent: Tensor | None, scale: Tensor, how: Descent) -> tuple[Tensor, Tensor, int]:
    """From several starts at once; after some steps only the best of them go on. Where the head was folded an
    evaluation costs little, and its loss has many minima (VGG's linear layers): MANY."""
    device, scale, tangent = scale.device, scale.cpu(), None if tangent is None else tangent.cpu()
    starts, plan = _starts(head, tangent, scale, how)  # S,N,P
    pictures = torch.arange(len(scale))
    if len(starts) < MANY or len(scale) <= AT_ONCE:
        f, loss, evaluations = _search_from(head, pictures, starts, plan, how)
        return f.to(device), loss.to(device), evaluations
    parts = [_search_from(head, some, starts[:, some], plan, how) for some in torch.split(pictures, AT_ONCE)]
    filters, losses, counts = zip(*parts, strict=True)
    return torch.cat(filters).to(device), torch.cat(losses).to(device), max(counts)


def _starts(head: _Head, tangent: Tensor | None, scale: Tensor, how: Descent) -> tuple[Tensor, dict[int, int]]:
    """Filters to start from, and how many of them are left after how many evaluations."""
    n, cells, opened = len(scale), head.look.opened.layout.cells, head.look.opened
    even = scale.new_full((n, cells), cells**-0.5)
    generator = torch.Generator().manual_seed(how.seed)
    random = torch.rand(1, cells, generator=generator).to(scale).expand(n, -1)
    known = [even, random] if tangent is None else [even, random, torch.where(tangent.any(1, True), -tangent, even)]
    starts = torch.stack([start / start.norm(dim=1, keepdim=True) for start in known])
    if opened.fold is None:
        return starts, {TRIALS: 1}
    random = torch.randn(MANY - len(starts), 1, cells, generator=generator).to(scale)
    random = (random / random.norm(dim=2, keepdim=True)).expand(-1, n, -1)
    return torch.cat([starts, random]), FEWER


def _search_from(
    head: _Head, pictures: Tensor, starts: Tensor, plan: dict[int, int], how: Descent
) -> tuple[Tensor, Tensor, int]:
    n, f, look = len(pictures), starts.flatten(0, 1), head.look
    some = head.of(pictures, len(starts))
    none, ones = f.new_zeros(len(f), 0, f.shape[1]), f.new_ones(len(f), 1)
    loss, slope = some.sloped(f)
    at = _Search(f, loss, slope, none, none, 0 * ones, math.pi * ones, loss)
    found, reached, rows = f[:n].clone(), loss[:n, 0].clone(), torch.arange(n, device=f.device)
    begun, evaluation = perf_counter(), 1
    look.tell(1, how.most)
    while evaluation < how.most:
        direction, angle, gain = at.step()
        if evaluation > 1:
            over = at.is_over(gain, how.tolerance, STALLED if len(starts) < MANY else STALLED_OF_MANY)
            left = n - int(over[_best(at, n, 1)].sum()) if some.copies > 1 else len(over) - int(over.sum())
            if not left:
                break
            if some.copies == 1 and 2 * left <= len(over) and head.separable:  # pictures leave when they are done
                found[rows], reached[rows] = at.f, at.loss.squeeze(1)
                keep = (~over).nonzero().squeeze(1)
                at, rows, direction, angle = at.take(keep), rows[keep], direction[keep], angle[keep]
                some = head.of(pictures[rows])
        f = angle.cos() * at.f + angle.sin() * direction
        f = f / f.norm(dim=1, keepdim=True)
        at, evaluation = at.reached(f, angle, *some.sloped(f)), evaluation + 1
        look.tell(evaluation, how.most)
        if evaluation % TRIED == 0:
            _announce(look, (perf_counter() - begun) / evaluation * how.most * look.steps, how.most)
        fewer = plan.get(evaluation, some.copies)
        if fewer < some.copies:
            at, some = at.take(_best(at, n, fewer)), head.of(pictures, fewer)
    look.tell(how.most, how.most)
    at = at.take(_best(at, len(rows), 1))
    found[rows], reached[rows] = at.f, at.loss.squeeze(1)
    return found, reached, evaluation


def _best(at: _Search, n: int, count: int) -> Tensor:
    """The rows of the best searches for each picture."""
    rows: Tensor = at.loss.view(-1, n).topk(count, dim=0, largest=False).indices * n
    return (rows + torch.arange(n, device=rows.device)).flatten()


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1, keepdim=True)


def _adam(head: _Head, tangent: Tensor, scale: Tensor, constraint: str, how: Descent) -> tuple[Tensor, Tensor, int]:
    grid, look = head.look.opened.layout.grid, head.look
    project = constraints.CONSTRAINTS[constraint]
    v = constraints.start(constraint, _start(head, tangent, how), grid).requires_grad_()
    scale = torch.where((scale > 0) & how.scale_free, scale, 1.0)
    optimizer = torch.optim.Adam([v], lr=how.rate)
    history: list[Tensor] = []
    best, best_f = torch.full_like(scale, torch.inf), torch.zeros_like(tangent)
    begun = perf_counter()
    for iteration in range(1, how.most + 1):
        if iteration % TRIED == 0:
            _announce(look, (perf_counter() - begun) / iteration * how.most * look.steps, how.most)
        f = project(v, grid)
        value = head(f) / scale  # N
        (v.grad,) = torch.autograd.grad(value.sum(), v)
        with torch.no_grad():
            better = value < best
            best = torch.where(better, value, best)
            best_f = torch.where(better.unsqueeze(1), f, best_f)
        history.append(value.detach())
        look.tell(iteration, how.most)
        if len(history) > how.window and bool(((history[-1] - history[-1 - how.window]).abs() < how.tolerance).all()):
            look.tell(how.most, how.most)
            break
        optimizer.step()
    return best_f.detach(), best * scale, iteration


def _announce(look: Look, seconds: float, most: int) -> None:
    """That it takes long, once, as the first iterations show."""
    if seconds >= LONG and is_new(f"search of {look.doing}"):
        through = "the whole network" if look.opened.whole else "the layers after the cut"
        announce(
            f"{look.doing} has no exact solution here and searches for one: up to {most * look.steps:,} passes through "
            f"{through}, at most {duration(seconds)} for each batch of {len(look.output)}; gradcam takes one "
            "(--method gradcam)"
        )


def _start(head: _Head, tangent: Tensor, how: Descent) -> Tensor:
    if how.start == "uniform":
        generator = torch.Generator().manual_seed(how.seed)
        return torch.rand(tangent.shape, generator=generator).to(tangent)
    even = torch.full_like(tangent, tangent.shape[1] ** -0.5)
    downhill = -tangent / tangent.norm(dim=1, keepdim=True).clamp(min=torch.finfo(tangent.dtype).tiny)
    with torch.no_grad():
        losses = [head(f) for f in (even, downhill)]
    return torch.where((losses[1] < losses[0]).unsqueeze(1), downhill, even)
