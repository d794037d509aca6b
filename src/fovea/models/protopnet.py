"""ProtoPNet (Chen et al. 2019): "this looks like that". A picture is told by how much its parts look like prototypes.

Every class has a few prototypes, each a vector as long as a cell of the feature map. What a cell has in common with a
prototype is a similarity of their distance; the best cell counts, and a linear layer adds similarities up. After the
projection (train/prototypes.py) a prototype is a cell of a training picture, so it can be shown."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice
from fovea.models.trunks import Trunk, prepare_of, trunk_of
from fovea.networks import Network, model

EPSILON = 1e-4
OWN, OTHER = 1.0, -0.5  # where the last layer begins: for a class's own prototypes, and those of others
NOWHERE = -1  # in place of a picture's number, before the projection


@dataclass(frozen=True)
class ProtoPNetOutput:
    """P is the number of all prototypes, class by class. What the losses need is here, too."""

    logits: Tensor  # N,classes
    maps: Tensor  # N,P,h,w: similarity of every prototype to every cell
    similarity: Tensor  # N,P: their maxima
    distances: Tensor  # N,P: the smallest squared distance to a cell
    owner: Tensor  # P: the class of each prototype
    weights: Tensor  # classes,P: of the last layer


def similarity_of(distances: Tensor) -> Tensor:
    """log((d + 1) / (d + eps)): 0 far away, 9.2 at the prototype itself."""
    return ((distances + 1) / (distances + EPSILON)).log()


class ProtoPNet(nn.Module):
    """`picture` and `cell` tell what each prototype was projected on: the number of a training picture in its data set,
    and the row and column of one of its cells. Before that they are -1. With frozen features, their norms keep their
    statistics in training."""

    abilities = frozenset({"prototypes"})

    owner: Tensor
    picture: Tensor
    cell: Tensor

    def __init__(self, features: Trunk, classes: int, width: int, prototypes: int) -> None:
        super().__init__()
        self.features = features
        first, second = nn.Conv2d(features.channels, width, 1), nn.Conv2d(width, width, 1)
        self.add_on = nn.Sequential(first, nn.ReLU(), second, nn.Sigmoid())
        for layer in self.add_on:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)  # by fan-in: no sigmoid begins at its ends
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
        self.width, self.per_class = width, prototypes
        self._own(classes)

    def _own(self, classes: int) -> None:
        """All that depends on the number of classes, which comes first in its shape."""
        count = classes * self.per_class
        like = self.add_on[0].weight  # for its device and dtype
        assert isinstance(like, Tensor)
        self.prototypes = nn.Parameter(torch.rand(classes, self.per_class, self.width).to(like))
        owner = torch.arange(classes, device=like.device).repeat_interleave(self.per_class)
        self.register_buffer("owner", owner, persistent=False)
        self.register_buffer("picture", torch.full((classes, self.per_class), NOWHERE, device=like.device))
        self.register_buffer("cell", torch.full((classes, self.per_class, 2), NOWHERE, device=like.device))
        self.last = nn.Linear(count, classes, bias=False).to(like)
        own = self.owner == torch.arange(classes, device=like.device).unsqueeze(1)  # classes,P
        with torch.no_grad():
            self.last.weight.copy_(torch.where(own, OWN, OTHER))

    def reset_classifier(self, classes: int) -> None:
        """New prototypes, and a new last layer, for so many classes."""
        self._own(classes)

    def train(self, mode: bool = True) -> "ProtoPNet":
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.features.parameters()):
            self.features.eval()
        return self

    def embedded(self, x: Tensor) -> Tensor:
        """The vectors that prototypes are compared with, in 0..1: N,width,h,w."""
        return self.embedded_of(self.features(x))

    def embedded_of(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            found: Tensor = self.add_on(features.to(self.prototypes.dtype))
        return found

    def distances(self, embedded: Tensor) -> Tensor:
        """The squared distance of every prototype to every cell: N,width,h,w to N,P,h,w. |z|² - 2 z·p + |p|² is near 0
        where it matters most, so it is worked out in double."""
        with torch.autocast(embedded.device.type, enabled=False):
            z, p = embedded.double().flatten(2), self.prototypes.double().flatten(0, 1)  # N,width,hw  P,width
            apart = z.square().sum(1, keepdim=True) - 2 * p @ z + p.square().sum(1)[:, None]  # N,P,hw
            return apart.clamp_min(0).to(self.prototypes.dtype).view(*apart.shape[:2], *embedded.shape[2:])

    def forward(self, x: Tensor) -> ProtoPNetOutput:
        if x.ndim != 4:
            raise BadChoice(f"ProtoPNet takes pictures, N,C,H,W; got {tuple(x.shape)}")
        apart = self.distances(self.embedded(x))
        with torch.autocast(x.device.type, enabled=False):
            nearest = apart.flatten(2).amin(2)  # N,P
            similarity = similarity_of(nearest)
            logits = self.last(similarity)
            return ProtoPNetOutput(logits, similarity_of(apart), similarity, nearest, self.owner, self.last.weight)


def prototypes_of(network: Network) -> ProtoPNet:
    if not isinstance(network.module, ProtoPNet):
        raise BadChoice(f"{network.name or 'the network'} has no prototypes: give a protopnet/NAME")
    return network.module


@model("protopnet", about="this looks like that: classes by prototypes", over="network", can=("prototypes",))
def build(features: Network, classes: int, width: int = 128, prototypes: int = 10) -> Network:
    """ProtoPNet over the features of any network; `prototypes` are those of each class, of `width` numbers."""
    if classes < 2:
        raise BadChoice(f"prototypes tell classes apart: at least 2 are needed; got {classes}")
    for name, given in (("width", width), ("prototypes", prototypes)):
        if given < 1:
            raise BadChoice(f"{name} is at least 1; got {given}")
    module = ProtoPNet(trunk_of(features), classes, width, prototypes)
    return Network(module, prepare_of(features), tuple(map(str, range(classes))), "add_on")
