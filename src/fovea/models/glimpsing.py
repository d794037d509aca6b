"""What networks that read only a few regions of a picture share: where pixels come from, and what a walk found.

A network reads a `Scene` through one method, so that a picture may be a tensor in memory, a photograph whose windows
are cut out when they are asked for, or a file too large to load.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice
from fovea.pictures import constant, pixels

ORDERS = {
    "levels": "level by level, as many glimpses of each as planned",
    "best": "the most promising region of any level next",
}


class Scene(Protocol):
    """Pictures of one size that windows are read from."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        ...

    def read(self, corners: Tensor, extent: tuple[int, int], side: int) -> Tensor:
        """Windows at side x side, N*G,C,side,side, picture by picture.

        `corners` are N,G,2 whole pixels (x, y), top left; `extent` is the height and width of them all. A window may
        reach over the edge, where there is nothing: zeros.
        """
        ...


@dataclass(frozen=True)
class Pixels:
    """A batch that is in memory. `antialias` makes every pixel of a shrunk window count, as a photograph's shrinking
    does; without, the nearest four do."""

    batch: Tensor  # N,C,H,W, as the network takes it
    antialias: bool = True
    times: int = 1  # rows of each picture, one after the other: its walks

    @property
    def count(self) -> int:
        return len(self.batch) * self.times

    @property
    def size(self) -> tuple[int, int]:
        return self.batch.shape[2], self.batch.shape[3]

    def read(self, corners: Tensor, extent: tuple[int, int], side: int) -> Tensor:
        # a whole picture is never cut, so that level 1 costs no copy of it
        whole = extent == self.size and corners.shape[1] == self.times == 1
        windows = self.batch if whole else cut(self.batch, corners, extent, self.times)
        return resized(windows, side, self.antialias)


def resized(windows: Tensor, side: int, antialias: bool) -> Tensor:
    """Windows at side x side. Where so many pixels become one, that one is their mean, which is quick to find."""
    height, width = windows.shape[2:]
    if (height, width) == (side, side):
        return windows
    if antialias and height % side == 0 and width % side == 0:
        return F.avg_pool2d(windows, (height // side, width // side))
    taken = windows.float() if windows.dtype is torch.bfloat16 else windows  # in which a CPU shrinks nothing
    return F.interpolate(taken, (side, side), mode="bilinear", antialias=antialias, align_corners=False).to(windows)


def cut(batch: Tensor, corners: Tensor, extent: tuple[int, int], times: int = 1) -> Tensor:
    """Windows of one size out of a batch: N*G,C,h,w; of each picture so many `times` in a row."""
    count = corners.shape[1] * times
    which = torch.arange(len(batch), device=batch.device).repeat_interleave(count)
    return pixels(batch, which, corners.flatten(0, 1), extent)


@dataclass(frozen=True)
class Walk:
    """What a network read of each picture, in order, and what it made of it.

    The V things read are the overview (level 1) where there is one, then the glimpses (levels 2, 3, …).
    """

    logits: Tensor  # N,classes: of everything that was read
    after: Tensor  # N,V,classes: of the first one, two, … things read
    each: Tensor  # N,V,classes: of each alone
    boxes: Tensor  # N,V,4: where it was read, x0 y0 x1 y1 in the scene's pixels
    levels: tuple[int, ...]  # V
    parents: tuple[int, ...]  # V: in which of the things read it was chosen; -1: in none
    log_probability: Tensor  # N,G: that each glimpse was chosen, what REINFORCE goes by
    share: Tensor | None = None  # N,V: how much each counts in the answer; alike unless given
    density: bool = False  # log_probability is of a density, as of a place anywhere in the plane
    entropy: Tensor | None = None  # N,L: of where glimpses of levels 2, 3, … lie, as a share of the largest there is

    @property
    def glimpses(self) -> int:
        return sum(level > 1 for level in self.levels)

    def first(self, things: int) -> "Walk":
        """As if nothing had been read after so many things."""
        after, glimpses = self.after[:, :things], sum(level > 1 for level in self.levels[:things])
        share = None if self.share is None else self.share[:, :things] / self.share[:, :things].sum(1, keepdim=True)
        read = self.each[:, :things], self.boxes[:, :things], self.levels[:things], self.parents[:things]
        return Walk(after[:, -1], after, *read, self.log_probability[:, :glimpses], share, self.density)


def walked(out: object) -> bool:
    """Whether a network answered by glimpses; before its policy is trained, a Saccader answers by all cells."""
    return isinstance(out, Walk)


@runtime_checkable
class Glimpsing(Protocol):
    """A network that walks through a scene and reads `least` to `most` glimpses of it; 0 is an overview alone."""

    def walk(self, scene: Scene, glimpses: int | None = None) -> Walk: ...

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int: ...


class Controlled(Protocol):
    """A network with the ability "controls", which can also go to places that it has not learned."""

    def controlled(self, how: str, seed: int = 0) -> "nn.Module": ...


@dataclass(frozen=True)
class Route:
    """How a walk goes and when it ends, where that is not the network's usual way: what comes first ends it."""

    glimpses: int | None = None  # at most so many
    until: float | None = None  # or until the answer is as certain as this
    order: str | None = None  # ORDERS
    levels: int | None = None  # how far down; beyond what the network was trained for, maybe
    budget_ms: float | None = None  # from before the picture is opened
    budget_macs: float | None = None

    @property
    def usual(self) -> bool:
        """Whether nothing but a number of glimpses is asked for."""
        return self == Route(self.glimpses, order=self.order) and self.order in (None, "levels")

    @property
    def budgeted(self) -> bool:
        return self.budget_ms is not None or self.budget_macs is not None


class Walking(Protocol):
    """A walk through one picture that goes on thing by thing."""

    @property
    def pending(self) -> int | None:
        """The level of what comes next, the overview's being 1; None where nothing is left to read."""
        ...

    @property
    def walk(self) -> Walk:
        """Everything that was read, of one picture."""
        ...


class Stepping(Glimpsing, Protocol):
    """A network with the ability "steps", which can end a walk after any glimpse."""

    certainty: "Certainty"

    def routed(self, route: Route) -> Route:
        """The route with what is usual filled in, or BadChoice."""
        ...

    def descend(self, scene: Scene, route: Route) -> Any:
        """A Walking with nothing read yet, of a scene of one picture."""
        ...

    def advance(self, descents: Sequence[Any]) -> None:
        """Each reads what comes next; several at once where that is quicker."""
        ...


class Certainty(nn.Module):
    """How probable it is that an answer is right: by the logits divided by a temperature, fit on pictures apart. After
    k things read it is exp(a + b / k), so that few and many may be off by different factors. Without a fit it is 1."""

    rule: Tensor  # a b

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rule", torch.zeros(2))

    @property
    def calibrated(self) -> bool:
        return bool(self.rule.any())

    def temperature(self, things: int) -> float:
        a, b = self.rule.tolist()
        return math.exp(a + b / max(things, 1))

    def forward(self, logits: Tensor, things: int) -> Tensor:
        """Calibrated probabilities of what was answered after so many things read: …,classes."""
        return (logits.float() / self.temperature(things)).softmax(-1)

    def forget(self) -> None:
        """Weights that change, or classes, make it void."""
        self.rule.zero_()

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
        """Files of before have none."""
        state.setdefault(f"{prefix}rule", torch.zeros_like(self.rule))
        super()._load_from_state_dict(state, prefix, *rest)  # type: ignore[arg-type]


class Turns:
    """A walk of a network that reads glimpses in turn: what it read so far comes out of a generator."""

    def __init__(self, walks: Iterator[Walk], glimpses: int) -> None:
        self.walks, self.left = walks, glimpses
        self.walk: Walk

    @property
    def pending(self) -> int | None:
        return 2 if self.left else None

    def advance(self) -> None:
        self.walk = next(self.walks)
        self.left -= 1


class InTurn(nn.Module, ABC):
    """A network that reads glimpses in turn, in an order of its own, as many as `locations` usually."""

    locations: int
    least = 1

    def __init__(self) -> None:
        super().__init__()
        self.certainty = Certainty()

    @property
    @abstractmethod
    def most(self) -> int: ...

    @abstractmethod
    def turns(self, scene: Scene, glimpses: int) -> Iterator[Walk]:
        """The walk after one glimpse, after two, …"""

    def routed(self, route: Route) -> Route:
        if route.order is not None or route.levels is not None:
            raise BadChoice(
                f"a {type(self).__name__} has an order of its own, and no levels: leave order and levels out"
            )
        glimpses = self.locations if route.glimpses is None else route.glimpses
        if not self.least <= glimpses <= self.most:
            raise BadChoice(f"a {type(self).__name__} reads {self.least} to {self.most} glimpses; got {glimpses}")
        return replace(route, glimpses=glimpses)

    def descend(self, scene: Scene, route: Route) -> Turns:
        count = route.glimpses or self.locations
        return Turns(self.turns(scene, count), count)

    def advance(self, descents: Sequence[Turns]) -> None:
        for descent in descents:
            descent.advance()


def running_mean(vectors: Tensor) -> Tensor:
    """The mean of the first one, two, … of them: N,V,D to N,V,D."""
    counts = torch.arange(1, vectors.shape[1] + 1, device=vectors.device, dtype=vectors.dtype)
    return vectors.cumsum(1) / counts.view(1, -1, 1)


def weighted_mean(vectors: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The same with weights, the softmax over the first one, two, … of their scores (N,V), and the weights of all."""
    weights = (scores - scores.detach().amax(1, keepdim=True)).clamp_min(-60).exp().unsqueeze(2)  # N,V,1
    return (weights * vectors).cumsum(1) / weights.cumsum(1), scores.softmax(1)


def boxes_of(corners: Tensor, extent: tuple[int, int]) -> Tensor:
    """N,G,2 corners as N,G,4 boxes."""
    height, width = extent
    return torch.cat([corners, corners + constant([width, height], corners.device)], 2)


def shared_out(total: int, rooms: Sequence[int]) -> list[int]:
    """`total` things dealt to places in turn, the first ones first, none beyond its room."""
    dealt = [0] * len(rooms)
    while total > 0 and any(got < room for got, room in zip(dealt, rooms, strict=True)):
        for i, room in enumerate(rooms):
            if total > 0 and dealt[i] < room:
                dealt[i] += 1
                total -= 1
    return dealt
