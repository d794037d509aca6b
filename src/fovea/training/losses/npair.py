"""One pair per class (L2-CAF supplement, S1)."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.training.losses import Loss, loss
from fovea.training.parts import NotNegative


@loss(
    "npair",
    about="one pair per class, pictures of all others are negatives",
    reads="embedding",
    per_class=2,
    pairs=True,
)
class NPair(Loss):
    """-log exp(a·p) / (exp(a·p) + Σ exp(a·n)), one pair per class (L2-CAF, Eq. S2): of a batch of b pictures each is an
    anchor once, its class's other picture the positive, all b - 2 of other classes negatives. `negatives="positives"`
    is Sohn's form (2016): a class's first picture is the anchor, the second ones of other classes are its negatives.

    Embeddings are as they are, so `l2` times their mean squared length keeps them from growing."""

    l2: NotNegative = 2e-3  # how much the embeddings' squared length counts
    negatives: Literal["all", "positives"] = "all"

    def __call__(self, embeddings: Tensor, target: Tensor) -> Tensor:
        paired = embeddings[target.argsort(stable=True)]  # a pair after the other
        place = torch.arange(len(paired), device=target.device)
        if self.negatives == "all":
            near = (paired @ paired.T).masked_fill(place.unsqueeze(1) == place, -torch.inf)
            pairs = F.cross_entropy(near, place ^ 1)
        else:
            pairs = F.cross_entropy(paired[::2] @ paired[1::2].T, place[: len(paired) // 2])
        return pairs + self.l2 * embeddings.square().sum(1).mean()
