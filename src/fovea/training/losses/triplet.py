"""Triplets of semi-hard negatives (L2-CAF supplement, S1)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.training.losses import Loss, loss
from fovea.training.parts import NotNegative


@loss("triplet", about="the same class closer than another by a margin", reads="embedding", per_class=2)
class Triplet(Loss):
    """[D(a, p) - D(a, n) + margin]+ (L2-CAF, Eq. S1) over all pairs a, p with their semi-hard negatives: those farther
    than p, by less than the margin. D is Euclidean, of embeddings scaled to unit length; triplets without a loss do not
    count."""

    margin: NotNegative = 0.2  # by which another class should be farther than the same one

    def __call__(self, embeddings: Tensor, target: Tensor) -> Tensor:
        """All triplets at once, so that no GPU is waited for to say which there are."""
        unit, same = F.normalize(embeddings), target == target.unsqueeze(1)
        apart = torch.cdist(unit, unit)
        farther = apart.unsqueeze(1) - apart.unsqueeze(2)  # a,p,n: by how much n is farther from a than p is
        pairs = same & ~torch.eye(len(same), dtype=torch.bool, device=same.device)
        counted = (farther > 0) & (farther < self.margin) & pairs.unsqueeze(2) & ~same.unsqueeze(1)
        return ((self.margin - farther) * counted).sum() / counted.sum().clamp(min=1)
