"""What embeddings are trained by: triplet and N-pair losses (L2-CAF supplement, S1)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics.errors import FoveaError
from fovea.training.recipe import LossPart


class Triplet(nn.Module):
    """[D(a, p) - D(a, n) + margin]+ over all pairs a, p with their semi-hard negatives: those farther than p, by less
    than the margin. D is Euclidean, of embeddings scaled to unit length; triplets without a loss do not count."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        _installed()
        from pytorch_metric_learning import distances, losses, miners

        apart = distances.LpDistance(normalize_embeddings=True, p=2, power=1)
        self.miner = miners.TripletMarginMiner(margin, type_of_triplets="semihard", distance=apart)
        self.loss = losses.TripletMarginLoss(margin, distance=apart)

    def forward(self, embeddings: Tensor, target: Tensor) -> Tensor:
        found: Tensor = self.loss(embeddings, target, self.miner(embeddings, target))
        return found


class NPair(nn.Module):
    """-log exp(a·p) / (exp(a·p) + Σ exp(a·n)), one pair a class, every other class's positive a negative (Sohn 2016).

    L2-CAF's Eq. S2 counts both pictures of every other class. Embeddings are as they are, so `l2` times their mean
    squared length keeps them from growing.
    """

    def __init__(self, l2: float) -> None:
        super().__init__()
        _installed()
        from pytorch_metric_learning import distances, losses

        self.loss, self.l2 = losses.NPairsLoss(distance=distances.DotProductSimilarity(normalize_embeddings=False)), l2

    def forward(self, embeddings: Tensor, target: Tensor) -> Tensor:
        found: Tensor = self.loss(embeddings, target) + self.l2 * embeddings.square().sum(1).mean()
        return found


def ranking_loss(part: LossPart) -> nn.Module:
    if part.name == "npair":
        return NPair(part.l2)
    return Triplet(0.2 if part.margin is None else part.margin)


def _installed() -> None:
    from importlib.util import find_spec

    if find_spec("pytorch_metric_learning") is None:
        raise FoveaError("ranking losses come from a package that is not installed: pip install 'fovea[train]'")


@torch.no_grad()
def nearest_alike(embeddings: Tensor, target: Tensor) -> Tensor:
    """Of which share of a batch the nearest other one is of the same class."""
    unit = F.normalize(embeddings.detach().float())
    likeness = (unit @ unit.T).fill_diagonal_(-torch.inf)
    return (target[likeness.argmax(1)] == target).float().mean()
