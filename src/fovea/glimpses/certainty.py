"""Walks to their last glimpse, and how certain a network is after each thing that it reads."""

from typing import cast

import torch
from torch import Tensor

from fovea.glimpses.routes import stepping
from fovea.models.glimpsing import Certainty, Pixels, Route, Stepping, Walk
from fovea.networks import Network, as_found


def walks_of(network: Network, batch: Tensor, route: Route) -> list[Walk]:
    """The walks of pictures, N,C,H,W, along a route to its last glimpse; of each picture one."""
    (module, route), antialias = stepping(network, route), bool(getattr(network.module, "antialias", True))
    with as_found(network), torch.no_grad():
        walks = [module.descend(Pixels(picture, antialias), route) for picture in batch.unsqueeze(1)]
        module.advance(walks)
        while going := [
            walk for walk in walks if walk.pending is not None and walk.walk.glimpses < (route.glimpses or 0)
        ]:
            module.advance(going)
    return [walk.walk for walk in walks]


def certain(network: Network, walk: Walk, certainty: Certainty | None = None) -> Tensor:
    """Calibrated probabilities after each thing read: N,V,classes; by another calibration than the network's, maybe."""
    known = cast(Stepping, network.module).certainty if certainty is None else certainty
    return torch.stack([known(logits, things) for things, logits in enumerate(walk.after.unbind(1), 1)], 1)
