"""One pair per class (L2-CAF supplement, S1)."""

from collections.abc import Callable

from pytorch_metric_learning.distances import DotProductSimilarity
from pytorch_metric_learning.losses import NPairsLoss
from torch import Tensor

from fovea.training.losses import Loss, loss
from fovea.training.parts import NotNegative


@loss(
    "npair",
    about="one pair per class, the others' positives are negatives",
    reads="embedding",
    per_class=2,
    pairs=True,
)
class NPair(Loss):
    """-log exp(a·p) / (exp(a·p) + Σ exp(a·n)), one pair per class, every other class's positive a negative (Sohn 2016).

    L2-CAF's Eq. S2 counts both pictures of every other class. Embeddings are as they are, so `l2` times their mean
    squared length keeps them from growing.
    """

    l2: NotNegative = 2e-3  # how much the embeddings' squared length counts

    def made(self) -> Callable[[Tensor, Tensor], Tensor]:
        mean = NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))
        return lambda embeddings, target: mean(embeddings, target) + self.l2 * embeddings.square().sum(1).mean()
