"""How Saccader learns where to look before any reward: by the order that its own evidence gives."""

import torch
from torch import Tensor

from fovea.models.saccader import CellWalk
from fovea.training.losses import Loss, loss


@loss(
    "sorted_locations",
    about="Saccader's second stage: cells in the order of their evidence",
    reads="output",
    needs=("evidence", "policy"),
    such_as="saccader",
)
class SortedLocations(Loss):
    """Negative log-likelihood of visiting cells in the order of their logit for the true class, the highest first:

        -1/T sum over t of log p(l_t | l_1 … l_{t-1}),   l the T highest cells in order

    averaged over the batch. Each step is judged after the right ones before it, whatever the network would have chosen;
    T is how many glimpses the walk has. Mixed pictures are of the class they have most of."""

    def __call__(self, out: CellWalk, target: Tensor) -> Tensor:
        label = target.argmax(1) if target.ndim > 1 else target
        every = torch.arange(len(label), device=label.device)
        evidence = out.evidence.detach()[every, label].flatten(1)  # N,P
        order = evidence.topk(out.glimpses, dim=1).indices  # N,T
        return -out.policy.log_likelihood(order).mean()
