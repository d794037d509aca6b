"""What the prototypes of a ProtoPNet are, and what a picture has in common with them: "this looks like that"."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice, BadPicture
from fovea.data import DataSet
from fovea.models.protopnet import NOWHERE, ProtoPNetOutput, prototypes_of
from fovea.networks.network import Network, as_found
from fovea.pictures import MAX_PIXELS, Given, Picture, gather
from fovea.pictures.placement import Placement
from fovea.prototypes.found import Answers, Likeness, LooksLike, Nearest, Patch, Prototype
from fovea.prototypes.patches import box_of, patch_of, projected_on
from fovea.prototypes.reading import Progress, batches

CLASSES, EACH = 20, 3  # shown where nothing is asked for: so many classes, so many prototypes of each

__all__ = [
    "Answers", "Likeness", "LooksLike", "Nearest", "Patch", "Prototype", "choose", "looks_like", "nearest",
    "projected_on",
]  # fmt: skip


def choose(network: Network, classes: Sequence[str | int] = ()) -> list[int]:
    """Numbers of prototypes: all of the classes asked for, or of at most 20 classes the three with the most weight."""
    module = prototypes_of(network)
    count, each = module.prototypes.shape[:2]
    if classes:
        asked = dict.fromkeys(network.index(one, count) for one in classes)
        return [label * each + k for label in asked for k in range(each)]
    spread = torch.linspace(0, count - 1, min(CLASSES, count)).round().int().tolist()
    found = []
    for label in spread:
        weights = module.last.weight[label].view(count, each)[label]  # K
        order = weights.argsort(descending=True, stable=True).tolist()
        found += _different(network, [label * each + k for k in order], EACH)
    return found


def nearest(
    network: Network,
    data: DataSet,
    count: int = 4,
    prototypes: Sequence[int] | None = None,
    size: int = 64,
    progress: Progress = lambda done, total: None,
) -> Nearest:
    """What prototypes were projected on, and the `count` pictures of the data, their own left out, that have the most
    similar parts. `data` is what the network was trained on; `prototypes` are numbers, all unless given."""
    module = prototypes_of(network)
    if count < 0 or size < 1:
        raise BadChoice(f"count is at least 0 and size at least 1; got {count} and {size}")
    total = module.owner.numel()
    numbers = list(range(total)) if prototypes is None else list(prototypes)
    stray = [one for one in numbers if not 0 <= one < total]
    if stray or not numbers:
        raise BadChoice(f"{network.name or 'the network'} has the prototypes 0 to {total - 1}; got {stray or numbers}")
    own = projected_on(network, data, numbers, size)
    wanted = torch.tensor(numbers, device=network.device)
    pictures = module.picture.flatten()[wanted].unsqueeze(1)  # Q,1
    skipped, placements = list[tuple[str, str]](), dict[int, Placement]()
    best: tuple[Tensor, Tensor, Tensor] | None = None  # similarity Q,count; picture Q,count; map Q,count,h,w
    for batch in batches(network, data, size, skipped, progress) if count else ():
        with as_found(network), torch.no_grad():
            out = module(batch.inputs)
        placements.update(zip(batch.numbers, batch.placements, strict=True))
        which = torch.tensor(batch.numbers, device=network.device).expand(len(numbers), -1)  # Q,N
        similarity = out.similarity[:, wanted].T.masked_fill(which == pictures, -torch.inf)
        new = similarity, which, out.maps[:, wanted].transpose(0, 1)
        best = _first(new if best is None else _beside(best, new), count)
    found, weights, owner = [], module.last.weight.detach().cpu(), module.owner.tolist()
    for place, number in enumerate(numbers):
        rows = () if best is None else zip(*(one[place].cpu() for one in best), strict=True)
        patches = tuple(
            patch_of(data, int(which), cells, placements[int(which)], float(similarity))
            for similarity, which, cells in rows
            if similarity > -torch.inf
        )
        label = owner[number]
        weight = float(weights[label, number])
        found.append(Prototype(number, network.label(label), weight, own.get(number), patches))
    return Nearest(tuple(found), tuple(skipped))


def _beside(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    similarity, which, maps = (torch.cat(both, 1) for both in zip(one, other, strict=True))
    return similarity, which, maps


def _first(found: tuple[Tensor, Tensor, Tensor], count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The most similar pictures of each prototype; of equal ones, those that came first."""
    similarity, which, maps = found
    order = similarity.argsort(dim=1, descending=True, stable=True)[:, :count]  # Q,count
    rows = torch.arange(len(order), device=order.device).unsqueeze(1)
    return similarity[rows, order], which[rows, order], maps[rows, order]


def looks_like(
    network: Network,
    pictures: Given | Iterable[Given],
    data: DataSet,
    count: int = 5,
    size: int = 64,
    progress: Progress = lambda done, total: None,
    max_pixels: int = MAX_PIXELS,
) -> Answers:
    """What each picture is taken for, and the `count` prototypes that contribute the most to that answer; of those that
    were projected on one cell, the first.

    `data` is what the network was trained on: the prototypes' own patches are read from it.
    """
    module = prototypes_of(network)
    if count < 1 or size < 1:
        raise BadChoice(f"count and size are at least 1; got {count} and {size}")
    given, skipped = gather(pictures), list[tuple[str, str]]()
    answers: list[LooksLike] = []
    for start in range(0, len(given), size):
        kept, ready = list[Picture](), list[tuple[Tensor, Placement]]()
        for picture in given[start : start + size]:
            try:
                ready.append(network.prepare(picture.read(max_pixels)))
                kept.append(picture)
            except BadPicture as reason:
                skipped.append((picture.name, str(reason)))
        if kept:
            tensors = torch.stack([tensor for tensor, _ in ready]).to(network.device, network.dtype)
            with as_found(network), torch.no_grad():
                out = module(tensors)
            answers += [_answer(network, out, i, kept[i], ready[i][1], count) for i in range(len(kept))]
        progress(min(start + size, len(given)), len(given))
    own = projected_on(network, data, sorted({one.prototype for answer in answers for one in answer.reasons}), size)
    shown = (
        replace(answer, reasons=tuple(replace(one, own=own.get(one.prototype)) for one in answer.reasons))
        for answer in answers
    )
    return Answers(tuple(shown), tuple(skipped))


def _different(network: Network, order: Sequence[int], count: int) -> list[int]:
    """The first prototypes in this order that were not projected on the cell of one before them."""
    module = prototypes_of(network)
    places = torch.cat([module.picture.view(-1, 1), module.cell.view(-1, 2)], 1).tolist()
    found: dict[tuple[int, ...], int] = {}
    for one in order:
        key = (one,) if places[one][0] == NOWHERE else tuple(places[one])
        found.setdefault(key, one)
        if len(found) == count:
            break
    return list(found.values())


def _answer(
    network: Network, out: ProtoPNetOutput, i: int, picture: Picture, placement: Placement, count: int
) -> LooksLike:
    """The answer for picture i of a batch; what its prototypes were projected on is not known yet."""
    label = int(out.logits[i].argmax())
    weights = out.weights[label].detach()  # P
    reasons = tuple(
        Likeness(
            prototype=one,
            label=network.label(int(out.owner[one])),
            box=box_of(out.maps[i, one].cpu(), placement),
            similarity=float(out.similarity[i, one]),
            weight=float(weights[one]),
            own=None,
        )
        for one in _different(
            network, (out.similarity[i] * weights).argsort(descending=True, stable=True).tolist(), count
        )
    )
    chance, logit = float(out.logits[i].softmax(0)[label]), float(out.logits[i, label])
    return LooksLike(picture, network.label(label), chance, logit, reasons)
