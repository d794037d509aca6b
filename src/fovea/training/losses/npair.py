"""One pair per class (L2-CAF supplement, S1)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.training.losses import Loss, loss
from fovea.training.parts import NotNegative


@loss("npair", about="one pair per class, others' positives are negatives", reads="embedding", per_class=2, pairs=True)
class NPair(Loss):
    """-log exp(a·p) / (exp(a·p) + Σ exp(a·n)), one pair per class, every other class's positive a negative (Sohn 2016).

    L2-CAF's Eq. S2 counts both pictures of every other class. Embeddings are as they are, so `l2` times their mean
    squared length keeps them from growing."""

    l2: NotNegative = 2e-3  # how much the embeddings' squared length counts

    def __call__(self, embeddings: Tensor, target: Tensor) -> Tensor:
        anchors, positives = embeddings[target.argsort(stable=True)].view(-1, 2, embeddings.shape[1]).unbind(1)
        pairs = F.cross_entropy(anchors @ positives.T, torch.arange(len(anchors), device=target.device))
        return pairs + self.l2 * embeddings.square().sum(1).mean()
