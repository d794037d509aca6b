"""How a classifier does on a test set, by one process or several together."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.networks.network import Network
from fovea.networks.stream import rank_of
from fovea.retrieval.recall import lengths, nmi, ranks
from fovea.training.feed import Batch


class Batches(Protocol):
    """A test set, batch by batch."""

    skipped: list[tuple[str, str]]

    def __len__(self) -> int: ...

    def in_order(self, size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]: ...


Set = TypeVar("Set", bound=Batches)


class Scored(Generic[Set]):
    """A test set that is scored."""

    def __init__(self, held: Set) -> None:
        self.held = held

    @property
    def skipped(self) -> list[tuple[str, str]]:
        return self.held.skipped

    def __len__(self) -> int:
        return len(self.held)


class Classified(Scored[Set]):
    """Top-1 and, of more than five classes, top-5."""

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        module.eval()
        counts, dtype = torch.zeros(3, dtype=torch.float64), next(module.parameters()).dtype
        for batch in self.held.in_order(size, fabric.global_rank, fabric.world_size):
            counts += hits(network.read(module(batch.inputs.to(dtype))), batch.target)
        return shares(counts, fabric, len(network.labels or ()))


class Retrieved(Scored[Set]):
    """Recall at 1 among the test pictures themselves, and NMI of K-means; directions alone count.

    Every process embeds the whole set: all pictures are compared with all.
    """

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        module.eval()
        dtype = next(module.parameters()).dtype
        vectors, labels = [], []
        for batch in self.held.in_order(size):
            output = network.read(module(batch.inputs.to(dtype)))
            vectors.append(output.flatten(1).double().cpu().numpy())
            labels.append(batch.target.cpu().numpy())
        unit, classes = lengths(np.concatenate(vectors), True), np.concatenate(labels)
        return {"recall_at_1": float((ranks(unit, classes) < 1).mean()), "nmi": nmi(unit, classes)}


def hits(output: Tensor, labels: Tensor) -> Tensor:
    """Pictures, those right, those right among the first five."""
    rank = rank_of(output, labels)
    return torch.tensor([len(labels), (rank < 1).sum(), (rank < 5).sum()], dtype=torch.float64)


def shares(counts: Tensor, fabric: Fabric, classes: int) -> dict[str, float]:
    """The score of all processes together."""
    images, top1, top5 = summed(counts, fabric).tolist()
    return {"top1": top1 / images} | ({"top5": top5 / images} if classes > 5 else {})


def summed(counts: Tensor, fabric: Fabric) -> Tensor:
    """The counts of all processes together; one without a picture takes part, too."""
    if fabric.world_size == 1:
        return counts
    return torch.as_tensor(fabric.all_reduce(counts.to(fabric.device), reduce_op="sum"))
