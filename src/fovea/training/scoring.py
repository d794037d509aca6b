"""How a network does on a test set, by one process or several together."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.glimpses import where_it_looked
from fovea.models.glimpsing import Walk, walked
from fovea.networks import Network, rank_of
from fovea.pictures import inwards
from fovea.retrieval import lengths, nmi, ranks
from fovea.training.feed import Batch
from fovea.training.sharing import everyones

Counts = dict[str, tuple[float, int]]  # per figure: of how many samples it is true, or its sum; how many there are


class Tested:
    """A test set, and how a network does on it: top-1 and, of more than five classes, top-5. Other scores are classes
    that count something else. `held` gives the set in order, each process its share."""

    at_once: int | None = None  # samples in a batch; as many as training takes unless given

    def __init__(self, held: Any) -> None:
        self.held = held

    @property
    def skipped(self) -> list[tuple[str, str]]:
        return self.held.skipped  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.held)

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        """`module` is the network's, or a copy with averaged weights."""
        module.eval()
        true, all_of_them = Counter[str](), Counter[str]()
        for batch in self.held.in_order(self.at_once or size, fabric.global_rank, fabric.world_size):
            for name, (right, count) in self.counts(network, module, batch, size).items():
                true[name] += right  # type: ignore[assignment]  # or a sum of shares
                all_of_them[name] += count
        if fabric.world_size > 1:  # one without a picture takes part, too
            everyone = everyones((true, all_of_them))
            true, all_of_them = (sum(counters, Counter[str]()) for counters in zip(*everyone, strict=True))
        return {name: true[name] / count for name, count in all_of_them.items() if count}

    def counts(self, network: Network, module: nn.Module, batch: Batch, size: int) -> Counts:
        return hits(network, network.read(answer(module, batch)), batch.target)


class Walked(Tested):
    """Also, at each level, the share of pictures with boxes where a glimpse has a box's middle in it (`found_at`), and
    the share of all that was read there whose own answer is right, its reward (`alone_at`); of a TNet, the entropy of
    where its glimpses lie, as a share of the largest (`entropy_at`). With top-k selection a policy narrows early; then
    accuracy stands still while glimpses miss."""

    def counts(self, network: Network, module: nn.Module, batch: Batch, size: int) -> Counts:
        out = answer(module, batch)
        boxes = [inwards(sample.boxes, self.held.prepare.placement(*whole)) for sample, whole in batch.shown]
        looked = where_it_looked(out, boxes) if walked(out) else {}
        known = {key: values[~np.isnan(values)] for key, values in looked.items() if key.startswith("found_at_")}
        found = {key: (int(values.sum()), len(values)) for key, values in known.items()}
        alone = _alone(out, batch.target) | _entropies(out) if looked else {}
        return hits(network, network.read(out), batch.target) | found | alone


def _alone(walk: Walk, labels: Tensor) -> Counts:
    right = walk.each.argmax(2) == labels.unsqueeze(1)  # N,V
    places = {level: [i for i, one in enumerate(walk.levels) if one == level] for level in walk.levels}
    return {f"alone_at_{level}": (int(right[:, own].sum()), right[:, own].numel()) for level, own in places.items()}


def _entropies(walk: Walk) -> Counts:
    levels = () if walk.entropy is None else enumerate(walk.entropy.unbind(1), 2)
    return {f"entropy_at_{level}": (float(own.sum()), len(own)) for level, own in levels}


class Retrieved(Tested):
    """Recall at 1 among the test pictures themselves, and NMI of K-means; directions alone count. Every process embeds
    the whole set: all pictures are compared with all."""

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        module.eval()
        vectors, labels = [], []
        for batch in self.held.in_order(size):
            vectors.append(network.read(answer(module, batch)).flatten(1).double().cpu().numpy())
            labels.append(batch.target.cpu().numpy())
        unit, classes = lengths(np.concatenate(vectors), True), np.concatenate(labels)
        return {"recall_at_1": float((ranks(unit, classes) < 1).mean()), "nmi": nmi(unit, classes)}


def answer(module: nn.Module, batch: Batch) -> Any:
    return module(batch.inputs.to(next(module.parameters()).dtype))


def hits(network: Network, output: Tensor, labels: Tensor) -> Counts:
    """Samples that are right, and those right among the first five."""
    rank, first = rank_of(output, labels), (1, 5) if len(network.labels or ()) > 5 else (1,)
    return {f"top{k}": (int((rank < k).sum()), len(labels)) for k in first}
