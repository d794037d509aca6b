"""The patches' scores of a network with branches: each branch's evidence, attention and scores for the class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fovea.networks import Network


@dataclass(frozen=True)
class Branches:
    """Of every branch the side of its cells' patches, in pixels of the input, how far they are apart, and where the
    first begins."""

    sides: tuple[int, ...]
    strides: tuple[int, ...]
    starts: tuple[int, ...]
    attended: bool

    @staticmethod
    def of(network: Network, size: Sequence[int]) -> "Branches":
        module: Any = network.module
        found = [geometry.axes[0] for geometry in module.geometries(tuple(size))]
        attended = any(branch.attention is not None for branch in module.branches)
        sides, strides, starts = zip(*((int(a.size), int(a.stride), int(a.start)) for a in found), strict=True)
        return Branches(sides, strides, starts, attended)

    @property
    def names(self) -> list[str]:
        each = ("evidence", "scores", *(("attention",) if self.attended else ()))
        return [*(f"{what}_{side}" for side in self.sides for what in each), "branch_logits", "branch"]

    def outputs(self, said: Any, classes: Tensor) -> list[Tensor]:
        """In the order of their names."""
        found = list[Tensor]()
        for branch in said.branches:
            for values in (branch.evidence, branch.activation):
                picked = classes.view(-1, 1, 1, 1).expand(-1, 1, *values.shape[2:])
                found.append(values.gather(1, picked).squeeze(1))  # N,h,w
            found += [branch.attention] if self.attended else []
        logits = torch.stack([branch.logits for branch in said.branches], 1)  # N,J,classes
        return [*found, logits, said.decision.branch]

    @property
    def about(self) -> dict[str, Any]:
        """Where the patches of a branch's cells are: cell (i, j) begins at `start` + `stride` times i, j."""
        places = zip(self.sides, self.strides, self.starts, strict=True)
        return {"branches": [{"side": side, "stride": stride, "start": start} for side, stride, start in places]}
