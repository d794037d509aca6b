"""How Saccader learns where to look before any reward: by the order that its own evidence gives."""

from typing import Literal

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
    """Negative log-likelihood of visiting cells in the order of their logit for a class, the highest first:

        -1/T sum over t of log p(l_t | …),   l the T highest cells in order

    averaged over the batch; T is how many glimpses the walk has. As in the authors' code the class is the one that the
    mean over all cells names, and step t follows the cells that the network itself drew before it; a wanted one among
    them has its logit beside those of the free ones, so that a loss may be below 0. `label = "true"` takes the true
    class, of mixed pictures the one they have most of; `along = "order"` judges each step after the right ones before
    it, whatever the network would have chosen."""

    label: Literal["predicted", "true"] = "predicted"  # whose logits order the cells
    along: Literal["samples", "order"] = "samples"  # the cells that a step follows

    def __call__(self, out: CellWalk, target: Tensor) -> Tensor:
        evidence = out.evidence.detach()
        label = target.argmax(1) if target.ndim > 1 else target
        label = evidence.mean((2, 3)).argmax(1) if self.label == "predicted" else label
        every = torch.arange(len(label), device=label.device)
        order = evidence[every, label].flatten(1).topk(out.glimpses, dim=1).indices  # N,T
        return -out.policy.log_likelihood(order, out.cells if self.along == "samples" else None).mean()
