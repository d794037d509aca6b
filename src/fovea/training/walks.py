"""How a network that reads glimpses does on a test set: its answers, and whether it looked where the thing was.

With top-k selection a policy narrows early; then accuracy stands still while glimpses miss. Both are told.
"""

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.glimpses.walks import where_it_looked
from fovea.models.glimpsing import walked
from fovea.networks.network import Network
from fovea.training.pictures import HeldOut
from fovea.training.scoring import Classified, hits, shares, summed


class Walked(Classified[HeldOut]):
    """Top-1 and, at each level, the share of pictures with boxes where a glimpse has a box's middle in it."""

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        module.eval()
        counts, found, dtype = torch.zeros(3, dtype=torch.float64), dict[str, Tensor](), next(module.parameters()).dtype
        for inputs, labels, boxes in self.held.with_boxes(size, fabric.global_rank, fabric.world_size):
            out = module(inputs.to(dtype))
            counts += hits(network.read(out), labels)
            looked = where_it_looked(out, boxes) if walked(out) else {}
            for key, values in looked.items():
                known = torch.from_numpy(values[~np.isnan(values)])
                both = torch.tensor([float(known.sum()), len(known)], dtype=torch.float64)
                found[key] = found.get(key, torch.zeros_like(both)) + both
        score = shares(counts, fabric, len(network.labels or ()))
        names = [f"found_at_{level}" for level in range(2, int(getattr(module, "levels", 2)) + 1)]
        nothing = torch.zeros(2, dtype=torch.float64)
        all_of_them = torch.stack([found.get(key, nothing) for key in names]) if names else nothing.view(1, 2)
        rows = zip(names, summed(all_of_them, fabric).tolist(), strict=False)
        return score | {key: hit / count for key, (hit, count) in rows if count > 0}
