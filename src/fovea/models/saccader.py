"""Saccader (Elsayed et al. 2019): computes evidence for every cell of a picture, then answers by a few of them.

A representation network, BagNet-77-lowD, gives each cell features of 77 x 77 pixels, and logits. An attention network
looks at the features more widely. The Saccader cell, which remembers where it was, chooses cells one after the other;
the answer is the mean of the logits of the chosen ones. No convolution of the representation network is padded, so that
cell (r, c) sees columns 8c to 8c + 76 and rows 8r to 8r + 76 and nothing else. Sizes and order are the repository's."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice, nearest
from fovea.models.glimpsing import InTurn, Pixels, Route, Scene, Walk, running_mean
from fovea.models.norms import scaled, unnormed
from fovea.networks import Network, model
from fovea.pictures import Prepare, constant

Stage = Literal["representation", "locations", "all"]
Choose = Callable[[int, Tensor], Tensor]  # turn and N,P log-probabilities to N cells

PATCH, STEP = 77, 8  # pixels that a cell sees, and how far apart cells are
GROUPS = ((64, 3, 2), (128, 4, 2), (256, 6, 2), (512, 3, 1))  # channels, blocks, stride of the first
FILTERS = 2  # blocks of each group that are 3 x 3, the first ones; the others see their own cell alone
STEM, EXPANSION = 64, 4


class Unpadded(nn.Module):
    """Narrow, filter, widen, add what came in; the filter is not padded, so the shortcut loses its rim, too."""

    def __init__(self, given: int, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        out = channels * EXPANSION
        self.narrow = nn.Sequential(nn.Conv2d(given, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        filtering = nn.Conv2d(channels, channels, kernel, stride, bias=False)
        self.filter = nn.Sequential(filtering, nn.BatchNorm2d(channels), nn.ReLU())
        self.widen = nn.Sequential(nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or given != out:
            self.shortcut = nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.rim = kernel // 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.widen(self.filter(self.narrow(x)))
        rim = self.rim
        inner = x[:, :, rim : x.shape[2] - rim, rim : x.shape[3] - rim] if rim else x
        return F.relu(y + self.shortcut(inner))


class Representation(nn.Module):
    """BagNet-77-lowD: of every cell wide features, narrow ones ("what" is there), and logits."""

    def __init__(self, classes: int, width: float) -> None:
        super().__init__()
        stem = scaled(STEM, width)
        layers: list[nn.Module] = [nn.Conv2d(3, stem, 3, bias=False), nn.BatchNorm2d(stem), nn.ReLU()]
        given = stem
        for channels, blocks, stride in GROUPS:
            own = scaled(channels, width)
            for i in range(blocks):
                layers.append(Unpadded(given, own, 3 if i < FILTERS else 1, stride if i == 0 else 1))
                given = own * EXPANSION
        self.wide, self.narrow = given, given // 4
        self.features = nn.Sequential(*layers)
        compact = nn.Conv2d(self.wide, self.narrow, 1, bias=False)
        self.compact = nn.Sequential(compact, nn.BatchNorm2d(self.narrow), nn.ReLU())
        self.classify = nn.Conv2d(self.narrow, classes, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.features(x)
        what = self.compact(features)
        return features, what, self.classify(what)


class Widened(nn.Conv2d):
    """3 x 3 with gaps of one cell and zeros around, so that the map keeps its size."""

    def __init__(self, given: int, out: int) -> None:
        super().__init__(given, out, 3, dilation=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (2, 2, 2, 2)))


class WhereAndWhat(nn.Module):
    """ "Where" features, of cells and those around them, mixed with "what" features."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        given = wide
        for out in (wide // 2, wide // 4):
            layers += [nn.Conv2d(given, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            layers += [Widened(out, out), nn.BatchNorm2d(out), nn.ReLU()]
            given = out
        self.where = nn.Sequential(*layers)
        self.mix = nn.Conv2d(given + narrow, narrow, 1)

    def forward(self, features: Tensor, what: Tensor) -> Tensor:
        return self.mix(torch.cat([self.where(features), what], 1))


class Cell(nn.Module):
    """Log-probabilities of the next cell: weigh the cells, read off which channels matter, weigh cells by these."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(channels, 1, bias=False)
        self.scale = 1 / math.sqrt(channels)

    def forward(self, mixed: Tensor, visited: Tensor) -> Tensor:
        """`mixed` is N,P,C. Of the cells that were `visited` (N,P), none of which is chosen again, their logit less the
        others' logsumexp: no probability, but what the loss of a wanted one goes by."""
        with torch.autocast(mixed.device.type, enabled=False):  # half precision is too coarse for a choice of many
            cells = (self.weigh(mixed)[..., 0] * self.scale).masked_fill(visited, -math.inf).softmax(1)  # N,P
            channels = torch.einsum("npc,np->nc", mixed, cells).softmax(1)  # N,C
            logits = torch.einsum("npc,nc->np", mixed, channels)
            return logits - logits.masked_fill(visited, -math.inf).logsumexp(1, keepdim=True)


@dataclass(frozen=True)
class Policy:
    """Where to look next, given where one was, in pictures that were read."""

    cell: Cell
    mixed: Tensor  # N,P,C

    def follow(self, count: int, choose: Choose, wanted: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The cells of so many turns, N,T, and the log-probability of each, or of those `wanted` (N,T), given the cells
        before it, N,T."""
        visited = torch.zeros(self.mixed.shape[:2], dtype=torch.bool, device=self.mixed.device)  # N,P
        cells, logs = [], []
        for turn in range(count):
            log_p = self.cell(self.mixed, visited)
            cells.append(choose(turn, log_p.masked_fill(visited, -math.inf)).unsqueeze(1))
            logs.append(log_p.gather(1, (cells[-1] if wanted is None else wanted[:, turn : turn + 1])))
            visited = visited.scatter(1, cells[-1], True)
        return torch.cat(cells, 1), torch.cat(logs, 1)

    def log_likelihood(self, order: Tensor, along: Tensor | None = None) -> Tensor:
        """Of visiting cells in this order, N,T; each after those before it, or after those of the visit `along`."""
        visit = order if along is None else along
        return self.follow(order.shape[1], lambda turn, _: visit[:, turn], order)[1]


@dataclass(frozen=True)
class Cells:
    """Every cell of each picture, none preferred."""

    logits: Tensor  # N,classes: their mean
    evidence: Tensor  # N,classes,h,w


@dataclass(frozen=True, kw_only=True)
class CellWalk(Walk):
    """A walk over cells, with what it went by. A cell is chosen in none of the things read: all were looked at."""

    evidence: Tensor  # N,classes,h,w
    cells: Tensor  # N,G: numbers of the chosen ones, row by row
    policy: Policy


@dataclass(frozen=True)
class SaccaderOptions:
    width: float = 1.0  # multiplies every number of channels
    locations: int = 6  # cells that answer
    stage: Stage = "all"  # which training this is for
    side: int = 224  # pictures are squashed to side x side
    policy_into_features: bool = True
    norm: bool = True  # batch norm, as the authors have it

    def __post_init__(self) -> None:
        if self.stage not in get_args(Stage):
            near = nearest(str(self.stage), get_args(Stage))
            raise BadChoice(f"stage is representation, locations or all; got {self.stage!r}{near}")
        if not 0 < self.width <= 4:
            raise BadChoice(f"width multiplies the channels and is above 0 and at most 4; got {self.width}")
        if self.side < PATCH:
            raise BadChoice(f"Saccader needs pictures of at least {PATCH} pixels a side; got side={self.side}")
        most = cells_along(self.side) ** 2
        if not 1 <= self.locations <= most:
            got = f"got {self.locations}"
            raise BadChoice(f"pictures of {self.side} pixels a side have {most} cells: 1 to {most} locations; {got}")


class Saccader(InTurn):
    """`stage` is which training this is for; all have the same parameters, so that one's weights load into the next.

    - "representation": the answer is the mean over all cells; where to look is not asked.
    - "locations": the representation network is frozen, its running statistics too. The output's policy can be asked
      for the likelihood of an order (training/sorted_locations.py).
    - "all": everything is trained, by cross-entropy and REINFORCE. As in the repository, the policy's gradient goes on
      into the representation network, unless `policy_into_features` is false.

    While training, cells are drawn by their probabilities; else the most probable ones are taken."""

    abilities = frozenset({"glimpses", "steps"})

    def __init__(self, classes: int, options: SaccaderOptions) -> None:
        super().__init__()
        stage, self.locations, self.side = options.stage, options.locations, options.side
        self.stage, self.policy_into_features = stage, options.policy_into_features
        self.representation = Representation(classes, options.width)
        self.attention = WhereAndWhat(self.representation.wide, self.representation.narrow)
        self.cell = Cell(self.representation.narrow)
        if not options.norm:
            unnormed(self)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                _glorot(module)
        for module in self.modules():
            if isinstance(module, Unpadded):  # begins as its shortcut
                nn.init.zeros_(module.widen[1 if options.norm else 0].weight)  # type: ignore[arg-type]
        self.representation.requires_grad_(stage != "locations")
        self.attention.requires_grad_(stage != "representation")
        self.cell.requires_grad_(stage != "representation")

    least = 1  # there is no overview

    @property
    def most(self) -> int:
        """As many as there are cells."""
        return cells_along(self.side) ** 2

    def train(self, mode: bool = True) -> "Saccader":
        super().train(mode)
        if self.stage == "locations":
            self.representation.eval()
        return self

    def forward(self, x: Tensor, glimpses: int | None = None) -> CellWalk | Cells:
        """`x` is read as it is, whatever its size, unless a number of glimpses is asked for."""
        if x.ndim != 4 or x.shape[1] != 3 or min(x.shape[2:]) < PATCH:
            got = f"what one cell sees, N,3,H,W; got {tuple(x.shape)}"
            raise BadChoice(f"Saccader takes color pictures of at least {PATCH} x {PATCH} pixels, {got}")
        if glimpses is not None:
            return self.walk(Pixels(x), glimpses)
        if self.stage == "representation":
            _, _, evidence = self.representation(x)
            return Cells(evidence.mean((2, 3)), evidence)
        return self._walked(x, (x.shape[2], x.shape[3]), self.locations)

    def walk(self, scene: Scene, glimpses: int | None = None) -> CellWalk:
        """The scene is read once, whole, at side x side, whatever the stage."""
        corners = torch.zeros(scene.count, 1, 2, dtype=torch.long, device=self.cell.weigh.weight.device)
        pixels = scene.read(corners, scene.size, self.side)
        return self._walked(pixels, scene.size, self.locations if glimpses is None else glimpses)

    def turns(self, scene: Scene, glimpses: int) -> Iterator[Walk]:
        walk = self.walk(scene, glimpses)
        yield from (walk.first(turn) for turn in range(1, glimpses + 1))

    def routed(self, route: Route) -> Route:
        if route.budgeted:
            raise BadChoice("a Saccader computes every cell of a picture first, so a budget would save nothing")
        return super().routed(route)

    def _walked(self, pixels: Tensor, size: tuple[int, int], glimpses: int) -> CellWalk:
        """`size` is the height and width that boxes are told in."""
        rows, columns = (cells_along(side) for side in pixels.shape[2:])
        if not 1 <= glimpses <= rows * columns:
            got = f"1 to {rows * columns} glimpses; got {glimpses}"
            raise BadChoice(f"Saccader visits no cell twice, and these pictures have {rows} x {columns}: {got}")
        if self.training and torch.is_grad_enabled():
            self.certainty.forget()
        features, what, evidence = self.representation(pixels)
        policy = self._policy(features, what)
        cells, log_p = policy.follow(glimpses, drawn if self.training else most_probable)
        chosen = cells.unsqueeze(1).expand(-1, evidence.shape[1], -1)  # N,classes,G
        each = evidence.flatten(2).gather(2, chosen).transpose(1, 2)  # N,G,classes
        after = running_mean(each)
        scale = (size[0] / pixels.shape[2], size[1] / pixels.shape[3])
        read = patches(cells, columns, scale), (2,) * glimpses, (-1,) * glimpses, log_p
        return CellWalk(after[:, -1], after, each, *read, evidence=evidence, cells=cells, policy=policy)

    def _policy(self, features: Tensor, what: Tensor) -> Policy:
        if self.stage == "locations" or not self.policy_into_features:
            features, what = features.detach(), what.detach()
        mixed = self.attention(features, what).flatten(2).transpose(1, 2)  # N,P,C
        return Policy(self.cell, mixed.to(self.cell.weigh.weight.dtype))

    def reset_classifier(self, classes: int) -> None:
        """A new, untrained last layer for so many classes."""
        old = self.representation.classify
        new = nn.Conv2d(old.in_channels, classes, 1).to(old.weight).requires_grad_(old.weight.requires_grad)
        _glorot(new)
        self.representation.classify = new
        self.certainty.forget()


def _glorot(layer: nn.Conv2d | nn.Linear) -> None:
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def drawn(turn: int, log_p: Tensor) -> Tensor:
    """A cell of each picture by its probability, with torch's random numbers."""
    share = log_p.detach().exp()
    return (share / torch.empty_like(share).exponential_()).argmax(1)  # torch.multinomial's way, which waits for checks


def most_probable(turn: int, log_p: Tensor) -> Tensor:
    return log_p.argmax(1)


def patches(cells: Tensor, columns: int, scale: tuple[float, float]) -> Tensor:
    """What cells see, N,G,4, in pixels `scale` (down, across) times as many as were read."""
    top, left = cells // columns * STEP, cells % columns * STEP
    boxes = torch.stack([left, top, left + PATCH, top + PATCH], 2)
    return boxes * constant([scale[1], scale[0]] * 2, cells.device)


def cells_along(side: int) -> int:
    return max((side - PATCH) // STEP + 1, 0)


@model(
    "saccader",
    about="answers by a few cells, chosen one after the other (Elsayed et al. 2019)",
    can=("glimpses", "steps"),
)
def build(classes: int, options: SaccaderOptions) -> Network:
    transform = Prepare((options.side, options.side), (0.5,) * 3, (0.5,) * 3, None, "bicubic")
    return Network(Saccader(classes, options), transform, tuple(map(str, range(classes))), "representation.compact")
