"""The weights that are kept at the end: averages over the steps, and batch norm's statistics as they are for them."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fovea.models.twostream import Views
from fovea.training.shards import local

WARM_UP = 10  # steps: early averages forget faster, since the first weights are no use


class Averages(AveragedModel):
    """Exponential averages of a module's weights and of its norms' statistics."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__(module, use_buffers=True)
        self.decay = decay
        self.pair(module)

    def pair(self, module: nn.Module) -> None:
        """Which tensor is the average of which; again after they were divided among processes."""
        pairs = list(zip(*(chain(each.parameters(), each.buffers()) for each in (self.module, module)), strict=True))
        self.kinds = [  # tensors of floats, which are averaged, and others, which are copied
            [[local(each.detach()) for each in side] for side in zip(*some, strict=True)]
            for some in ([pair for pair in pairs if pair[0].is_floating_point() == kind] for kind in (True, False))
            if some
        ]

    @torch.no_grad()
    def update(self) -> None:
        """A step later. The count is on the host, and nothing waits for a GPU."""
        steps = int(self.n_averaged)
        now = min(self.decay, (1 + steps) / (WARM_UP + steps))
        for ours, theirs in self.kinds:
            if steps and ours[0].is_floating_point():
                torch._foreach_lerp_(ours, theirs, 1 - now)
            else:
                torch._foreach_copy_(ours, theirs)
        self.n_averaged += 1


@torch.no_grad()
def settled(module: nn.Module, batches: Iterator[Tensor | Views]) -> None:
    """Batch norm's statistics as they are for these weights: means over all that they see, however often in a forward.
    Those gathered in training are of weights that have changed since, or, of averaged ones, were never there at all.
    Where most of a picture is empty, a channel hardly varies, and a small change of its mean is a large one for it."""
    module.train()  # what stays as it is in training, since it is frozen, stays so here
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.training]
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
