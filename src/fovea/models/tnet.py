"""TNet (Papadopoulos et al. 2021): walks an image pyramid top-down and reads only a few glimpses of the finer levels.

Level 1 reads the whole picture, small. A location module looks at its features and gives every cell of an n x n grid of
overlapping regions a probability; the most probable ones are read at the same small size, so with more detail, and so
on. All features, each with its place and scale added, are averaged and classified.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice, nearest, within
from fovea.models import bagnet
from fovea.models.frontier import TINY, Frontier
from fovea.models.glimpsing import (
    ORDERS,
    Certainty,
    Pixels,
    Route,
    Scene,
    Walk,
    boxes_of,
    running_mean,
    shared_out,
    weighted_mean,
)
from fovea.models.locations import ByExcitation, ByVector, Control, Grid, Location
from fovea.models.norms import Statistics
from fovea.models.trunks import prepare_of
from fovea.networks import Network, model
from fovea.pictures import Prepare, constant

FARTHEST = 100.0  # positions are told apart up to about here: the base of the slowest wave


class BagExtractor(nn.Module):
    """Table 4's: BagNet-77 on windows of 77 pixels.

    An extractor takes windows, N,C,base,base, and their level, counted from 0. It gives a map of `channels` channels to
    choose locations by, and a vector of `width` numbers.
    """

    def __init__(self, base: int, width: float, dropout: float, norms: int = 0) -> None:
        """`norms`: batch norm with so many sets of running statistics, one a level; 0: none, as in the paper."""
        super().__init__()
        self.bag = bagnet.Bag(width, dropout, norms > 0)
        self.channels, self.width, self.base = self.bag.channels, self.bag.width, base
        self.statistics = Statistics(self.bag, norms) if norms else None

    def forward(self, x: Tensor, level: int) -> tuple[Tensor, Tensor]:
        with self.statistics.of(self.bag, level) if self.statistics else nullcontext():
            seen, last = self.bag(x)
        return seen, last.mean((2, 3))


class TimmExtractor(nn.Module):
    """Any network of timm's. `stage` is the number of the map that locations are chosen by, among those that its
    `forward_intermediates` gives; None is the last one of at most 16 pixels a cell.

    With `norms` above 1, batch norm has so many sets of running statistics, one a level: what a level sees is unlike
    what another does, an almost empty overview here and one filled with a thing there.
    """

    def __init__(self, module: nn.Module, base: int, stage: int | None = None, norms: int = 1) -> None:
        super().__init__()
        info: list[dict[str, Any]] = list(module.feature_info)  # type: ignore[arg-type]
        if stage is None:
            stage = max((i for i, one in enumerate(info) if one["reduction"] <= 16), default=0)
        self.module, self.stage, self.base = module, stage, base
        self.channels, self.width = int(info[stage]["num_chs"]), int(module.num_features)  # type: ignore[arg-type]
        self.statistics = Statistics(module, norms) if norms > 1 else None

    def forward(self, x: Tensor, level: int) -> tuple[Tensor, Tensor]:
        with self.statistics.of(self.module, level) if self.statistics else nullcontext():
            return self._seen(x)

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        module: Callable[..., tuple[Tensor, list[Tensor]]] = self.module.forward_intermediates  # type: ignore[assignment]
        last, (seen,) = module(x, indices=[self.stage], output_fmt="NCHW")
        vector: Tensor = self.module.forward_head(last, pre_logits=True)  # type: ignore[operator]
        return seen, vector.flatten(1)


class B0Extractor(nn.Module):
    """Table 5's: EfficientNet-B0, the map after its 8th MBConv."""

    def __init__(self, module: nn.Module, base: int) -> None:
        super().__init__()
        self.module, self.base, self.channels, self.width = module, base, 80, 1280

    def forward(self, x: Tensor, level: int) -> tuple[Tensor, Tensor]:
        net: nn.Module = self.module
        x = net.bn1(net.conv_stem(x))  # type: ignore[operator]
        blocks: nn.Sequential = net.blocks  # type: ignore[assignment]
        seen = blocks[:4](x)  # 1 + 2 + 2 + 3 MBConvs
        last = net.bn2(net.conv_head(blocks[4:](seen)))  # type: ignore[operator]
        return seen, net.forward_head(last, pre_logits=True)  # type: ignore[operator]


def encoding(position: Tensor, level: int, size: int) -> Tensor:
    """Where a region is, as waves: of y, of x, of the scale, each sines then cosines; N,2 (x, y) to N,size."""
    count = size // 6
    rates = FARTHEST ** (-torch.arange(count, device=position.device) / max(count - 1, 1))
    scale = torch.full_like(position[:, 0], level)
    waves = [one.float().unsqueeze(1) * rates for one in (position[:, 1], position[:, 0], scale)]
    parts = [part for wave in waves for part in (wave.sin(), wave.cos())]
    return F.pad(torch.cat(parts, 1), (0, size - 6 * count))


class Concatenated(nn.Module):
    """Table 4's positional encoding: one linear layer over vector and place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.size, self.mix = width, nn.Linear(2 * width, width)

    def forward(self, vector: Tensor, position: Tensor, level: int) -> Tensor:
        place = encoding(position, level, self.size).to(vector.dtype)
        return self.mix(torch.cat([vector, place], 1))


class Added(nn.Module):
    """Table 5's: the place, projected, is added to the vector."""

    def __init__(self, width: int, size: int = 320) -> None:
        super().__init__()
        self.size, self.project = size, nn.Linear(size, width)

    def forward(self, vector: Tensor, position: Tensor, level: int) -> Tensor:
        place = self.project(encoding(position, level, self.size).to(vector.dtype))
        return F.silu(vector + place)


@dataclass(frozen=True)
class WalkOptions:
    """How a TNet walks. `explore` is the share of pictures whose locations are drawn at random in training, by their
    probabilities: the paper takes the most probable ones there too. With `samples` (M of Eq. 1) above 1 every picture
    is walked so many times in a training step, for which some must be drawn. `sharpness` is the length of the logits of
    places, the paper's 1: the greater, the surer a walk may become of where to look. `dropout` is of the averaged
    vector, and of each vector that is judged alone. `sequential` reads the locations of a level one after the other,
    which takes longer and less memory."""

    glimpses: int = 4  # read unless another number is asked for
    levels: int = 3
    side: int | None = None  # pictures are squashed to side x side; None is what the deepest level shows in full
    explore: float = 0.0
    antialias: bool = True
    sequential: bool = False
    dropout: float = 0.0
    while_training: int | None = None  # glimpses that are read while training
    samples: int = 1  # walks of each picture while training
    sharpness: float = 1.0  # of the probabilities of places
    average: str = "mean"  # of the features; "learned": each weighs what the network makes of it

    def check(self, cells: int) -> None:
        """Whether a grid of so many cells has room for the glimpses."""
        within("levels", self.levels, 1, 16)
        within("glimpses", self.glimpses, 0, 4096)
        plan(self.glimpses, self.levels, cells)
        plan(self.glimpses if self.while_training is None else self.while_training, self.levels, cells)
        if not 0 <= self.explore <= 1:
            raise BadChoice(f"explore is a share from 0 to 1; got {self.explore}")
        within("samples", self.samples, 1, 64)
        if self.samples > 1 and not self.explore:
            raise BadChoice(
                f"samples={self.samples} walks of a picture are all the same unless some explore: explore=1.0"
            )
        if not 0 <= self.sharpness <= 100:
            raise BadChoice(f"sharpness is 0 to 100; got {self.sharpness}")
        if self.average not in ("mean", "learned"):
            raise BadChoice(f"average is mean or learned; got {self.average!r}")

    def squashing(self, base: int, prepare: Prepare) -> Prepare:
        """How pictures come in, normalized as `prepare` does."""
        side = base * 2 ** (self.levels - 1) if self.side is None else self.side
        return replace(prepare, size=(side, side), crop=None)


class TNet(nn.Module):
    """The features of everything read are averaged, plainly as in the paper, or with weights that a linear layer
    predicts of each placed feature, their softmax; it begins at zero, so as the plain mean."""

    abilities = frozenset({"glimpses", "steps", "controls"})

    def __init__(
        self, extractor: nn.Module, location: Location, place: nn.Module, classes: int, options: WalkOptions
    ) -> None:
        super().__init__()
        self.while_training = options.glimpses if options.while_training is None else options.while_training
        self.extractor, self.location, self.place = extractor, location, place
        self.dropout, self.classifier = nn.Dropout(options.dropout), nn.Linear(int(extractor.width), classes)  # type: ignore[arg-type]
        self.levels, self.glimpses, self.explore = options.levels, options.glimpses, options.explore
        self.antialias, self.sequential, self.samples = options.antialias, options.sequential, options.samples
        self.weigh = nn.Linear(self.classifier.in_features, 1, bias=False) if options.average == "learned" else None
        if self.weigh is not None:
            nn.init.zeros_(self.weigh.weight)
        self.certainty = Certainty()

    def forward(self, x: Tensor, glimpses: int | None = None) -> Walk:
        channels = next(layer.in_channels for layer in self.extractor.modules() if isinstance(layer, nn.Conv2d))
        if x.ndim != 4 or x.shape[1] != channels:
            raise BadChoice(f"this TNet takes pictures of {channels} channels, N,{channels},H,W; got {tuple(x.shape)}")
        times = self.samples if self.training else 1
        return self.walk(Pixels(x, self.antialias, times), glimpses)

    def walk(self, scene: Scene, glimpses: int | None = None) -> Walk:
        base, n, device = int(self.extractor.base), self.location.grid.n, self.classifier.weight.device  # type: ignore[arg-type]
        usual = self.while_training if self.training else self.glimpses
        counts = plan(usual if glimpses is None else glimpses, self.levels, n * n)
        corners = torch.zeros(scene.count, 1, 2, dtype=torch.long, device=device)  # of the windows of this level
        position, extent = corners, scene.size
        vectors, boxes, logs, entropies = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
        levels, parents, before = [1], [-1], 0  # `before`: things read above this level
        for level in range(self.levels):
            seen, vector = self._extracted(scene, corners, extent, base, level)
            placed = self.place(vector, position.flatten(0, 1), level)
            vectors.append(placed.view(scene.count, -1, placed.shape[1]))
            boxes.append(boxes_of(corners, extent))
            if level + 1 == self.levels:
                break
            probability = self.location(seen, vector).view(scene.count, -1, n * n)  # N,G,n*n
            if not counts[level]:
                break  # the location module has run, as it does where the paper counts 0 locations
            if not self.training:
                entropies.append(evenness(probability).mean(1))
            shares = shared_out(counts[level], [n * n] * probability.shape[1])
            parent = [i for i, share in enumerate(shares) for _ in range(share)]  # of each glimpse of the next level
            order = self._ranked(probability, max(shares))  # N,G,most
            above, rank = constant([parent, [r for share in shares for r in range(share)]], device)
            cell = order[:, above, rank]  # N,G'
            chosen = probability[:, above].gather(2, cell.unsqueeze(2))[:, :, 0]
            logs.append((chosen + TINY).log())
            (rows, height), (columns, width) = (self.location.grid.along(side) for side in extent)
            step = torch.stack([constant(columns, device)[cell % n], constant(rows, device)[cell // n]], 2)
            corners = corners[:, above] + step
            position = position[:, above] * n + torch.stack([cell % n, cell // n], 2)
            extent = height, width
            parents += [before + i for i in parent]
            before += len(shares)
            levels += [level + 2] * len(parent)
        features = torch.cat(vectors, 1)  # N,V,D
        each: Tensor = self.classifier(self.dropout(features))  # the mean of what a linear layer gives is its mean's
        if self.training and torch.is_grad_enabled():
            self.certainty.forget()
        after, share = (running_mean(each), None) if self.weigh is None else weighted_mean(each, self._scores(features))
        logits = after[:, -1]
        if self.training and self.dropout.p:  # of the averaged vector one mask
            mean = features.mean(1) if share is None else (share.unsqueeze(2).to(features.dtype) * features).sum(1)
            logits = self.classifier(self.dropout(mean))
        log_probability = torch.cat(logs, 1) if logs else each.new_zeros(scene.count, 0)
        read = torch.cat(boxes, 1), tuple(levels), tuple(parents), log_probability
        return Walk(logits, after, each, *read, share, entropy=torch.stack(entropies, 1) if entropies else None)

    def _scores(self, features: Tensor) -> Tensor:
        assert self.weigh is not None
        return self.weigh(features)[..., 0].float()

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
        """A network that was trained with the plain mean goes on with a learned one from there."""
        if self.weigh is not None and f"{prefix}classifier.weight" in state:
            state.setdefault(f"{prefix}weigh.weight", torch.zeros_like(self.weigh.weight))
        super()._load_from_state_dict(state, prefix, *rest)  # type: ignore[arg-type]

    def routed(self, route: Route) -> Route:
        """Best first unless another order is asked for; as many glimpses as usual, unless a budget says when to end."""
        order, levels = route.order or "best", self.levels if route.levels is None else route.levels
        if order not in ORDERS:
            raise BadChoice(f"no order {order!r}{nearest(order, ORDERS)} (there are: {', '.join(ORDERS)})")
        within("levels", levels, 1, 16)
        most = sum(self.location.grid.n ** (2 * level) for level in range(1, levels))
        usual = None if route.budgeted and order == "best" else min(self.glimpses, most)
        glimpses = usual if route.glimpses is None else route.glimpses
        if glimpses is not None and not 0 <= glimpses <= most:
            raise BadChoice(f"a walk of {levels} levels reads 0 to {most} glimpses; got {glimpses}")
        return replace(route, order=order, levels=levels, glimpses=glimpses)

    def descend(self, scene: Scene, route: Route) -> Frontier:
        grid, levels = self.location.grid, route.levels or self.levels
        steps = planned(route.glimpses or 0, levels, grid.n**2) if route.order == "levels" else None
        return Frontier(scene, grid, levels, self.levels, int(self.extractor.base), steps)  # type: ignore[arg-type]

    def advance(self, descents: Sequence[Frontier]) -> None:
        """Those at one level together: a level has its own statistics."""
        pending = [(descent, descent.next) for descent in descents]
        for level in sorted({region.level for _, region in pending if region is not None}):
            chosen = [(descent, region) for descent, region in pending if region is not None and region.level == level]
            device, base = self.classifier.weight.device, int(self.extractor.base)  # type: ignore[arg-type]
            corners = constant([region.corner for _, region in chosen], device).unsqueeze(1)  # N,1,2
            reads = zip(corners.unbind(), chosen, strict=True)
            windows = torch.cat([descent.scene.read(at[None], region.extent, base) for at, (descent, region) in reads])
            cells = constant([region.cell for _, region in chosen], device)
            each, scores, probability = self.read_regions(windows, cells, level, level + 1 < chosen[0][0].levels)
            for i, (descent, _) in enumerate(chosen):
                own = slice(i, i + 1)
                score = None if scores is None else scores[own]
                descent.take(each[own], score, None if probability is None else probability[i])

    def read_regions(
        self, windows: Tensor, cells: Tensor, level: int, onwards: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Of windows of one level, N,C,base,base, and their places on its grid: what each says alone, what its weight
        comes from, and how probable its own regions are, if the walk may go `onwards`. A level below those that the
        network was trained for has the statistics of the deepest one, and the place of what it lies in there."""
        seen, vector = self.extractor(windows, level)
        known = min(level, self.levels - 1)
        placed = self.place(vector, cells // self.location.grid.n ** (level - known), known)
        probability = self.location(seen, vector) if onwards else None
        return self.classifier(placed), None if self.weigh is None else self._scores(placed), probability

    def _extracted(
        self, scene: Scene, corners: Tensor, extent: tuple[int, int], base: int, level: int
    ) -> tuple[Tensor, Tensor]:
        if level == 0 and isinstance(scene, Pixels) and (times := scene.times) > 1:  # the walks share one overview
            maps, vectors = self.extractor(replace(scene, times=1).read(corners[::times], extent, base), level)
            return maps.repeat_interleave(times, 0), vectors.repeat_interleave(times, 0)
        if not self.sequential or self.training:
            return self.extractor(scene.read(corners, extent, base), level)
        found = [self.extractor(scene.read(one, extent, base), level) for one in corners.chunk(corners.shape[1], 1)]
        maps, vectors = (torch.stack(one, 1).flatten(0, 1) for one in zip(*found, strict=True))
        return maps, vectors

    def _ranked(self, probability: Tensor, most: int) -> Tensor:
        """The cells to attend to, best first; while exploring, in an order drawn without replacement."""
        scores = probability.detach()
        if self.training and self.explore > 0:
            drawn = scores.clamp_min(TINY).log() - torch.empty_like(scores).exponential_().log()  # Gumbel noise
            curious = torch.rand(len(scores), 1, 1, device=scores.device) < self.explore
            scores = torch.where(curious, drawn, scores)
        return scores.topk(most, dim=2).indices

    @property
    def least(self) -> int:
        """None: the overview answers, too."""
        return 0

    @property
    def most(self) -> int:
        cells = self.location.grid.n**2
        return sum(cells**level for level in range(1, self.levels))

    def controlled(self, how: str, seed: int = 0) -> "TNet":
        """The same network, with the same weights, whose places are `random` or the `center`."""
        other = copy(self)
        other._modules = {**self._modules, "location": Control(self.location.grid, how, seed)}
        return other

    def reset_classifier(self, classes: int) -> None:
        """A new, untrained last layer for so many classes."""
        old = self.classifier
        self.classifier = nn.Linear(old.in_features, classes).to(old.weight)
        self.certainty.forget()


def planned(glimpses: int, levels: int, cells: int) -> list[tuple[int, int]]:
    """The paper's order: of each glimpse, which of the things read it is chosen in, and its rank among the cells."""
    steps, first, parents = list[tuple[int, int]](), 0, 1
    for count in plan(glimpses, levels, cells):
        shares = shared_out(count, [cells] * parents)
        steps += [(first + i, rank) for i, share in enumerate(shares) for rank in range(share)]
        first, parents = first + parents, count
    return steps


def evenness(probability: Tensor) -> Tensor:
    """The entropy of probabilities of cells (…,cells) as a share of the largest: 1 where all are alike."""
    return torch.special.entr(probability.detach().float()).sum(-1) / math.log(max(2, probability.shape[-1]))


def plan(glimpses: int, levels: int, cells: int) -> list[int]:
    """How many glimpses each level below the first gets: as many as the next, the odd ones first, none beyond what the
    level above has cells for. 4 of 3 levels are 2 and 2, as in the paper."""
    most, counts, parents = sum(cells**level for level in range(1, levels)), list[int](), 1
    if not 0 <= glimpses <= most:
        raise BadChoice(f"a walk of {levels} levels of {cells} cells reads 0 to {most} glimpses; got {glimpses}")
    for deeper in range(levels - 1, 0, -1):
        own = min(-(-glimpses // deeper), parents * cells)
        counts.append(own)
        glimpses, parents = glimpses - own, own
    return counts


@dataclass(frozen=True)
class BagOptions(WalkOptions):
    """Tables 3 and 4. `dropout` is of whole maps of the extractor, as the paper has it here."""

    glimpses: int = 3
    levels: int = 2
    side: int | None = 224
    antialias: bool = False
    width: float = 1.0  # multiplies every number of channels
    base: int = 77  # pixels a side that a window is read at
    norm: bool = False  # batch norm, with running statistics for each level; the paper has none


@model("tnet-bagnet77", about="TNet over BagNet-77 (Tables 3 and 4)", can=("glimpses", "steps", "controls"))
def build_bag(classes: int, options: BagOptions) -> Network:
    bagnet.check(options.width, options.dropout)
    options.check(25)
    within("base, of which the extractor's cells see 77 pixels,", options.base, 77, 16384)
    extractor = BagExtractor(options.base, options.width, options.dropout, options.levels if options.norm else 0)
    once = math.ceil((options.base - 2) / 2)  # after block 13: an unpadded filter, two strides padded, one unpadded
    side = (math.ceil(once / 2) - 3) // 2 + 1
    cells = [round(i * (side - 1) / 4) for i in range(5)]  # evenly from the first to the last: of 9, every second one
    location = ByVector(extractor.channels, extractor.width, Grid(5, 0.34375), cells, options.sharpness)
    place = Concatenated(extractor.width)
    module = TNet(extractor, location, place, classes, replace(options, dropout=0.0))  # the extractor drops
    bagnet.glorot(module)
    location.begin()
    transform = options.squashing(options.base, bagnet.prepare(1))
    return Network(module, transform, tuple(map(str, range(classes))))


@dataclass(frozen=True)
class B0Options(WalkOptions):
    drop_path: float = 0.0


@model("tnet-b0", about="TNet over EfficientNet-B0 (Table 5)", can=("glimpses", "steps", "controls"))
def build_b0(classes: int, options: B0Options) -> Network:
    import timm

    options.check(9)
    module = timm.create_model("efficientnet_b0", num_classes=0, drop_path_rate=options.drop_path)
    location = ByExcitation(80, Grid(3, 0.5), (2, 6, 10), options.sharpness)
    net = TNet(B0Extractor(module, 224), location, Added(1280), classes, options)
    prepare = Prepare((224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), None, "bicubic")
    return Network(net, options.squashing(224, prepare), tuple(map(str, range(classes))))


@dataclass(frozen=True)
class TimmOptions(WalkOptions):
    base: int | None = None  # pixels a side that a window is read at; None is the network's own
    grid: int = 3
    fraction: float = 0.5  # of a window's side, of each region
    norms: str = "level"  # each level has its own running statistics of batch norm; "shared" is one set for all
    stage: int | None = None  # the map that locations are chosen by

    def __post_init__(self) -> None:
        if self.grid < 1 or not 0 < self.fraction <= 1:
            raise BadChoice(f"a grid is at least 1, its regions a share up to 1; got {self.grid} and {self.fraction}")
        self.check(self.grid**2)
        if self.norms not in ("level", "shared"):
            raise BadChoice(f"norms is level or shared; got {self.norms!r}")
        for name, given in (("base", self.base), ("side", self.side)):
            within(name, 1 if given is None else given, 1, 16384)


def maps_of(features: Network, stage: int | None) -> int | None:
    """The stage asked for, of a network of timm's that gives the maps between its layers, and has that one."""
    if not hasattr(features.module, "forward_intermediates") or not getattr(features.module, "feature_info", None):
        raise BadChoice(f"{features.name or 'this network'} gives no maps between its layers (forward_intermediates)")
    stages = len(list(features.module.feature_info))  # type: ignore[arg-type]
    if stage is not None and not 0 <= stage < stages:
        raise BadChoice(f"{features.name or 'this network'} has the maps 0 to {stages - 1}; got stage={stage}")
    return stage


@model(
    "tnet",
    about="TNet over a network of timm's, built the way of Table 5",
    over="timm",
    can=("glimpses", "steps", "controls"),
)
def build_timm(features: Network, classes: int, options: TimmOptions) -> Network:
    stage = maps_of(features, options.stage)
    prepare = prepare_of(features)
    base = prepare.size[0] if options.base is None else options.base
    extractor = TimmExtractor(features.module, base, stage, options.levels if options.norms == "level" else 1)
    location = ByExcitation(extractor.channels, Grid(options.grid, options.fraction), None, options.sharpness)
    net = TNet(extractor, location, Added(extractor.width), classes, options)
    return Network(net, options.squashing(base, prepare), tuple(map(str, range(classes))))
