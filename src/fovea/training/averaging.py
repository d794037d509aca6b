"""The weights that are kept at the end: averages over the steps, and batch norm's statistics as they are for them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fovea.models.twostream import Views

WARM_UP = 10  # steps: early averages forget faster, since the first weights are no use


def averages(module: nn.Module, decay: float) -> AveragedModel:
    """Exponential averages of weights and of the norms' statistics."""

    @torch.no_grad()
    def update(ours: Any, theirs: Any, count: Any) -> None:
        steps = int(averaged.n_averaged)  # `count` is a copy on the device, and looking at it would wait for that
        now = min(decay, (1 + steps) / (WARM_UP + steps))
        if ours[0].is_floating_point():
            torch._foreach_lerp_(ours, theirs, 1 - now)
        else:
            torch._foreach_copy_(ours, theirs)

    averaged = AveragedModel(module, multi_avg_fn=update, use_buffers=True)
    return averaged


@torch.no_grad()
def settled(module: nn.Module, batches: Iterator[Tensor | Views]) -> None:
    """Batch norm's statistics as they are for these weights: means over all that they see, however often in a forward.

    Those gathered in training are of weights that have changed since, or, of averaged ones, were never there at all.
    Where most of a picture is empty, a channel hardly varies, and a small change of its mean is a large one for it.
    """
    module.train()  # what stays as it is in training, since it is frozen, stays so here
    norms = [
        layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training
    ]
    module.eval()
    before, dtype = [one.momentum for one in norms], next(module.parameters()).dtype
    calls: Counter[int] = Counter()

    def count(norm: nn.Module, _: Any) -> None:
        assert isinstance(norm, nn.modules.batchnorm._BatchNorm)
        assert norm.running_mean is not None
        place = norm.running_mean.data_ptr()  # of a network with a set for each level, each has its own
        calls[place] += 1
        norm.momentum = 1 / calls[place]

    hooks = [one.train().register_forward_pre_hook(count) for one in norms]
    try:
        for inputs in batches:
            module(inputs.to(dtype))
    finally:
        for hook in hooks:
            hook.remove()
        for one, momentum in zip(norms, before, strict=True):
            one.momentum = momentum
        module.eval()
