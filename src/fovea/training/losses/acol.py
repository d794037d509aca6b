"""What ACoL is trained by (Zhang et al. 2018)."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.models.erasing import ACoLOutput
from fovea.training.losses import Loss, loss
from fovea.training.parts import Smoothing


@loss(
    "acol",
    about="both classifiers of ACoL, the second without the cells where the first finds the class",
    reads="output",
    needs=("features", "second"),
    such_as="acol/NAME",
)
class Complementary(Loss):
    """The cross-entropy of the first classifier, and that of the second, which does not see the cells where the first
    finds the true class."""

    smoothing: Smoothing = 0.0

    def __call__(self, out: ACoLOutput, target: Tensor) -> Tensor:
        half = out.features.dtype if out.features.dtype in (torch.float16, torch.bfloat16) else None
        with torch.autocast(out.features.device.type, half, enabled=half is not None):
            second = out.second(target.argmax(1) if target.ndim > 1 else target)
        entropy = partial(F.cross_entropy, target=target, label_smoothing=self.smoothing)
        return entropy(out.logits.float()) + entropy(second.float())
