"""Any loadable network as a trunk: pictures in, the map before its pooling out."""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from fovea.errors import BadNetwork
from fovea.layout import layout_of
from fovea.network import Network
from fovea.transforms import Prepare

POOLS = ("avgpool", "global_pool")  # what comes after the last map, where layers follow each other


class Trunk(nn.Module):
    """N,C,H,W to N,channels,h,w, whatever order the network itself keeps its axes in."""

    def __init__(self, body: nn.Module, size: tuple[int, int], inputs: int = 3) -> None:
        super().__init__()
        self.body = body
        before = self.training
        self.eval()
        with torch.no_grad():
            self.channels = int(self(torch.zeros(1, inputs, *size)).shape[1])
        self.train(before)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.body.forward_features(x) if hasattr(self.body, "forward_features") else self.body(x)  # type: ignore[operator]
        layout = layout_of(features, x) if isinstance(features, Tensor) else None  # or a list of maps
        if layout is None:
            raise BadNetwork(f"{type(self.body).__name__} has no map of its cells before its pooling")
        if layout.kind == "channels first":
            return features
        cells = layout.by_cell(features)  # N,k,P
        return cells.reshape(*cells.shape[:2], *layout.grid)


def trunk_of(network: Network, last_pool: bool = True) -> Trunk:
    """A copy of a network up to its last map, without the layers after it. `last_pool=False` leaves a max-pool out that
    the map would come from, as VGG's has: it is twice as wide and high then."""
    if not isinstance(network.transform, Prepare):
        raise BadNetwork(f"{network.name or 'the network'} has no transform that tells how large its pictures are")
    body = _body(copy.deepcopy(network.module), network.name)
    if not last_pool and isinstance(body, nn.Sequential) and isinstance(body[-1], nn.MaxPool2d):
        body = body[:-1]
    return Trunk(body, network.transform.size, len(network.transform.mean))


def _body(module: Any, name: str) -> nn.Module:
    features = getattr(module, "features", None)
    if isinstance(features, nn.Sequential):  # VGG and its like: no more is needed
        return features
    if hasattr(module, "forward_features"):  # timm's
        if hasattr(module, "reset_classifier"):
            module.reset_classifier(0)
        body: nn.Module = module
        return body
    layers = OrderedDict(module.named_children())
    pool = next((one for one in POOLS if one in layers), None)
    if pool is None:
        raise BadNetwork(
            f"{name or type(module).__name__} cannot be cut before its pooling: give a network of timm's, one with "
            "'features', or one whose layers are followed by 'avgpool'"
        )
    before = list(layers)[: list(layers).index(pool)]
    return nn.Sequential(OrderedDict((one, layers[one]) for one in before))
