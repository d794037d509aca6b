"""L2-CAF without iterations, where the head allows it, with the proof that it does.

A head is *affine in the filter* when FT(f) = b + M f: pooling and a linear layer are. Then Eq. 2 is a linear function
on a sphere and Eq. 1 a least-squares problem on a sphere, and both have their minimum in closed form. Nothing is
decided by the head's name: what a formula predicts for a random filter is compared with what the head really gives."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from fovea.heatmaps.look import Finding, Look
from fovea.heatmaps.targets import Score

MOST_ENTRIES = 50_000_000  # of M: a larger one (a segmentation's) takes more memory than iterating is worth
PRODUCTS = 9  # with G, that find the minimum to single precision; 8 do for every network that was tried
MOST_UNKNOWNS = 1024  # with more cells than this, a head evaluation a cell costs more than iterating


def tolerance(values: Tensor) -> float:
    """How far a prediction may be off, relative to the terms it is made of."""
    return max(5e-4, 8 * torch.finfo(values.dtype).eps)


def rounding(*values: Tensor) -> Tensor:
    """How far numbers of this size may be off by themselves."""
    return _grain(values[0].dtype) * reduce(torch.add, map(torch.abs, values))


def _grain(dtype: torch.dtype) -> float:
    eps = torch.finfo(dtype).eps
    return min(100 * eps, max(1e-4, 4 * eps))


def is_affine(look: Look, scores: Mapping[Any, tuple[Score, Tensor]]) -> bool:
    """Does every score, by its key, with its slope at f = 1 (B,P), follow its own tangent to a random filter?"""
    for key, (score, slope) in scores.items():
        if key not in look.straight:
            look.straight[key] = _along_tangent(look, score, slope.detach())
    dtype, limit = look.output.dtype, tolerance(look.output)

    def follows(here: Any, there: Any, change: Any, scale: Any) -> Any:
        return abs(there - here - change) <= limit * scale + _grain(dtype) * (abs(here) + abs(there))

    return all(look.holds(follows, *found) for key in scores for found in look.straight[key])


def _along_tangent(look: Look, score: Score, slope: Tensor) -> list[tuple[Tensor, ...]]:
    """Frame by frame the score at f = 1 and at a random filter, and by how much its tangent changes and could."""
    found = list[tuple[Tensor, ...]]()
    with torch.no_grad():
        for step in look.each_step():
            _, output = look.probe(step)
            _, way, length = look.random_filter(step)
            here, there, own = score(look.output), score(output), look.at_step(slope, step)
            found.append((here, there, own @ way[0], own.abs() @ length[0]))
    return found


def linear(look: Look, loss: Score, slope: Tensor, scores: Mapping[Any, tuple[Score, Tensor]]) -> Finding | None:
    """The minimum of a loss that is affine in each cell of f, or has a kink at 0 there; None where it is neither. L(f)
    = c + sum_p (u_p f_p where f_p > 0, v_p |f_p| where f_p < 0). An affine head has v = -u, and then f = -u / |u|. A
    ReLU between the filter and the pooling gives the general case: with m = min(u, v) the minimum on the sphere is
    (-m)+ / |(-m)+|, signed by the side that was smaller, or the one cell of least m if no m is negative. `scores` are
    what the loss is put together from, by their keys, to be proved affine once for all who use them."""
    start = loss(look.output).detach()
    if is_affine(look, scores):
        norm = slope.norm(dim=1, keepdim=True)
        flat = norm == 0
        f = torch.where(flat, slope.shape[1] ** -0.5, -slope / torch.where(flat, 1, norm))
        promised = (look.join([start] * look.steps) - slope.sum(1) - norm.squeeze(1)).detach()
        if _is_reached(look, loss, f, promised, slope, start):
            return Finding(f, -slope, "exact", promised)
    if look.differentiable:
        return None
    filters, losses = [], []
    for step in look.each_step():
        up = look.at_step(slope, step)
        found = _kinked(look, loss, up, step)
        if found is None:
            return None
        filters.append(found[0])
        losses.append(found[1])
    f, promised = look.join(filters), look.join(losses)
    return Finding(f, f, "exact", promised) if _is_reached(look, loss, f, promised, slope, start) else None


def _is_reached(look: Look, loss: Score, f: Tensor, promised: Tensor, slope: Tensor, start: Tensor) -> bool:
    """The last word of the proof: the filter found, put through the head, has the loss that the formula promised."""
    limit, grain = tolerance(f), _grain(start.dtype)

    def agrees(reached: Any, promised: Any, size: Any, start: Any) -> Any:
        return abs(reached - promised) <= limit * size + grain * (abs(reached) + abs(start))

    with torch.no_grad():
        reached = look.join([loss(look.filtered(look.at_step(f, step), step)) for step in look.each_step()])
    return look.holds(agrees, reached, promised, slope.detach().abs().sum(1), look.join([start] * look.steps))


def _kinked(look: Look, loss: Score, up: Tensor, step: int) -> tuple[Tensor, Tensor] | None:
    minus = torch.full_like(up, -1.0).requires_grad_()  # N,P
    at_minus = loss(look.filtered(minus, step))
    (gradient,) = torch.autograd.grad(at_minus.sum(), minus)
    down = -gradient
    start = loss(look.output).detach()
    constant = start - up.sum(1)
    r, output = look.probe(step)
    predicted = constant + (up * r.clamp(min=0) - down * r.clamp(max=0)).sum(1)
    scale = tolerance(output) * (up.abs() + down.abs()).sum(1)
    errors = (predicted - loss(output)).abs(), (constant + down.sum(1) - at_minus.detach()).abs()
    if not all(bool((error <= scale).all()) for error in errors):
        return None
    m = torch.minimum(up, down)
    weight = (-m).clamp(min=0)
    alone = torch.zeros_like(m).scatter(1, m.argmin(1, keepdim=True), 1.0)
    norm = weight.norm(dim=1, keepdim=True)
    size = torch.where(norm > 0, weight / norm.clamp(min=torch.finfo(m.dtype).tiny), alone)
    reached = constant + torch.where(norm.squeeze(1) > 0, -norm.squeeze(1), m.min(1).values)
    return torch.where(up <= down, size, -size), reached


def oblivious(look: Look) -> Finding | None:
    """Eq. 1 on the sphere: minimize |M (f - 1)|^2 with |f| = 1, where the head is affine; None where it is not."""
    if look.output.numel() * look.opened.layout.cells > MOST_ENTRIES:
        return None
    filters, losses, unique = [], [], True
    for step in look.each_step():
        matrix = _by_cell_alone(look) if look.opened.free and look.steps == 1 else None
        if matrix is None or not _explains(look, matrix, step):
            matrix = _by_column(look, step)
            if matrix is None or not _explains(look, matrix, step):
                return None
        f, loss, reached = by_power(matrix[0])
        if matrix[0].requires_grad or not look.holds(lambda reached: reached, reached):
            f, loss, one = on_the_sphere(matrix[0])
            unique = unique and one
        f = f.to(look.cells.dtype)
        if not _explains(look, matrix, step, f):
            return None
        filters.append(f)
        losses.append(loss.to(look.cells.dtype))
    f = look.join(filters)
    note = "the loss is zero and other filters reach it too: the shortest one is shown, filled up evenly"
    return Finding(f, f, "exact", look.join(losses), 0, "" if unique else note)


def at_the_pooling(look: Look) -> Finding:
    """Eq. 3 with the pooled features as V'(x): for heads that normalize after pooling, which undoes a common factor."""
    f, loss, _ = on_the_sphere(look.cells / look.opened.layout.cells)
    f = f.to(look.cells.dtype)
    note = "a normalization after the filter hides its size: compared at the pooled features, whatever follows them"
    return Finding(f, f, "exact", loss.to(f.dtype), 0, note)


def _by_cell_alone(look: Look) -> tuple[Tensor, Tensor] | None:
    """M (N,D,P) and b (D) if the head averages cells: each cell alone, as a map of one cell, gives its whole share."""
    layout = look.opened.layout
    if layout.kind == "tokens":
        return None
    cells = look.cells
    n, k, p = cells.shape
    alone = torch.cat([cells.transpose(1, 2).reshape(n * p, k), cells.new_zeros(1, k)])
    one = [1] * len(layout.grid)
    shaped = alone.view(-1, k, *one) if layout.kind == "channels first" else alone.view(-1, *one, k)
    try:
        with torch.set_grad_enabled(look.differentiable):
            outputs = look.opened.head(shaped).flatten(1)
    except (RuntimeError, ValueError, IndexError):
        return None
    if outputs.shape != (n * p + 1, look.output[0].numel()):
        return None  # the output's own size depends on the map's
    b = outputs[-1]
    return ((outputs[:-1] - b) / p).view(n, p, -1).transpose(1, 2), b


def _by_column(look: Look, step: int) -> tuple[Tensor, Tensor] | None:
    """M and b of any affine head: the column of a cell is what the output gains when that cell alone passes."""
    n, p = len(look.output), look.opened.layout.cells
    if p > MOST_UNKNOWNS:
        return None
    r, at_r = look.probe(step)
    with torch.set_grad_enabled(look.differentiable):
        zero = r.new_zeros(n, p)
        b = look.filtered(zero, step).flatten(1)  # N,D
        # affine heads add up: FT(r) + FT(1 - r) = FT(1) + FT(0). Cheaper to see than P columns
        rest = look.filtered((1 - r).expand(n, -1), step).flatten(1)
        gap = at_r.flatten(1) + rest - look.output.flatten(1) - b
        size = (look.output.flatten(1) - b).norm(dim=1) + (rest - b).norm(dim=1)
        if not bool((gap.norm(dim=1) <= tolerance(b) * size).all()):
            return None
        cells = torch.eye(p, device=r.device, dtype=r.dtype)
        columns = [look.filtered(zero + cells[i], step).flatten(1) - b for i in range(p)]
    return torch.stack(columns, dim=2), b


def _explains(look: Look, found: tuple[Tensor, Tensor], step: int, best: Tensor | None = None) -> bool:
    """The proof for the whole output: b + M f for a random filter and the open one, and then for the one found."""
    matrix, b = found
    with torch.no_grad():
        r, at_r = look.probe(step)
        if best is None:
            filters, length = torch.stack([r, torch.ones_like(r)], dim=2), r.shape[1] ** 0.5
            outputs = torch.stack([at_r.flatten(1), look.output.flatten(1)], dim=2)  # N,D,2
        else:
            filters, length = best.unsqueeze(2), 1.0
            outputs = look.filtered(best, step).flatten(1).unsqueeze(2)
        gaps = (b.unsqueeze(-1) + matrix @ filters - outputs).norm(dim=1)  # N,2
        limit, size = tolerance(outputs), matrix.flatten(1).norm(dim=1)

    def explains(gaps: Any, size: Any) -> Any:
        return (gaps[:, 0] <= limit * size) & (gaps[:, -1] <= limit * size * length)

    return look.holds(explains, gaps, size)


def by_power(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The minimum of `on_the_sphere` by a few products: filters, losses, and N: is it this, and the only one? With G =
    M^T M a minimum has G (1 - f) = x f, x >= 0, and is the only one where x > 0. It stays where it is under f <- c f +
    G (1 - f), scaled to |f| = 1, and what is off shrinks by |c - L| / (c + x) each time, L being G's eigenvalues: by 7
    where cells are much alike, as after a ReLU, for there x is close to (sqrt P - 1) times the first."""
    m = matrix.detach().float() if matrix.dtype in (torch.float16, torch.bfloat16) else matrix.detach()
    wide = m.shape[1] < m.shape[2]
    gram = m @ m.mT if wide else m.mT @ m
    top = gram.flatten(1).norm(dim=1).view(-1, 1, 1)
    start = m.mT @ m.sum(2, keepdim=True) if wide else gram.sum(2, keepdim=True)  # N,P,1: G 1
    f, c = start / start.norm(dim=1, keepdim=True), top / 4
    if not wide:
        gram.diagonal(dim1=1, dim2=2).sub_(c.squeeze(2))  # G - c

    def step(f: Tensor) -> Tensor:
        """G 1 - (G - c) f."""
        if wide:
            return torch.baddbmm(torch.addcmul(start, c, f), m.mT, m @ f, alpha=-1)
        return torch.baddbmm(start, gram, f, alpha=-1)

    for _ in range(PRODUCTS):
        f = step(f)
        f = f / f.norm(dim=1, keepdim=True)
    left = torch.addcmul(step(f), c, f, value=-1)  # G (1 - f)
    x = (left * f).sum(1, keepdim=True)
    off = (left - x * f).norm(dim=1, keepdim=True)
    reached = (x > top * _noise(matrix)) & (off <= 64 * torch.finfo(m.dtype).eps * x)
    return f.squeeze(2), ((1 - f) * left).sum((1, 2)), reached.flatten()


def _noise(matrix: Tensor) -> float:
    """Up to which share of the largest an eigenvalue of M^T M may be no more than rounding."""
    return {torch.float64: 1e-13 * max(matrix.shape[1:]), torch.float32: 1e-6}.get(matrix.dtype, 1e-3)


def on_the_sphere(matrix: Tensor) -> tuple[Tensor, Tensor, bool]:
    """argmin |M (f - 1)|^2 on |f| = 1, for M of N,D,P: filters N,P, losses N, and whether each is the only minimum.
    With M = U S V^T and L = S^2, f = V L / (L + x) V^T 1, where x >= 0 makes |f| = 1: one root of a falling
    function."""
    m = matrix.double()
    wide = m.shape[1] < m.shape[2]
    fixed = m.detach()
    values, vectors = torch.linalg.eigh(fixed @ fixed.mT if wide else fixed.mT @ fixed)  # N,R  N,*,R
    top = values[:, -1:].clamp(min=torch.finfo(values.dtype).tiny)
    real = values > top * _noise(matrix)
    values = torch.where(real, values, 1.0)
    if wide:
        vectors = fixed.mT @ vectors / values.sqrt().unsqueeze(1)
    a = torch.where(real, vectors.sum(1), 0.0)  # N,R: V^T 1 on the row space of M
    shortest = a.square().sum(1)
    unique = (shortest > 1).unsqueeze(1)
    x = _root(values, a).unsqueeze(1)
    share = torch.where(unique, values / (values + x), 1.0)
    f = (vectors * (a * share).unsqueeze(1)).sum(2)
    # a zero loss with length to spare: fill up along 1's part outside the row space, which the output does not see
    spare = 1 - (vectors * a.unsqueeze(1)).sum(2)
    fill = spare * ((1 - shortest).clamp(min=0) / spare.square().sum(1).clamp(min=1e-300)).sqrt().unsqueeze(1)
    f = torch.where(unique, f, f + fill)
    loss = (values * (a * (share - 1)).square()).sum(1)
    if matrix.requires_grad and bool(unique.all()):
        f = _with_gradient(m, x)
    return f / f.norm(dim=1, keepdim=True), loss.detach(), bool(unique.all())


def _with_gradient(m: Tensor, x: Tensor) -> Tensor:
    """The same f from its root, by solving: eigenvectors have no gradient where eigenvalues repeat."""
    h = m.mT @ m
    right, one = h.sum(2, keepdim=True), torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
    f = torch.linalg.solve(h + x.unsqueeze(2) * one, right)
    square = f.square().sum((1, 2), keepdim=True)
    fall = (f * torch.linalg.solve(h + x.unsqueeze(2) * one, f)).sum((1, 2), keepdim=True)
    # a Newton step from the root moves nothing, and knows how the root would move
    x_again = x.unsqueeze(2) + square / fall * (square.sqrt() - 1)
    found: Tensor = torch.linalg.solve(h + x_again * one, right)
    return found.squeeze(2)


def _root(values: Tensor, a: Tensor) -> Tensor:
    """x >= 0 with |a L / (L + x)| = 1, by Newton's method on 1 / |f|, from the left, where it cannot overshoot."""
    x = ((a.abs() - 1) * values).amax(1).clamp(min=0)
    for _ in range(60):
        shifted = values + x.unsqueeze(1)
        f = a * values / shifted
        square = f.square().sum(1)
        step = square / (f.square() / shifted).sum(1).clamp(min=1e-300) * (square.sqrt() - 1)
        x = (x + step).clamp(min=0)
        if bool((step.abs() <= 1e-13 * x).all()):
            break
    return x
