"""One batch seen once: the trunk's pass, the output, and the head's gradients, shared by every method and target."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from fovea.basics import BadChoice, DoesNotApply, tell
from fovea.heatmaps.targets import Aim, Score, Weighted
from fovea.networks import Network, Reader, is_far
from fovea.networks.cutting import Opened

MOST_ROWS = {"cpu": 4, "cuda": 64}  # changed inputs that pass the network at once: what memory is quickest with


@dataclass(frozen=True)
class Finding:
    """What a method found for one target: B,P values with B = N or N*T, and how. P are the cells of the cut, or those
    of a `grid` that spans the network's input, as its pixels do."""

    values: Tensor
    raw: Tensor  # before rectification, for the diagnosis of a blank map
    solver: str = "closed form"
    loss: Tensor | None = None  # B
    iterations: int = 0
    note: str = ""  # what the reader should know: not unique, run through the whole network, ...
    grid: tuple[int, ...] | None = None  # None: the cells of the cut


@dataclass
class Look:
    """A batch at the cut, as methods see it; what one of them works out is there for the next. `cells` are the
    features, B,k,P: pictures (or frames, picture by picture), channels, cells. `output` is what the network made of
    them, N,C. `gradient`, `slope` and `channels_weighted` are of a score of the output and kept by its key
    (`score_of(aim)` gives both); `filtered` is the output with cells turned down; `input` and `scores` are for methods
    that change the network's input. `opened` has the head itself and the layout of the cells."""

    opened: Opened
    differentiable: bool = False  # shall gradients reach the trunk through the values?
    aims: int = 1  # how many targets will ask for gradients
    network: Network | None = None  # the whole of it
    doing: str = ""  # the method that is running
    gradients: dict[Any, Tensor] = field(default_factory=dict)
    slopes: dict[Any, Tensor] = field(default_factory=dict)
    weighted: dict[Any, Tensor] = field(default_factory=dict)
    straight: dict[Any, list[Any]] = field(default_factory=dict)  # of scores, by key, what shows that they are affine
    probes: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    losses: dict[Any, Score] = field(default_factory=dict)
    reader: Reader = field(default_factory=Reader)
    ahead: bool = False  # is what a formula needs taken to be so, and read with all else at the end?
    claims: list[tuple[str, Callable[[], Any]]] = field(default_factory=list)  # what was, and by which method

    def holds(self, check: Callable[..., Any], *values: Tensor) -> bool:
        """Whether the check of these values, which takes arrays as well as tensors, is true of every picture. On a
        device that would have to be waited for it is taken to be; a method that was wrong in this runs again,
        waiting."""
        if not self.ahead:
            return bool(check(*values).all())
        reads = [self.reader.want(part) for part in values]
        self.claims.append((self.doing, lambda: check(*(read() for read in reads))))
        return True

    @property
    def output(self) -> Tensor:
        return self.opened.output

    @property
    def is_finite(self) -> bool:
        """Whether the output is a number for every picture. Those for which it is none were taken out, if not all."""
        return self.ahead or bool(self.output.isfinite().all())

    @cached_property
    def cells(self) -> Tensor:
        """The features as B,k,P."""
        features = self.opened.features
        return self.opened.layout.by_cell(features if self.differentiable else features.detach())

    @property
    def input(self) -> Tensor:
        """The batch that the network was given, N,C,H,W (N,T,C,H,W)."""
        if self.opened.input is None or self.network is None:
            raise DoesNotApply(
                "this method changes the network's input, and here is none of its own to change: what is explained are "
                "features from inside (of ACoL's second classifier, a pair, a stream); use gradcam, cam or l2caf"
            )
        return self.opened.input

    def tell(self, done: int, total: int) -> None:
        """How far a long method is, to whoever watches."""
        tell(f"{self.doing} {done:,} of {total:,}" if done < total else "")

    def scores(
        self, inputs: Tensor | Iterable[Tensor], aim: "Aim", total: int | None = None, score: Score | None = None
    ) -> Tensor:
        """The target's score for other inputs: M versions of the batch (M,N,C,H,W) to M,N, some at a time. Many
        versions come as an iterable of parts (m,N,C,H,W), made when their turn comes, so that they never are in memory
        all at once; `at_once` says how many versions a part should have, and `total` (M) is for the progress. `score`
        may be another number of the output than the target's, as its probability."""
        rows, score = len(self.input), score or score_of(aim)[0]
        if isinstance(inputs, Tensor):
            inputs, total = torch.split(inputs, self.at_once), total or len(inputs)
        scores = list[Tensor]()
        with torch.set_grad_enabled(self.differentiable):
            for part in inputs:
                if part.ndim < 2 or part.shape[1] != rows:
                    raise BadChoice(f"scores takes versions of the batch of {rows}, M,N,C,H,W; got {tuple(part.shape)}")
                outputs = cast(Network, self.network)(part.flatten(0, 1))
                scores += [score(output) for output in outputs.view(len(part), rows, *outputs.shape[1:])]
                self.tell(len(scores), total or len(scores))
        return torch.stack(scores) if scores else self.output.new_zeros(0, rows)

    @property
    def at_once(self) -> int:
        """How many versions of the batch pass the network at once."""
        return max(MOST_ROWS.get(self.output.device.type, 64) // (len(self.output) * self.steps), 1)

    @property
    def steps(self) -> int:
        return self.opened.frames or 1

    def gradient(self, score: Score, key: Any) -> Tensor:
        """d score / d features, B,k,P. All frames at once: each frame's share, the others unfiltered."""
        if key not in self.gradients:
            (gradient,) = torch.autograd.grad(
                self.output if isinstance(score, Weighted) else score(self.output).sum(),
                self.opened.features,
                score.weights if isinstance(score, Weighted) else None,
                retain_graph=True,
                create_graph=self.differentiable,
                allow_unused=True,
            )
            if gradient is None:
                gradient = torch.zeros_like(self.opened.features)
            self.gradients[key] = self.opened.layout.by_cell(gradient)
        return self.gradients[key]

    def slope(self, score: Score, key: Any) -> Tensor:
        """d score / d f at f = 1, B,P: how the score changes as each cell is turned up."""
        if key not in self.slopes:
            self.slopes[key] = (self.gradient(score, key) * self.cells).sum(1)
        return self.slopes[key]

    def channels_weighted(self, score: Score, key: Any) -> Tensor:
        """sum_k alpha_k A_k, B,P, with alpha_k the mean of d score / d A_k over the cells."""
        if key not in self.weighted:
            alpha = self.gradient(score, key).mean(2)  # B,k
            self.weighted[key] = self.summed(alpha)
        return self.weighted[key]

    def weigh(self, weights: Tensor) -> Finding:
        """ReLU(sum_k w_k A_k), the map of every method that weighs channels; the weights are B,k."""
        raw = self.summed(weights)  # B,P
        return Finding(raw.relu(), raw)

    def summed(self, weights: Tensor) -> Tensor:
        """sum_k w_k A_k, B,P; the weights are B,k."""
        if is_far(self.cells):  # a GPU's matrix products are not made for one row
            return (weights.unsqueeze(2) * self.cells).sum(1)
        return torch.bmm(weights.unsqueeze(1), self.cells).squeeze(1)

    def filtered(self, f: Tensor, step: int = 0, whole: bool = False) -> Tensor:
        """FT(x, f): the output with one frame's cells multiplied by f (N,P) and the other frames as they are."""
        opened = self.opened
        if opened.frames is not None and opened.frames > 1:
            every = f.new_ones(len(f), opened.frames, f.shape[1])  # N,T,P
            f = torch.select_scatter(every, f, 1, step).flatten(0, 1)
        if not whole:
            return opened.filtered(f)
        features = opened.trunk() if self.differentiable else opened.trunk().detach()
        return opened.head(opened.layout.times(features, f))

    def probe(self, step: int) -> tuple[Tensor, Tensor]:
        """A random filter of unit length and mixed signs, 1,P, and the output it gives: what a proof is checked on."""
        if step not in self.probes:
            r = self.random_filter(step)[0]
            with torch.no_grad():
                self.probes[step] = r, self.filtered(r.expand(len(self.output), -1), step)
        return self.probes[step]

    def random_filter(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        return random_filter(self.opened.layout.cells, step, self.output.device, self.output.dtype)

    def at_step(self, values: Tensor, step: int) -> Tensor:
        """Rows of one frame: B,... to N,..."""
        return values if self.steps == 1 else values.view(-1, self.steps, *values.shape[1:])[:, step]

    def each_step(self) -> Iterator[int]:
        yield from range(self.steps)

    def join(self, per_step: list[Tensor]) -> Tensor:
        """N,... of every frame to B,..."""
        return per_step[0] if len(per_step) == 1 else torch.stack(per_step, dim=1).flatten(0, 1)


@lru_cache(64)
def random_filter(cells: int, seed: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """r of unit length, 1,P, and r - 1 and 1 + |r|; kept, since to bring it to a device is to wait for it."""
    with torch.inference_mode(False):
        r = torch.randn(1, cells, generator=torch.Generator().manual_seed(seed))
        r = (r / r.norm()).to(device, dtype)
        return r, r - 1, 1 + r.abs()


def whole_output(out: Tensor) -> Tensor:
    """The sum of the output, whose gradient is Eq. 6's for an embedding."""
    return out.flatten(1).sum(1)


def score_of(aim: Aim) -> tuple[Score, Any]:
    """What to take gradients of, and the key under which they are kept; of a whole output, its sum."""
    return (aim.score, aim.key) if aim.score is not None else (whole_output, "sum")


def finite_rows(output: Tensor) -> Tensor:
    """N: is the picture's output a number throughout?"""
    greatest: Tensor = torch.linalg.vector_norm(output.detach().flatten(1), torch.inf, dim=1)
    return greatest < torch.inf  # nor is what is no number


def without_lost(opened: Opened) -> tuple[Opened, Tensor | None]:
    """Pictures whose output is not a number, taken out of the batch so that they do not spoil the others: B or None."""
    lost = ~finite_rows(opened.output)  # N
    if not bool(lost.any()) or bool(lost.all()):
        return opened, None
    rows = lost.repeat_interleave(opened.frames or 1)
    shape = (-1, *[1] * (opened.features.ndim - 1))
    features = torch.where(rows.view(shape), 0.0, opened.features.detach()).requires_grad_()
    return replace(opened, features=features, output=opened.head(features.clone())), rows


def mark(finding: Finding, lost: Tensor | None) -> Finding:
    """The maps of pictures that were taken out are not numbers."""
    if lost is None:
        return finding
    values, raw = (torch.where(lost.unsqueeze(1), torch.nan, part) for part in (finding.values, finding.raw))
    return replace(finding, values=values, raw=raw)
