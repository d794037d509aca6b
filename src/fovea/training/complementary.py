"""What ACoL is trained by (Zhang et al. 2018)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics.errors import BadChoice
from fovea.models.erasing import ACoLOutput
from fovea.training.recipe import LossPart


class Complementary(nn.Module):
    """The cross-entropy of the first classifier, and that of the second, which does not see the cells where the first
    finds the true class."""

    def __init__(self, part: LossPart) -> None:
        super().__init__()
        self.smoothing = part.smoothing

    def forward(self, out: ACoLOutput, target: Tensor) -> Tensor:
        if not isinstance(out, ACoLOutput):
            raise BadChoice("the loss 'acol' is for a network of two classifiers: network.name is acol/<backbone>")
        half = out.features.dtype if out.features.dtype in (torch.float16, torch.bfloat16) else None
        with torch.autocast(out.features.device.type, half, enabled=half is not None):
            second = out.second(target.argmax(1) if target.ndim > 1 else target)
        both = [F.cross_entropy(one.float(), target, label_smoothing=self.smoothing) for one in (out.logits, second)]
        return both[0] + both[1]
