"""Does a patch make others what it is? Patches of a cluster are put into pictures of other classes, where they were."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fovea.evidence.audit.clusters import Cluster
from fovea.evidence.audit.table import PatchTable
from fovea.networks import Network
from fovea.pictures import Placement, inwards

DONORS, HOSTS = 6, 12
Load = Callable[[str], tuple[Tensor, Placement] | None]  # a picture by name (C,H,W), if it is still there


def moved(network: Network, table: PatchTable, cluster: Cluster, load: Load, seed: int = 0) -> float:
    """The share of pictures of other classes that become the cluster's class with one of its patches on them."""
    random = np.random.default_rng(seed)
    others = np.flatnonzero((table.answer != cluster.label) & (table.truth != cluster.label))
    if not len(others):
        return 0.0
    hosts = random.choice(others, min(HOSTS, len(others)), replace=False)
    pictures = [found[0] for host in hosts if (found := load(table.names[host])) is not None]
    outputs = []
    for patch in cluster.patches[:DONORS]:
        if (found := load(table.names[table.picture[patch]])) is None:
            continue
        donor, placement = found
        x0, y0, x1, y1 = (round(side) for side in inwards([table.boxes[patch].tolist()], placement)[0].tolist())
        same = [host.clone() for host in pictures if host.shape == donor.shape]
        for host in same:
            host[:, max(y0, 0) : y1, max(x0, 0) : x1] = donor[:, max(y0, 0) : y1, max(x0, 0) : x1]
        outputs += _answers(network, same)
    return float(np.mean([answer == cluster.label for answer in outputs])) if outputs else 0.0


def _answers(network: Network, pictures: Sequence[Tensor]) -> list[int]:
    found = list[int]()
    for start in range(0, len(pictures), 4):
        batch = torch.stack([*pictures[start : start + 4]]).to(network.device, network.dtype)
        with torch.no_grad():
            found += network(batch).argmax(1).tolist()
    return found
