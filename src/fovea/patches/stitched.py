"""The evidence of the whole of a picture too large to load, by a network whose cells see known patches.

Evidence is each cell's own, so tiles have it. Attention is a softmax over all cells, twice: the tiles are gone through
once for the weights of the channels (Eqs. 6 to 8), and again for the cells' (Eqs. 9 and 10) with these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fovea.basics import BadChoice, tell
from fovea.heatmaps import Level, side_of
from fovea.models.anchoring import Attention, decide
from fovea.networks import Network, as_found, blank, shares_of
from fovea.networks.geometry.tiles import Tiling, tiling
from fovea.patches.scales import Anchored, branches_of


@dataclass
class Averaged:
    """The mean of values over cells that come in parts, weighed by the softmax of their scores over all of them."""

    top: float = -torch.inf
    weight: float = 0.0
    total: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))

    def add(self, scores: Tensor, values: Tensor) -> None:
        """P and C,P."""
        top = max(self.top, float(scores.max()))
        before, shares = float(torch.tensor(self.top - top).exp()), (scores.double() - top).exp()
        self.total = self.total * before + (values.double() * shares).sum(1).cpu()
        self.top, self.weight = top, self.weight * before + float(shares.sum())

    @property
    def mean(self) -> Tensor:
        return (self.total / self.weight).float()

    def softmax(self, scores: Tensor) -> Tensor:
        """Of all scores, by what was added."""
        return ((scores.double() - self.top).exp() / self.weight).float()


@dataclass(frozen=True)
class WholeEvidence:
    """The decided branch's map for the decided class, as the network has it of the whole."""

    values: Tensor  # h,w: evidence times attention
    branch: int
    side: int
    label: int
    probability: float
    logits: Tensor  # classes: of the branch
    tiling: Tiling

    def boxes(self, cells: Tensor) -> Tensor:
        """The patches of cells, counted in reading order, in the pixels of the level: M,4."""
        rows, columns = self.tiling.axes
        down, across = rows.fields[self.branch], columns.fields[self.branch]
        y = cells // self.values.shape[1] * rows.stride + int(down.start)
        x = cells % self.values.shape[1] * columns.stride + int(across.start)
        return torch.stack([x, y, x + int(across.size), y + int(down.size)], 1)


def whole_evidence(
    network: Network, level: Level, label: int | None, branch: int | None, guess: int
) -> WholeEvidence | None:
    """For a class, or for the decided one, which is taken to be the `guess` until it is known; by the branch with a
    side, or the decided one. None where a cell's evidence is not its own patch's alone."""
    module, usual = branches_of(network), blank(network)
    made = tiling(module.geometries, level.size, (usual.shape[2], usual.shape[3])) if module.proven else None
    if made is None:
        return None
    sides = [int(axis.size) for axis in made.axes[0].fields]
    if branch is not None and branch not in sides:
        raise BadChoice(f"no branch of {branch} pixels (there are: {', '.join(map(str, sides))})")
    with as_found(network), torch.no_grad():
        tiles = _Tiles(module, level, made)
        channels = tiles.channels()
        scores, evidence, pools = tiles.read(channels, guess if label is None else label)
        logits = [pool.mean for pool in pools]
        decided = decide([row.unsqueeze(0) for row in logits])
        wanted, chosen = int(decided.label), int(decided.branch)
        shares = shares_of(network, torch.stack(logits))
        if label is not None:
            wanted, chosen = label, int(shares[:, label].argmax())
        chosen = chosen if branch is None else sides.index(branch)
        if label is None and wanted != guess:
            evidence = tiles.read(channels, wanted)[1]
    values, cells = evidence[chosen], evidence[chosen].numel()
    if channels[chosen] is not None:
        scale = cells if module.branches[chosen].rescale else 1
        values = values * pools[chosen].softmax(scores[chosen]) * scale
    about = chosen, sides[chosen], wanted, float(shares[chosen, wanted]), logits[chosen], made
    return WholeEvidence(values, *about)


@dataclass(frozen=True)
class _Tiles:
    module: Anchored
    level: Level
    tiling: Tiling

    @property
    def attentions(self) -> list[Attention | None]:
        return [branch.attention for branch in self.module.branches]

    def each(self, words: str) -> Iterator[tuple[int, tuple[slice, slice], Tensor, Tensor | None]]:
        """Tile by tile and branch by branch: the branch, which cells of the whole, their evidence and features."""
        tiles = self.tiling.tiles(side_of(self.tiling))
        for place, tile in enumerate(tiles):
            tell(f"{words}: tile {place + 1:,} of {len(tiles):,}")
            for number, (evidence, attended) in enumerate(self.module.cells(self.level.read(tile.rows, tile.columns))):
                inner = (slice(None), slice(None), *tile.inner(number))
                yield number, tile.outer(number), evidence[inner], None if attended is None else attended[inner]
        tell("")

    def channels(self) -> list[Tensor | None]:
        """What each channel counts in every branch's attention: C of Eq. 8."""
        if not any(self.attentions):
            return [None] * len(self.attentions)
        pools = [Averaged() for _ in self.attentions]
        for number, _, _, attended in self.each("channels"):
            attention = self.attentions[number]
            if attention is not None and attended is not None:
                pools[number].add(attention.scores(attended)[0], attended[0].flatten(1))
        return [
            None if attention is None else pool.mean.softmax(0).to(self.level.network.device)
            for attention, pool in zip(self.attentions, pools, strict=True)
        ]

    def read(self, channels: Sequence[Tensor | None], label: int) -> tuple[list[Tensor], list[Tensor], list[Averaged]]:
        """Of every branch the cells' scores (whose softmax is Eq. 10), their evidence for a class, and what it makes of
        the whole for all classes."""
        scores, evidence = ([torch.zeros(grid) for grid in self.tiling.grids] for _ in range(2))
        pools = [Averaged() for _ in channels]
        for number, (rows, columns), found, attended in self.each("evidence"):
            evidence[number][rows, columns] = found[0, label].cpu()
            weights = channels[number]
            if attended is not None and weights is not None:
                cells = Attention.weighed(attended, weights[None]).view(found.shape[2:])
                scores[number][rows, columns] = cells.cpu()
            pools[number].add(scores[number][rows, columns].flatten().to(found.device), found[0].flatten(1))
        for number, branch in enumerate(self.module.branches):
            if channels[number] is not None and not branch.rescale:
                pools[number].total /= evidence[number].numel()
        return scores, evidence, pools
