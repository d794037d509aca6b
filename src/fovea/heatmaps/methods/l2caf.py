"""L2-CAF: the filter of unit length that keeps what the network's output depends on (Taha et al. 2020)."""

import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from fovea.basics import BadChoice, DoesNotApply, nearest
from fovea.heatmaps import CONSTRAINTS, exact, method
from fovea.heatmaps.iterative import Descent, by_steps_on_the_sphere, descend
from fovea.heatmaps.look import Finding, Look, whole_output
from fovea.heatmaps.targets import Aim, Score, Weighted, weighing
from fovea.networks import Layout

MANY = 1000  # cells; the last maps of networks have 16 to 784


@method(
    "l2caf",
    about="the unit filter that keeps this class and drops the rest",
    paper="Taha et al. 2020",
    takes="one pass; 3 to 100 of the layers after the cut where these are not affine",
)
@method(
    "l2caf-sum",
    about="l2caf with the sum of the other classes, as printed in the paper",
    options={"others": "sum"},
    paper="Taha et al. 2020",
    takes="as l2caf",
)
@method(
    "l2caf-signed",
    about="l2caf with evidence against the class below zero",
    options={"signed": True},
    paper="Taha et al. 2020",
    takes="as l2caf",
)
@method(
    "l2caf-oblivious",
    about="the unit filter that keeps the output",
    options={"oblivious": True},
    oblivious=True,
    paper="Taha et al. 2020",
    takes="as l2caf",
)
@dataclass(frozen=True)
class L2CAF:
    """Minimize a loss of the filtered output FT(x, f) over filters with |f| = 1; the map is |f|, or f when `signed`.

    A class c (Eq. 2): L = -FT_c + the other classes' FT_i, their `others="sum"` as printed in the paper, or their
    `"mean"`, which does not care about a number added to every logit. Any other score: L = -score.
    The whole output (Eq. 1, `oblivious` or target="output"): L = |NT(x) - FT(x, f)|^2.

    `solver="auto"` is exact where the head is proved affine in f and iterates on the head elsewhere; "vanilla" iterates
    through the whole network, for comparison."""

    others: Literal["sum", "mean"] = "mean"
    signed: bool = False
    oblivious: bool = False
    constraint: str = "l2"
    solver: Literal["auto", "exact", "iterative", "vanilla"] = "auto"
    descent: Descent = field(default_factory=Descent)

    def __post_init__(self) -> None:
        for given, choices in (
            (self.others, ("sum", "mean")),
            (self.constraint, tuple(CONSTRAINTS)),
            (self.solver, SOLVERS),
        ):
            if given not in choices:
                raise BadChoice(f"l2caf knows {', '.join(choices)}; not {given!r}{nearest(str(given), choices)}")

    @property
    def name(self) -> str:
        parts = ["l2caf"]
        parts += ["oblivious"] if self.oblivious else ["sum"] if self.others == "sum" else []
        parts += [self.constraint] if self.constraint != "l2" else []
        parts += ["signed"] if self.signed else []
        parts += [self.solver] if self.solver != "auto" else []
        return "-".join(parts)

    def __call__(self, look: Look, aim: Aim) -> Finding:
        whole = self.oblivious or aim.score is None
        known = (look.doing, _kind(aim, whole)) in look.opened.curved  # that this head has to be searched
        may_be = self.constraint == "l2" and self.solver in ("auto", "exact") and look.is_finite
        finding = self._exact(look, aim, whole) if not known and may_be else None
        if finding is None:
            finding = self._iterate(look, aim, whole, known)
        return finding if self.signed else replace(finding, values=finding.values.abs())

    def _exact(self, look: Look, aim: Aim, whole: bool) -> Finding | None:
        finding = exact.oblivious(look) if whole else self._linear(look, aim)
        if finding is None and self.solver == "exact":
            raise DoesNotApply("the head is not affine in the filter, so there is no exact solution: use solver='auto'")
        return finding

    def _linear(self, look: Look, aim: Aim) -> Finding | None:
        scores = {key: (score, look.slope(score, key)) for key, (score, _) in self._terms(look, aim).items()}
        return exact.linear(look, self.loss(look, aim), self.tangent(look, aim), scores)

    def _iterate(self, look: Look, aim: Aim, whole: bool, known: bool) -> Finding:
        if look.differentiable:
            raise DoesNotApply("this head has no exact solution, and an iterated map has no gradient: use gradcam")
        if not bool(look.output.isfinite().all()):
            blank = torch.full_like(look.cells[:, 0], torch.nan)
            return Finding(blank, blank, "none", blank[:, 0])
        if whole:
            loss, tangent = different(look.output.detach()), None
            scale = look.join([look.output.detach().flatten(1).square().sum(1)] * look.steps)
            if self.constraint == "l2" and self.solver == "auto" and not known and _size_is_lost(look, loss):
                return exact.at_the_pooling(look)
            if not by_steps_on_the_sphere(self.constraint, self.descent):  # those start from an even filter
                tangent = -look.slope(whole_output, "sum").detach()
        else:
            loss, tangent = self.loss(look, aim), self.tangent(look, aim).detach()
            scale = tangent.norm(dim=1)
        self._say_that_it_takes_long(look.opened.layout)
        look.opened.curved.add(look.doing)
        if kind := _kind(aim, whole):
            look.opened.curved.add((look.doing, kind))
        if look.opened.fold is None and self.solver != "vanilla":
            look.opened = look.opened.folded()  # ready for many filters, for the methods and targets that follow too
        return descend(look, loss, tangent, scale, self.constraint, self.descent, self.solver == "vanilla")

    def _say_that_it_takes_long(self, layout: Layout) -> None:
        if layout.cells > MANY:
            warnings.warn(
                f"{self.name} has no exact solution at a layer of {' x '.join(map(str, layout.grid))} cells and "
                f"searches for one: up to {self.descent.most:,} times through all layers after it, for every batch, "
                "which may take minutes. Name a later layer, or use gradcam, which goes through them once",
                stacklevel=2,
            )

    def loss(self, look: Look, aim: Aim) -> Score:
        """Eq. 2 as a function of the filtered output."""
        score = aim.score or whole_output
        if aim.classes is None:
            return lambda out: -score(out)
        others = self._weight(look.output.shape[1])
        made = Weighted(partial(weighing, look.output, aim.classes, -1.0, others))
        return look.losses.setdefault((self.others, aim.key), made)

    def _weight(self, classes: int) -> float:
        """What each other class counts in Eq. 2."""
        return 1.0 if self.others == "sum" else 1 / max(classes - 1, 1)

    def _terms(self, look: Look, aim: Aim) -> dict[Any, tuple[Score, float]]:
        """The loss as scores with factors, by key: ones whose gradients other methods and targets use too, if any."""
        if aim.classes is None or look.output.shape[1] == 1:
            return {aim.key: (aim.score or whole_output, -1.0)}
        if look.aims == 1 and aim.key not in look.gradients:
            return {(self.others, aim.key): (self.loss(look, aim), 1.0)}
        weight = self._weight(look.output.shape[1])
        return {aim.key: (aim.score or whole_output, -1 - weight), "sum": (whole_output, weight)}

    @property
    def additive(self) -> bool:
        """Whether an affine head's tangent is all that a map needs."""
        return not self.oblivious and self.constraint == "l2" and self.solver in ("auto", "exact")

    def of_tangent(self, slope: Tensor) -> Finding:
        """Of a head that was proved affine: f = -u / |u|."""
        f = -slope / slope.norm(dim=1, keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
        return Finding(f if self.signed else f.abs(), -slope, "exact")

    def tangent(self, look: Look, aim: Aim) -> Tensor:
        """d L / d f at f = 1."""
        terms = [(look.slope(score, key), factor) for key, (score, factor) in self._terms(look, aim).items()]
        parts = [slope if factor == 1 else factor * slope for slope, factor in terms]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _kind(aim: Aim, whole: bool) -> str:
    """What is searched for in the same way whatever the batch; a score of the user's own is like no other."""
    return "output" if whole else "class" if aim.classes is not None else ""


def _size_is_lost(look: Look, loss: Score) -> bool:
    """Does an even filter give what the open network gives? Then a normalization follows, and Eq. 1 is blind."""
    p = look.opened.layout.cells
    even = torch.full((len(look.output), p), p**-0.5).to(look.output)
    with torch.no_grad():
        closed = loss(torch.zeros_like(look.output))
        return all(bool((loss(look.filtered(even, step)) <= 1e-4 * closed).all()) for step in look.each_step())


SOLVERS = ("auto", "exact", "iterative", "vanilla")


def different(wanted: Tensor) -> Score:
    """Eq. 1: the squared distance from the output that the open network gives."""
    return lambda out: (wanted - out).flatten(1).square().sum(1)
