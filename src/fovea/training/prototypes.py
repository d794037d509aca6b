"""Weights taken from training pictures: where an embedding and prototypes begin, and the projection of prototypes
(ProtoPNet, Chen et al. 2019)."""

from dataclasses import dataclass, replace

import torch

from fovea.basics import BadPicture, quiet
from fovea.data import DataSet
from fovea.models.embedding import embedding_of
from fovea.models.protopnet import NOWHERE, prototypes_of
from fovea.networks import Network, as_found, groups
from fovea.training.feed import Progress


@dataclass(frozen=True)
class Projected:
    prototypes: int
    coinciding: int  # those on the same cell of the same picture as an earlier one of their class
    left: int  # those of classes without a picture, which stay as they were
    skipped: tuple[tuple[str, str], ...] = ()  # pictures that cannot be read, and why

    def line(self) -> str:
        projected = self.prototypes - self.left
        words = [f"{projected} prototypes projected, {self.coinciding} on the very cell of an earlier one"]
        return "; ".join(words + [f"{self.left} of classes without pictures left as they were"] * bool(self.left))


@torch.no_grad()
def place(network: Network, data: DataSet, random: torch.Generator, size: int = 64, progress: Progress = quiet) -> None:
    """Every prototype begins as a cell of a picture of its own class: the one with the longest vector of features, or,
    where a class has fewer pictures than prototypes, the next longest. Pictures are drawn at random. The paper begins
    anywhere in the unit cube. From there most prototypes are too far from any cell to be drawn to one for some ten
    thousand steps, which is as long as the paper trains."""
    module = prototypes_of(network)
    each = module.prototypes.shape[1]
    wanted: dict[int, list[tuple[int, int, int]]] = {}  # of a picture: class, prototype, rank of the cell
    for label in range(len(module.prototypes)):
        own = [number for number, sample in enumerate(data.samples) if sample.label == label]
        order = torch.randperm(len(own), generator=random).tolist()
        for k in range(each if own else 0):
            wanted.setdefault(own[order[k % len(own)]], []).append((label, k, k // len(own)))
    numbers = sorted(wanted)
    part = replace(data, samples=tuple(data.samples[number] for number in numbers))
    with as_found(network), torch.no_grad():
        for group in groups(network, part, size):
            progress(group.done, group.total)
            if group.batch is None:
                continue
            features = module.features(group.batch)
            strength = features.flatten(2).norm(dim=1)  # N,hw
            cells = strength.argsort(dim=1, descending=True, stable=True)
            embedded = module.embedded_of(features).flatten(2)  # N,width,hw
            for i, number in enumerate(group.of(numbers)):
                for label, k, rank in wanted[number]:
                    module.prototypes[label, k] = embedded[i, :, cells[i, rank % cells.shape[1]]]


@torch.no_grad()
def project(network: Network, data: DataSet, size: int = 64, progress: Progress = quiet) -> Projected:
    """Every prototype becomes the cell nearest to it among all those of its own class's pictures (the paper's Eq. for
    the projection). The pictures are as the network takes them in use; of equal cells the first counts."""
    module, skipped = prototypes_of(network), list[tuple[str, str]]()
    best = torch.full_like(module.picture, torch.inf, dtype=module.prototypes.dtype)  # classes,K
    vectors, picture, cell = module.prototypes.detach().clone(), module.picture.clone(), module.cell.clone()
    picture.fill_(NOWHERE)
    cell.fill_(NOWHERE)
    # in single precision proper: a GPU's shortcuts would leave prototypes beside the cells that they are said to be
    with as_found(network), torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for group in groups(network, data, size):
            skipped += group.skipped
            progress(group.done, group.total)
            if group.batch is None:
                continue
            embedded = module.embedded(group.batch)  # N,width,h,w
            columns = embedded.shape[3]
            apart = module.distances(embedded).view(len(embedded), *best.shape, -1)  # N,classes,K,hw
            for i, number in enumerate(group.places):
                label = data.samples[number].label
                nearest, place = apart[i, label].min(1)  # K
                better = nearest < best[label]
                best[label] = torch.where(better, nearest, best[label])
                picture[label] = picture[label].masked_fill(better, number)
                where = torch.stack([place // columns, place % columns], 1)
                cell[label] = torch.where(better[:, None], where, cell[label])
                vectors[label] = torch.where(better[:, None], embedded[i].flatten(1).T[place], vectors[label])
    if len(skipped) == len(data):
        reason = f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else f"{data.name} is empty"
        raise BadPicture(reason)
    module.prototypes.copy_(vectors)
    module.picture.copy_(picture)
    module.cell.copy_(cell)
    places = torch.cat([picture[..., None], cell], 2).tolist()  # of every class
    found = [(label, *place) for label, own in enumerate(places) for place in own if place[0] != NOWHERE]
    return Projected(picture.numel(), len(found) - len(set(found)), picture.numel() - len(found), tuple(skipped))


def principal(network: Network, data: DataSet, size: int, progress: Progress) -> None:
    """The embedding begins as the principal directions of the training pictures' pooled features."""
    module, features = embedding_of(network), []
    for group in groups(network, data, size):
        if group.batch is not None:
            with as_found(network), torch.no_grad():
                features.append(module.pooled(module.forward_features(group.batch)).float().cpu())
        progress(group.done, group.total)
    module.start_from(torch.cat(features))
