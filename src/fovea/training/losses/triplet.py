"""Triplets of semi-hard negatives (L2-CAF supplement, S1)."""

from collections.abc import Callable

from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from torch import Tensor

from fovea.training.losses import Loss, loss
from fovea.training.parts import NotNegative


@loss("triplet", about="the same class closer than another by a margin", reads="embedding", per_class=2)
class Triplet(Loss):
    """[D(a, p) - D(a, n) + margin]+ over all pairs a, p with their semi-hard negatives: those farther than p, by less
    than the margin. D is Euclidean, of embeddings scaled to unit length; triplets without a loss do not count."""

    margin: NotNegative = 0.2  # by which another class should be farther than the same one

    def made(self) -> Callable[[Tensor, Tensor], Tensor]:
        apart = LpDistance(normalize_embeddings=True, p=2, power=1)
        miner = TripletMarginMiner(self.margin, type_of_triplets="semihard", distance=apart)
        mean = TripletMarginLoss(self.margin, distance=apart)
        return lambda embeddings, target: mean(embeddings, target, miner(embeddings, target))
