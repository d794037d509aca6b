"""How a network that reads glimpses does on a test set: its answers, and whether it looked where the thing was.

With top-k selection a policy narrows early; then accuracy stands still while glimpses miss. Both are told.
"""

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.measure.zoom import where_it_looked
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
        counts, found, dtype = torch.zeros(3, dtype=torch.float64), dict[str, Tensor](), next(module.parameters()).dtype
        for inputs, labels, boxes in self.held.with_boxes(size, fabric.global_rank, fabric.world_size):
            out = module(inputs.to(dtype))
            counts += hits(network.read(out), labels)
            looked = where_it_looked(out, boxes) if isinstance(out, Walk) else {}
            for key, values in looked.items():
                known = torch.from_numpy(values[~np.isnan(values)])
                both = torch.tensor([float(known.sum()), len(known)], dtype=torch.float64)
                found[key] = found.get(key, torch.zeros_like(both)) + both
        score = shares(counts, fabric, 0)
        for key in sorted(one for one in found if one.startswith("found_at_")):
            both = found[key].to(fabric.device)
            if fabric.world_size > 1:
                both = torch.as_tensor(fabric.all_reduce(both, reduce_op="sum"))
            if both[1] > 0:
                score[key] = float(both[0] / both[1])
        return score
