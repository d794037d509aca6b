"""Heatmaps that LIP can be run on, of any network: each with the box that its cells stand for.

AnchorNet has one per branch, whose cells see their own patch and nothing else. Of an ordinary network a heatmap is
taken: where it pads nothing (BagNet) its cells have patches of their own, too; else they see far more than the square
that is drawn around them, usually everything, and `proven` is false."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from fovea.basics import BadChoice, BadNetwork
from fovea.heatmaps import find, look_at
from fovea.models.anchoring import AnchorNetOutput, Branch
from fovea.networks import Network, as_found, geometry, shares_of
from fovea.networks.geometry.cells import Geometry
from fovea.patches.lip import Picks, Settings, pick
from fovea.pictures import Shown

Choice = Callable[[int, Sequence[int]], Settings]  # side of the patches and size of the input to LIP's settings
SIDE = 95  # of an ordinary network's patches at 224 pixels


@runtime_checkable
class Anchored(Protocol):
    """A module whose branches see known patches."""

    def geometries(self, size: tuple[int, int]) -> tuple[Geometry, ...]:
        """What the cells of every branch stand for, for an input of this height and width."""
        ...

    def cells(self, x: Tensor) -> Sequence[tuple[Tensor, Tensor | None]]:
        """Of every branch, what each cell has by itself: evidence and the attention's features."""
        ...

    @property
    def branches(self) -> Sequence[Branch]: ...

    @property
    def proven(self) -> bool:
        """Whether a cell's evidence comes from its own patch alone."""
        ...


@dataclass(frozen=True)
class Scale:
    """One heatmap per picture, and the patch of every cell."""

    side: int  # of the patches, in the input's pixels
    values: Tensor  # N,h,w: evidence for the decided class
    boxes: Tensor  # h*w,4: in the input's pixels
    logits: Tensor  # N,classes
    own: Tensor | None = None  # N,h,w: evidence for what this branch alone takes the picture for
    attention: Tensor | None = None  # N,h,w

    @property
    def grid(self) -> tuple[int, int]:
        return self.values.shape[1], self.values.shape[2]


@dataclass(frozen=True)
class Look:
    """A batch as a network sees it at every scale, its decision, and the scale that localizes."""

    scales: tuple[Scale, ...]
    chosen: Tensor  # N: number of the scale
    label: Tensor  # N
    probability: Tensor  # N: that the chosen scale gives the label
    output: Tensor  # N,classes
    proven: bool
    source: str  # where the heatmap comes from

    def picks(self, settings: Choice | Settings, size: Sequence[int]) -> list[tuple[Tensor, Picks]]:
        """LIP on the chosen scale of every picture: for each scale the pictures (n) that it localizes, and picks."""
        found = []
        for number, scale in enumerate(self.scales):
            own = (self.chosen == number).nonzero()[:, 0]  # n
            wanted = settings if isinstance(settings, Settings) else settings(scale.side, size)
            found.append((own, pick(scale.values[own], scale.boxes, wanted)))
        return found


def look(
    network: Network,
    batch: Tensor,
    label: Tensor | None = None,
    branch: int | None = None,
    method: str = "l2caf",
    side: int | None = None,
    shown: Sequence[Shown] | None = None,
) -> Look:
    """`label` (N): look for these classes instead of the decided ones; `branch`: localize by the one with this side.
    `method` and `side` are for networks without branches: whose map it is, and how large its patches are."""
    if network.can("branches"):
        return _anchored(network, batch, label, side if branch is None else branch)
    return _ordinary(network, batch, label, method, branch if side is None else side, shown)


def branches_of(network: Network) -> Anchored:
    """The module, of a network with branches."""
    if not network.can("branches"):
        mend = "take one that has, such as anchornet-imagenette, or ask about a class of a data set"
        raise BadNetwork(f"{network.name or 'the network'} has no branches to compare: {mend}")
    return cast(Anchored, network.module)


def seen_by_branches(network: Network, batch: Tensor) -> tuple[AnchorNetOutput, list[Tensor], list[int]]:
    """What a network with branches makes of a batch; of each branch the boxes of its cells (P,4) and their side."""
    with as_found(network), torch.no_grad():
        out: AnchorNetOutput = network.answer(batch)
    boxes = [geometry.boxes() for geometry in branches_of(network).geometries((batch.shape[2], batch.shape[3]))]
    return out, boxes, [int(box[0, 2] - box[0, 0]) for box in boxes]


def _anchored(network: Network, batch: Tensor, label: Tensor | None, branch: int | None) -> Look:
    out, boxes, sides = seen_by_branches(network, batch)
    shares = torch.stack([shares_of(network, seen.logits) for seen in out.branches])  # J,N,classes
    every = torch.arange(len(batch), device=batch.device)
    chosen, decided = out.decision.branch, out.decision.label
    if label is not None:
        decided = label.to(batch.device)
        chosen = shares[:, every, decided].argmax(0)
    if branch is not None:
        if branch not in sides:
            raise BadChoice(f"no branch of {branch} pixels (there are: {', '.join(map(str, sides))})")
        chosen = torch.full_like(chosen, sides.index(branch))
    scales = []
    for side, seen, box in zip(sides, out.branches, boxes, strict=True):
        values, own = (seen.activation[every, one].float() for one in (decided, seen.logits.argmax(1)))
        scales.append(Scale(side, values, box, seen.logits, own, seen.attention))
    probability = shares[chosen, every, decided]
    source = f"branches of {'/'.join(map(str, sides))} pixels"
    return Look(tuple(scales), chosen, decided, probability, out.logits, branches_of(network).proven, source)


def _ordinary(
    network: Network, batch: Tensor, label: Tensor | None, method: str, side: int | None, shown: Sequence[Shown] | None
) -> Look:
    height, width = batch.shape[2], batch.shape[3]
    asked, side = side, round(SIDE * min(height, width) / 224) if side is None else side
    if not 1 <= side <= min(height, width):
        raise BadChoice(f"a patch has between 1 and {min(height, width)} pixels a side; got side={side}")
    names = shown if shown is not None else [Shown(f"picture-{i}", None, picture) for i, picture in enumerate(batch)]
    maps, output = look_at(network, batch, names, [find(method)], label if label is not None else "top1")
    (seen,) = maps.values()
    if len(seen.grid) != 2 or seen.frames:
        raise BadNetwork(f"patches are cut where a map has rows and columns; {seen.layer} has {seen.grid}")
    decided = output.argmax(1) if label is None else label.to(output.device)
    probability = shares_of(network, output).gather(1, decided.unsqueeze(1))[:, 0]
    boxes = None if asked is not None else own_patches(network, seen.layer, (height, width))
    proven = boxes is not None and seen.method == "cam"  # whose values are each cell's own; others' hang together
    if boxes is None:
        boxes = squares((seen.grid[0], seen.grid[1]), (height, width), side)
    side = int(boxes[0, 2] - boxes[0, 0])
    scale = Scale(side, seen.values[:, 0].detach().float(), boxes, output)
    chosen = torch.zeros(len(batch), dtype=torch.long, device=decided.device)
    return Look((scale,), chosen, decided, probability, output, proven, f"{seen.method} at {seen.layer}")


def own_patches(network: Network, layer: str, size: tuple[int, int]) -> Tensor | None:
    """What each cell sees, P,4, where that is a square of one size that lies in the input whole: nothing is padded."""
    layers = dict(network.module.named_modules())
    padded = (getattr(module, "padding", 0) for module in layers.values())
    if layer not in layers or any(padding not in (0, (0, 0)) for padding in padded):
        return None
    boxes = geometry.of(network, layer, size).boxes()
    sides = boxes[:, 2:] - boxes[:, :2]
    whole = bool((sides == sides[0, 0]).all()) and int(sides[0, 0]) < min(size)
    return boxes if whole else None


def squares(grid: tuple[int, int], size: tuple[int, int], side: int) -> Tensor:
    """A square around the middle of each cell, moved into the input where it would stick out: P,4."""
    (rows, columns), (height, width) = grid, size
    y = ((torch.arange(rows) + 0.5) * height / rows - side / 2).round().clamp(0, height - side)
    x = ((torch.arange(columns) + 0.5) * width / columns - side / 2).round().clamp(0, width - side)
    top, left = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([left, top, left + side, top + side], 2).view(-1, 4).long()
