"""How a network that reads glimpses does on a test set: its answers, and whether it looked where the thing was.

With top-k selection a policy narrows early; then accuracy stands still while glimpses miss. Both are told.
"""

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.nets.glimpsing import Walk
from fovea.network import Network
from fovea.train.feed import HeldOut


class Walked:
    """Top-1 and, at each level, the share of pictures with boxes where a glimpse has a box's middle in it."""

    def __init__(self, held: HeldOut) -> None:
        self.held = held

    @property
    def skipped(self) -> list[tuple[str, str]]:
        return self.held.skipped

    def __len__(self) -> int:
        return len(self.held)

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        from fovea.train.media import hits, shares

        module.eval()
        counts, found, dtype = torch.zeros(3, dtype=torch.float64), dict[int, Tensor](), next(module.parameters()).dtype
        for inputs, labels, boxes in self.held.with_boxes(size, fabric.global_rank, fabric.world_size):
            out = module(inputs.to(dtype))
            counts += hits(network.read(out), labels)
            if isinstance(out, Walk):
                for level, one in found_at(out, boxes).items():
                    found[level] = found.get(level, torch.zeros(2, dtype=torch.float64)) + one
        score = shares(counts, fabric, 0)
        for level, one in sorted(found.items()):
            both: Tensor = one.to(fabric.device)
            if fabric.world_size > 1:
                both = torch.as_tensor(fabric.all_reduce(both, reduce_op="sum"))
            if both[1] > 0:
                score[f"found_at_{level}"] = float(both[0] / both[1])
        return score


def found_at(out: Walk, boxes: list[Tensor]) -> dict[int, Tensor]:
    """At each level, in how many pictures a glimpse has the middle of a box in it, and how many have boxes.

    `boxes` are K,4 for each picture, in the scene's pixels.
    """
    read, counts = out.boxes.cpu(), dict[int, Tensor]()
    for level in sorted(set(out.levels) - {1}):
        own = [i for i, one in enumerate(out.levels) if one == level]
        hit = [bool(holds(read[n, own], its).any()) for n, its in enumerate(boxes) if len(its)]
        counts[level] = torch.tensor([sum(hit), len(hit)], dtype=torch.float64)
    return counts


def holds(regions: Tensor, boxes: Tensor) -> Tensor:
    """Whether each region has the middle of each box in it: G,4 and K,4 to G,K."""
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2  # K,2
    inside = (middle >= regions[:, None, :2]) & (middle < regions[:, None, 2:])
    return inside.all(2)
