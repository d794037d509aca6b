"""What detectors find: boxes with a class and a score each; the score of a class, and of a box that is asked for.

A score is given as log odds, so that what is nearly sure still has a gradient: its sigmoid is the detector's score."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fovea.basics import BadChoice, shown
from fovea.networks.adapters import Read
from fovea.pictures import Placement, inwards

FLOOR = -16.0  # log odds of a class that no box is of
NUMBER = r"\s*-?\d{1,9}(?:\.\d{1,9})?\s*"
FOUR = re.compile(rf"{NUMBER}(?:[, ]{NUMBER}){{3}}")


@dataclass(frozen=True)
class Candidates:
    """All that a detector considers in one picture, its doubtful ones too."""

    boxes: Tensor  # M,4: x0 y0 x1 y1 as shares of the input
    labels: Tensor  # M
    odds: Tensor  # M

    @staticmethod
    def of(boxes: Tensor, labels: Tensor, scores: Tensor) -> "Candidates":
        return Candidates(boxes.detach(), labels, torch.logit(scores.float(), eps=1e-7))


Consider = Callable[[Any], list[Candidates]]  # what a module returns to the candidates of every picture


def best_of_classes(considered: list[Candidates], classes: int) -> Tensor:
    """The score of the best box of every class, N,C."""
    rows = []
    for picture in considered:
        none = picture.odds.new_full((classes,), FLOOR)
        rows.append(none.scatter_reduce(0, picture.labels, picture.odds, "amax"))
    return torch.stack(rows)


@dataclass(frozen=True)
class Boxes:
    """Boxes as targets, x0 y0 x1 y1 in the user's pixels: the score of the nearest that the detector considers."""

    consider: Consider
    placed = True

    def takes(self, item: Any) -> bool:
        if isinstance(item, str):
            return FOUR.fullmatch(item) is not None
        if isinstance(item, (Tensor, np.ndarray)):
            return tuple(item.shape) == (4,) and "int" not in str(item.dtype)
        return isinstance(item, tuple) and len(item) == 4 and all(isinstance(side, (int, float)) for side in item)

    def name(self, item: Any) -> str:
        return f"box {' '.join(f'{side:g}' for side in _sides(item))}"

    def read(self, items: Sequence[Any], placements: Sequence[Placement | None]) -> Read:
        from torchvision.ops import generalized_box_iou  # which takes a second to import

        wanted = [torch.tensor(_sides(item)).view(1, 4) for item in items]  # in the user's pixels

        def read(out: Any) -> Tensor:
            considered = self.consider(out)
            rows = []
            # a batch may be tried again and again, in changed versions
            for picture, placement in zip(considered, cycle(placements), strict=False):
                if placement is None:
                    raise BadChoice("a box is in a picture's pixels, and this input has none")
                side = torch.tensor(placement.input * 2)
                asked = torch.cat([inwards(box.tolist(), placement) / side for box in wanted]).to(picture.boxes)
                near = (1 + generalized_box_iou(picture.boxes, asked)) / 2  # boxes apart are near each other, too
                likeness = near * picture.odds.detach().sigmoid().unsqueeze(1)  # M,K
                best = likeness.argmax(0) if len(likeness) else None
                rows.append(picture.odds[best] if best is not None else asked.new_full((len(asked),), FLOOR))
            return torch.stack(rows)

        return read


def _sides(item: Any) -> tuple[float, ...]:
    sides = tuple(map(float, re.findall(r"-?[\d.]+", item) if isinstance(item, str) else item))
    if not sides[0] < sides[2] or not sides[1] < sides[3]:
        raise BadChoice(f"a box is x0 y0 x1 y1 with x0 < x1 and y0 < y1, in the picture's pixels; got {shown(item)}")
    return sides
