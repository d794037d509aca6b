"""A small convolutional network that learns in minutes on a CPU: the first thing to try a recipe with."""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from fovea.networks import Network, model
from fovea.pictures import Prepare

WIDTHS = (8, 16, 32, 64)


@dataclass(frozen=True)
class SmallNetOutput:
    logits: Tensor  # N,classes
    features: Tensor  # N,C,H,W before pooling


class SmallNet(nn.Module):
    """Stages of a strided and a plain 3x3 convolution, each with batch norm and ReLU; then a soft maximum of each
    channel over the cells, since what decides may be small in a large picture; then one linear layer."""

    def __init__(self, classes: int, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        steps = zip((3, *widths[:-1]), widths, strict=True)
        self.stages = nn.Sequential(*(_stage(given, width) for given, width in steps))
        self.classifier = nn.Linear(widths[-1], classes)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.stages(x)

    def forward(self, x: Tensor) -> SmallNetOutput:
        features = self.forward_features(x)
        soft = features.logsumexp((2, 3)) - math.log(features[0, 0].numel())  # between mean and maximum
        return SmallNetOutput(self.classifier(soft), features)


def _stage(given: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(given, width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )


@model("smallnet", about="a few convolutions that learn in minutes on a CPU")
def build(classes: int, side: int = 128, widths: tuple[int, ...] = WIDTHS) -> Network:
    """`side`: pictures are squashed to side x side. `widths`: channels of the stages."""
    transform = Prepare((side, side), (0.5,) * 3, (0.5,) * 3, None, "bilinear")
    return Network(SmallNet(classes, tuple(widths)), transform, tuple(map(str, range(classes))), "stages")
