"""What ProtoPNet is trained by (Chen et al. 2019)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.models.protopnet import ProtoPNetOutput
from fovea.training.losses import Loss, loss
from fovea.training.parts import NotNegative, Smoothing


@loss(
    "prototypes",
    about="cross-entropy, cells near a prototype of their class and far from those of others",
    reads="output",
    needs=("distances", "owner", "weights"),
    such_as="protopnet/NAME",
)
class Prototypes(Loss):
    """Cross-entropy + cluster * Clst - separation * Sep + l1 * |weights of other classes' prototypes|_1. Clst is the
    mean over pictures of the smallest squared distance between a cell and a prototype of the picture's own class, Sep
    that of the smallest one between a cell and any other class's."""

    smoothing: Smoothing = 0.0
    cluster: NotNegative = 0.8  # how much it counts that each picture is near a prototype of its class
    separation: NotNegative = 0.08  # and far from those of others
    l1: NotNegative = 1e-4  # of the last layer's weights between classes and others' prototypes

    def __call__(self, out: ProtoPNetOutput, target: Tensor) -> Tensor:
        label = target.argmax(1) if target.ndim > 1 else target
        same = out.owner == label.unsqueeze(1)  # N,P
        cluster = out.distances.masked_fill(~same, torch.inf).amin(1).mean()
        separation = out.distances.masked_fill(same, torch.inf).amin(1).mean()
        classes = torch.arange(len(out.weights), device=out.owner.device)
        others = out.weights * (out.owner != classes.unsqueeze(1))  # classes,P
        entropy = F.cross_entropy(out.logits, target, label_smoothing=self.smoothing)
        return entropy + self.cluster * cluster - self.separation * separation + self.l1 * others.abs().sum()
