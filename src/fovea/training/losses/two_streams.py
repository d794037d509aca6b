"""What a two-stream network is trained by: Eqs. 3.8 to 3.11 of the thesis, as printed."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.models.twostream import TwoStreamOutput
from fovea.training.losses import Loss, loss
from fovea.training.parts import NotNegative, Smoothing


@loss(
    "two_streams",
    about="both streams' cross-entropy, and the local one surer than the global one",
    reads="output",
    needs=("whole", "local", "steps"),
    such_as="twostream/NAME",
)
class TwoStreams(Loss):
    """L = L_XE(global) + lambda' L_XE(local) + lambda L_r, L_r = max(0, p_global - p_local + margin), batch means.

    p is the probability of the true class. As printed, L_r is 0 once the local stream is surer of it than the global
    one by the margin, which is not what the thesis' prose says; its gradient also makes the global stream less sure,
    which `detach_global` forbids. lambda' is the network's own weight of its local stream. A stream of kind "lstm" is
    trained at all its steps, by the mean of their cross-entropies."""

    smoothing: Smoothing = 0.0
    rank: NotNegative = 0.5  # the weight of the ranking loss (lambda)
    margin: NotNegative = 0.5  # by which it wants the local stream surer of the true class than the global one
    detach_global: bool = False  # the ranking loss teaches the local stream alone

    def __call__(self, out: TwoStreamOutput, target: Tensor) -> Tensor:
        whole = out.whole.float()
        loss = F.cross_entropy(whole, target, label_smoothing=self.smoothing)  # Eq. 3.10
        if out.local is None or out.steps is None:
            return loss
        local = out.local.float()
        loss = loss + out.weight * self._local(out, local, target)  # Eq. 3.9
        true = target.unsqueeze(1)
        sure, local_sure = (one.softmax(1).gather(1, true)[:, 0] for one in (whole, local))
        sure = sure.detach() if self.detach_global else sure
        return loss + self.rank * (sure - local_sure + self.margin).clamp(min=0).mean()  # Eqs. 3.8 and 3.11

    def _local(self, out: TwoStreamOutput, local: Tensor, target: Tensor) -> Tensor:
        if not out.every_step or out.steps is None:
            return F.cross_entropy(local, target, label_smoothing=self.smoothing)
        each = out.steps.each.float()  # N*K,T,classes
        repeated = target.repeat_interleave(len(each) // len(target))
        steps = [F.cross_entropy(one, repeated, label_smoothing=self.smoothing) for one in each.unbind(1)]
        return torch.stack(steps).mean()
