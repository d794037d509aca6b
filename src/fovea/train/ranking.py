"""What embeddings are trained by: triplet and N-pair losses (L2-CAF, Eqs. S1 and S2), and batches balanced by class."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.data import DataSet
from fovea.errors import BadChoice, FoveaError
from fovea.measure.stream import batches, prepared
from fovea.nets.embedding import embedding_of
from fovea.network import Network, as_found

if TYPE_CHECKING:
    from fovea.train.recipe import LossPart

Progress = Callable[[int, int], None]
RANKING = frozenset({"triplet", "npair"})


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
    """-log exp(a·p) / (exp(a·p) + Σ exp(a·n)), one pair a class, every other class's positive a negative.

    Embeddings are as they are, so `l2` times their mean squared length keeps them from growing (Sohn 2016).
    """

    def __init__(self, l2: float) -> None:
        super().__init__()
        _installed()
        from pytorch_metric_learning import distances, losses

        self.loss, self.l2 = losses.NPairsLoss(distance=distances.DotProductSimilarity(normalize_embeddings=False)), l2

    def forward(self, embeddings: Tensor, target: Tensor) -> Tensor:
        found: Tensor = self.loss(embeddings, target) + self.l2 * embeddings.square().sum(1).mean()
        return found


def ranking_loss(part: "LossPart") -> nn.Module:
    if part.name == "npair":
        return NPair(part.l2)
    return Triplet(0.2 if part.margin is None else part.margin)


def _installed() -> None:
    from importlib.util import find_spec

    if find_spec("pytorch_metric_learning") is None:
        raise FoveaError("ranking losses come from a package that is not installed: pip install 'fovea[train]'")


def start(network: Network, data: DataSet, size: int, progress: Progress) -> None:
    """The embedding begins as the principal directions of the training pictures' pooled features."""
    module, found = embedding_of(network), []
    for samples, images in batches(data, size, []):
        tensors, _, _ = prepared(network, samples, images)
        with as_found(network), torch.no_grad():
            found.append(module.pooled(module.forward_features(tensors)).float().cpu())
        progress(sum(map(len, found)), len(data))
    module.start_from(torch.cat(found))


@torch.no_grad()
def nearest_alike(embeddings: Tensor, target: Tensor) -> Tensor:
    """Of which share of a batch the nearest other one is of the same class."""
    unit = F.normalize(embeddings.detach().float())
    likeness = (unit @ unit.T).fill_diagonal_(-torch.inf)
    return (target[likeness.argmax(1)] == target).float().mean()


class Balanced:
    """Batches of a few classes with so many pictures each. Of a class none comes again before all have come.

    A batch is taken in `shares`, by processes or one after the other, each of which compares its own pictures alone.
    """

    def __init__(self, labels: Sequence[int], batch: int, per_class: int, shares: int = 1) -> None:
        members = {label: [i for i, own in enumerate(labels) if own == label] for label in sorted(set(labels))}
        self.members = {label: torch.tensor(own) for label, own in members.items() if len(own) >= per_class}
        self.each, self.classes = per_class, batch // per_class
        share, whose = batch // shares, f"a batch of {batch}" + (f" in {shares} shares" if shares > 1 else "")
        if share % per_class or share // per_class < 2:
            raise BadChoice(
                f"{whose} needs two classes or more with {per_class} pictures each: make batch a multiple of "
                f"{per_class * shares}, and at least {2 * per_class * shares}"
            )
        if len(self.members) < self.classes:
            raise BadChoice(
                f"a batch of {batch} with {per_class} a class needs {self.classes} classes of {per_class} pictures or "
                f"more, and the data has {len(self.members)}: make batch smaller, or per_class larger"
            )

    def order(self, batches: int, random: torch.Generator) -> Tensor:
        """So many batches after each other, each class's pictures together."""
        waiting: list[int] = []
        left = {label: own[:0] for label, own in self.members.items()}
        turns: list[Tensor] = []
        for _ in range(batches):
            chosen, waiting = waiting[: self.classes], waiting[self.classes :]
            if len(chosen) < self.classes:  # the next round of all classes, in which these have their turn later
                names = list(self.members)
                coming = [names[i] for i in torch.randperm(len(names), generator=random).tolist()]
                more = [one for one in coming if one not in chosen][: self.classes - len(chosen)]
                chosen, waiting = chosen + more, [one for one in coming if one not in more]
            for label in chosen:
                if len(left[label]) < self.each:
                    own = self.members[label]
                    again = own[torch.randperm(len(own), generator=random)]
                    first = torch.isin(again, left[label])  # of the last round, so that they come last in this
                    left[label] = torch.cat([left[label], again[~first], again[first]])
                turns.append(left[label][: self.each])
                left[label] = left[label][self.each :]
        return torch.cat(turns)
