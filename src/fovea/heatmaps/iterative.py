"""L2-CAF by gradient descent (paper 3.1, 3.2), on the head alone (Eq. 3) or through the whole network."""

from dataclasses import dataclass
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
    """How to descend: Adam, until the loss has changed by less than `tolerance` over `window` iterations.

    `scale_free` measures that change against the size of the output's own loss, so that it means the same for every
    network. `start` is the minimum of the loss's tangent, or the paper's uniform random numbers.
    """

    rate: float = 0.1
    tolerance: float = 1e-6
    window: int = 50
    most: int = 1000
    scale_free: bool = True
    start: Literal["tangent", "uniform"] = "tangent"
    seed: int = 0

    @staticmethod
    def paper() -> "Descent":
        """As the paper descends (3.1)."""
        return Descent(rate=0.5, tolerance=1e-5, scale_free=False, start="uniform")


PAPER = Descent.paper()
TRIED = 10  # iterations that show how long the others take
LONG = 10.0  # seconds that are announced


def descend(
    look: Look, loss: Score, tangent: Tensor, scale: Tensor, constraint: str, how: Descent, whole: bool
) -> Finding:
    """Minimize loss(FT(x, f)) over the constraint, every picture of the batch at once, one frame after the other.

    `tangent` (B,P) is a slope to start against, `scale` (B) the size of the loss.
    """
    filters, losses, most = [], [], 0
    for step in look.each_step():
        own, size = look.at_step(tangent, step), look.at_step(scale, step)
        f, reached, iterations = _descend(look, loss, own, size, constraint, how, whole, step)
        filters.append(f)
        losses.append(reached)
        most = max(most, iterations)
    f = look.join(filters)
    through = whole or look.opened.whole
    note = "each iteration ran the whole network: its head cannot be run alone" if look.opened.whole else ""
    return Finding(f, f, "vanilla" if through else "iterative", look.join(losses), most, note)


def _descend(
    look: Look, loss: Score, tangent: Tensor, scale: Tensor, constraint: str, how: Descent, whole: bool, step: int
) -> tuple[Tensor, Tensor, int]:
    grid = look.opened.layout.grid
    project = constraints.CONSTRAINTS[constraint]
    if tangent.dtype in (torch.float16, torch.bfloat16):
        tangent, scale = tangent.float(), scale.float()  # the network may be in half precision; the descent is not
    v = constraints.start(constraint, _start(look, loss, tangent, how, step), grid).requires_grad_()
    scale = torch.where((scale > 0) & how.scale_free, scale, 1.0)
    optimizer = torch.optim.Adam([v], lr=how.rate)
    history: list[Tensor] = []
    best, best_f = torch.full_like(scale, torch.inf), torch.zeros_like(tangent)
    begun = perf_counter()
    for iteration in range(1, how.most + 1):
        if iteration % TRIED == 0:
            _announce(look, (perf_counter() - begun) / iteration * how.most * look.steps, how.most * look.steps)
        f = project(v, grid)
        value = loss(look.filtered(f, step, whole).to(f.dtype)) / scale  # N
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
            f"{look.doing} has no exact solution here and searches for one: up to {most:,} passes through {through}, "
            f"at most {duration(seconds)} for each batch of {len(look.output)}; gradcam takes one (--method gradcam)"
        )


def _start(look: Look, loss: Score, tangent: Tensor, how: Descent, step: int) -> Tensor:
    if how.start == "uniform":
        generator = torch.Generator().manual_seed(how.seed)
        return torch.rand(tangent.shape, generator=generator).to(tangent)
    even = torch.full_like(tangent, tangent.shape[1] ** -0.5)
    downhill = -tangent / tangent.norm(dim=1, keepdim=True).clamp(min=torch.finfo(tangent.dtype).tiny)
    with torch.no_grad():
        losses = [loss(look.filtered(f, step)) for f in (even, downhill)]
    return torch.where((losses[1] < losses[0]).unsqueeze(1), downhill, even)
