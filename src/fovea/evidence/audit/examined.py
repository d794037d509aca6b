"""What an audit notes of every picture: the answer, and the patches that speak for it, each tried alone and hidden.

Patches are LIP's, of what each cell adds to the answer's logit; what is hidden is the mean gray."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fovea import networks
from fovea.basics import Record, Text
from fovea.evidence.where import SHARE, demand_classes
from fovea.heatmaps import HeatMaps, look_at
from fovea.networks import Network, filling, shares_of
from fovea.patches import Settings, on_picture, pick, squares
from fovea.pictures import Shown, inwards

PATCHES = 4  # of a picture
SIDE = 2 / 7  # of the shorter side of the input
APART = Settings(PATCHES, overlap=0.15, share=1.0)  # LIP's
WIDTH = 64  # numbers that a patch is known by
AT_ONCE = {"cpu": 4, "cuda": 128}  # versions of pictures that pass the network at once
HALF = 0.5  # of the margin
Box = tuple[float, float, float, float]
Boxes = Sequence[Sequence[float]]


class TriedPatch(Record):
    """A part of a picture that speaks for its answer."""

    box: Box  # in the user's pixels
    center: tuple[float, float]  # in shares of the input's width and height
    evidence: float  # what the cell in its middle adds to the answer's logit, times the number of cells
    alone: float  # the probability of the answer where all else is hidden
    carries: bool  # and it comes first even so
    needed: bool  # another class comes first where it is hidden
    inside: float | None = None  # of it, in the picture's boxes


class Examined(Record):
    """One picture."""

    name: Text
    truth: int | None  # the class that it is of, as the network counts them
    answer: int
    runner_up: int
    probability: float
    margin: float  # of the answer's logit above the runner-up's
    told_by: float  # the share of the picture that half of this margin comes from
    patches: tuple[TriedPatch, ...]
    inside: float | None = None  # of the evidence, in the picture's boxes
    without: int | None = None  # the class that comes first where the boxes are hidden

    @property
    def right(self) -> bool | None:
        return None if self.truth is None else self.truth == self.answer


Vectors = NDArray[np.float32]  # K,WIDTH: what the network makes of each patch alone, of unit length


@dataclass(frozen=True)
class Examination:
    """Pictures that are examined together."""

    network: Network
    tensors: Tensor  # N,C,H,W
    shown: Sequence[Shown]
    truths: Sequence[int | None]
    boxes: Sequence[Boxes]  # of each picture, in the user's pixels; none where there are none

    @property
    def size(self) -> tuple[int, int]:
        return self.tensors.shape[2], self.tensors.shape[3]

    def examined(self) -> list[tuple[Examined, Vectors]]:
        """By one pass for the maps, two for each patch, and one where a picture has boxes."""
        maps, output = look_at(self.network, self.tensors, self.shown, [SHARE], ["top2", "contrast"])
        seen, classes = maps[SHARE.name], demand_classes(self.network, output)
        shares, inner = shares_of(self.network, output), [*map(self._inner, range(len(self.shown)))]
        squared = squares((seen.grid[0], seen.grid[1]), self.size, max(round(SIDE * min(self.size)), 1))
        picks = pick(seen.values[:, 0].detach().float().cpu(), squared, APART)
        there = (picks.cells >= 0) & (picks.values > 0)  # what speaks for the answer
        there[:, 0] = picks.cells[:, 0] >= 0
        owners, found = there.nonzero()[:, 0], picks.boxes[there]  # M  M,4
        masks = torch.stack([self._mask([box]) for box in found.tolist()])
        alone, vectors = self._tried(owners, masks)
        hidden, _ = self._tried(owners, ~masks)
        without = self._without(inner)
        pictures = []
        for i, picture in enumerate(self.shown):
            answer, runner = classes[i].tolist()
            rows = (owners == i).nonzero()[:, 0].tolist()
            patches = tuple(
                self._patch(i, answer, found[row].tolist(), float(value), alone[row], hidden[row], inner[i])
                for row, value in zip(rows, picks.values[i].tolist(), strict=False)
            )
            made = Examined(
                name=picture.name,
                truth=self.truths[i],
                answer=answer,
                runner_up=runner,
                probability=float(shares[i, answer]),
                margin=float(output[i, answer] - output[i, runner]),
                told_by=_told_by(seen, i),
                patches=patches,
                inside=_inside(seen, i, self._mask(inner[i])) if inner[i] else None,
                without=without.get(i),
            )
            pictures.append((made, vectors[rows]))
        return pictures

    def _inner(self, i: int) -> list[list[float]]:
        """The picture's boxes in pixels of the input."""
        placement = self.shown[i].placement
        return inwards(self.boxes[i], placement).tolist() if placement is not None and self.boxes[i] else []

    def _mask(self, boxes: Boxes) -> Tensor:
        """True in the boxes: H,W."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        for x0, y0, x1, y1 in (map(round, box) for box in boxes):
            mask[max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)] = True
        return mask

    def _without(self, inner: Sequence[Boxes]) -> dict[int, int]:
        """The class that comes first where a picture's boxes are hidden."""
        rows = [i for i, boxes in enumerate(inner) if boxes]
        if not rows:
            return {}
        outputs, _ = self._tried(torch.tensor(rows), torch.stack([~self._mask(inner[i]) for i in rows]))
        return dict(zip(rows, outputs.argmax(1).tolist(), strict=True))

    def _tried(self, owners: Tensor, masks: Tensor) -> tuple[Tensor, Vectors]:
        """What the network gives where only a mask's part of a picture is shown (M,classes), and what it makes of that
        part: the mean of its features over the cells there."""
        fill, outputs, vectors = filling("mean", self.network, self.tensors).to(self.tensors), [], []
        for start in range(0, len(owners), self._many):
            some, shown = owners[start : start + self._many], masks[start : start + self._many]
            where = shown[:, None].to(self.tensors.device)
            features, output = _features(self.network, torch.where(where, self.tensors[some], fill))
            demand_classes(self.network, output)
            cells = F.adaptive_avg_pool2d(where.to(features), (features.shape[2], features.shape[3]))
            vectors.append(_known_by((features * cells).sum((2, 3)) / cells.sum((2, 3)).clamp(min=1e-6)))
            outputs.append(output.float().cpu())
        return torch.cat(outputs), np.concatenate(vectors)

    @property
    def _many(self) -> int:
        return AT_ONCE.get(self.tensors.device.type, 64)

    def _patch(
        self,
        i: int,
        answer: int,
        box: list[int],
        evidence: float,
        alone: Tensor,
        hidden: Tensor,
        inner: list[list[float]],
    ) -> TriedPatch:
        (height, width), (x0, y0, x1, y1) = self.size, box
        mask = self._mask([box])
        return TriedPatch(
            box=on_picture(box, self.shown[i]),
            center=((x0 + x1) / (2 * width), (y0 + y1) / (2 * height)),
            evidence=evidence,
            alone=float(shares_of(self.network, alone)[answer]),
            carries=int(alone.argmax()) == answer,
            needed=int(hidden.argmax()) != answer,
            inside=float((self._mask(inner) & mask).sum() / mask.sum()) if inner else None,
        )


def _features(network: Network, batch: Tensor) -> tuple[Tensor, Tensor]:
    """B,k,h,w at the cut, and the output, by one pass."""
    with networks.switched(network) as parts, torch.no_grad():
        made = networks.cut(network, batch, None, parts)
        with networks.turn(network, parts, made.quiet):
            opened = made.open(batch)
            cells = opened.layout.by_cell(opened.features.detach())  # B,k,P
            return cells.reshape(*cells.shape[:2], *opened.layout.grid).float(), opened.output.detach()


def _known_by(features: Tensor) -> Vectors:
    """Any number of features in few, by a projection that is always the same: B,WIDTH of unit length."""
    draw = torch.Generator().manual_seed(features.shape[1])
    onto = torch.randn(features.shape[1], WIDTH, generator=draw)
    return F.normalize(features.cpu() @ onto, dim=1).numpy()


def _told_by(seen: HeatMaps, i: int) -> float:
    """The share of the cells that half of what speaks for the answer rather than the runner-up comes from."""
    cells = np.sort(seen.map(i, 2).clip(0).ravel())[::-1]
    total = cells.sum()
    return float((np.cumsum(cells) < HALF * total).sum() + 1) / len(cells) if total > 0 else 1.0


def _inside(seen: HeatMaps, i: int, mask: Tensor) -> float:
    """The share of the evidence for the answer that lies in a mask of the input."""
    cells = torch.from_numpy(seen.map(i).clip(0))
    where = F.adaptive_avg_pool2d(mask[None].float(), (cells.shape[0], cells.shape[1]))[0]
    return float((cells * where).sum() / cells.sum().clamp(min=1e-9))
