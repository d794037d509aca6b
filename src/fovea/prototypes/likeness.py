"""What the prototypes of a ProtoPNet are, and what a picture has in common with them: "this looks like that"."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea import networks
from fovea.basics import BadChoice, Bound, Progress, bounded, quiet
from fovea.basics import boxes as regions
from fovea.data import DataSet
from fovea.models.protopnet import NOWHERE, ProtoPNetOutput, prototypes_of, similarity_of
from fovea.networks import Group, Inputs, Network, NetworkLike, as_found, as_network, groups, in_order, input_of
from fovea.pictures import MAX_PIXELS, Picture, Placement, Shown, box_on_pixels
from fovea.prototypes.figure import Box, Shelf
from fovea.prototypes.ranking import Ranked, rank
from fovea.prototypes.reasons import Likeness, LooksLike, Prototype, PrototypePatch
from fovea.results import Results, Step

EMPTY = Shelf(DataSet("no data", ()))
SAME = 1e-2  # squared distance: a prototype is as near as that to the cell that it was projected on
CLASSES, EACH = 20, 3  # shown where nothing is asked for: so many classes, so many prototypes of each


def choose(network: Network, classes: Sequence[str | int] = ()) -> list[int]:
    """Numbers of prototypes: all of the classes asked for, or of at most 20 classes the three with the most weight."""
    module = prototypes_of(network)
    count, each = module.prototypes.shape[:2]
    if classes:
        asked = dict.fromkeys(network.index(label, count) for label in classes)
        return [label * each + k for label in asked for k in range(each)]
    spread = torch.linspace(0, count - 1, min(CLASSES, count)).round().int().tolist()
    found = []
    for label in spread:
        weights = module.last.weight[label].view(count, each)[label]  # K
        order = weights.argsort(descending=True, stable=True).tolist()
        found += _different(network, [label * each + k for k in order], EACH)
    return found


@bounded
def nearest(
    net: NetworkLike,
    data: DataSet,
    *,
    count: Annotated[int, Bound(0, 1000)] = 4,
    prototypes: Sequence[int] | None = None,
    batch: int = 64,
    device: str | None = None,
    kept: Path | None = None,
    progress: Progress = quiet,
) -> Results[Prototype]:
    """What prototypes were projected on, and the `count` pictures of the data, their own left out, that have the most
    similar parts. `data` is what the network was trained on; `prototypes` are numbers, all unless given. In the folder
    `kept` it is kept which pictures are most like each prototype, so that they are looked for once."""
    network = as_network(net, device).fitted("crop")  # as it was trained, and its prototypes placed
    module = prototypes_of(network)
    total = module.owner.numel()
    numbers = list(range(total)) if prototypes is None else list(prototypes)
    stray = [number for number in numbers if not 0 <= number < total]
    if stray or not numbers:
        raise BadChoice(f"{network.name or 'the network'} has the prototypes 0 to {total - 1}; got {stray or numbers}")
    own = projected_on(network, data, numbers, batch)
    skipped: list[tuple[str, str]] = []
    patches: dict[int, tuple[PrototypePatch, ...]] = {}
    if count:
        ranked = rank(network, data, count, batch, kept, skipped, progress)
        patches = _most_similar(network, data, numbers, count, batch, ranked)
    weights, owner, shelf = module.last.weight.detach().cpu(), module.owner.tolist(), Shelf(data)
    found = []
    for number in numbers:
        label, weight = network.label(owner[number]), float(weights[owner[number], number])
        found.append(Prototype(number, label, weight, own.get(number), patches.get(number, ()), shelf))
    return Results(tuple(found), tuple(skipped), "prototypes", {"net": network.name, "data": data.name})


def _most_similar(
    network: Network, data: DataSet, numbers: Sequence[int], count: int, batch: int, ranked: Ranked
) -> dict[int, tuple[PrototypePatch, ...]]:
    """Of each prototype the parts of other pictures that are most like it; only these pictures are read."""
    similarity, which = (rows[list(numbers), :count] for rows in (ranked.similarity, ranked.which))  # Q,count
    places = sorted(set(which[similarity > -torch.inf].tolist()))
    patches: dict[tuple[int, int], PrototypePatch] = {}  # prototype, picture
    for place, placement, maps in _maps(network, data, places, batch):
        for row, column in (which == place).nonzero().tolist():
            number, alike = numbers[row], float(similarity[row, column])
            patches[number, place] = _patch_of(data, place, maps[number], placement, alike)
    return {
        number: tuple(patches[number, place] for place in row if (number, place) in patches)
        for number, row in zip(numbers, which.tolist(), strict=True)
    }


@bounded
def looks_like(
    net: NetworkLike,
    pictures: Inputs,
    data: DataSet,
    *,
    count: int = 5,
    batch: int = 64,
    device: str | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: Progress = quiet,
) -> Results[LooksLike]:  # a public door: every option by its name
    """What each picture is taken for, and the `count` prototypes that contribute the most to that answer; of those that
    were projected on one cell, the first. `data` is what the network was trained on: the prototypes' own patches are
    read from it."""
    fitted = as_network(net, device).fitted()
    network = fitted.fitted("crop")  # as it was trained, and its prototypes placed
    prototypes_of(network)
    steps: list[Step[LooksLike]] = []
    shelf = Shelf(data)

    def answered(group: Group, tensors: Tensor) -> list[LooksLike]:
        return alike(network, tensors, group.shown, count, shelf)

    for step in starmap(Step, in_order(network, groups(fitted, pictures, batch, max_pixels), answered)):
        steps.append(step)
        progress(step.done, step.total)
    results = Results.of(steps, "prototypes", {"net": network.name, "data": data.name, "input": input_of(fitted)})
    numbers = sorted({reason.prototype for answer in results for reason in answer.reasons})
    own = projected_on(network, data, numbers, batch)
    known = (
        replace(answer, reasons=tuple(replace(reason, own=own.get(reason.prototype)) for reason in answer.reasons))
        for answer in results
    )
    return Results(known, results.skipped, results.what, results.settings)


def alike(
    network: Network, tensors: Tensor, shown: Sequence[Shown], count: int, shelf: Shelf = EMPTY
) -> list[LooksLike]:
    """What each picture of a batch is taken for, and by which prototypes; what those were projected on is not looked
    up."""
    with as_found(network), torch.no_grad():
        out: ProtoPNetOutput = prototypes_of(network)(tensors)
    return [_answer(network, out, i, picture, count, shelf) for i, picture in enumerate(shown)]


def _different(network: Network, order: Sequence[int], count: int) -> list[int]:
    """The first prototypes in this order that were not projected on the cell of an earlier one."""
    module = prototypes_of(network)
    places = torch.cat([module.picture.view(-1, 1), module.cell.view(-1, 2)], 1).tolist()
    found: dict[tuple[int, ...], int] = {}
    for number in order:
        key = (number,) if places[number][0] == NOWHERE else tuple(places[number])
        found.setdefault(key, number)
        if len(found) == count:
            break
    return list(found.values())


def _answer(network: Network, out: ProtoPNetOutput, i: int, shown: Shown, count: int, shelf: Shelf) -> LooksLike:
    """The answer for picture i of a batch; what its prototypes were projected on is not known yet."""
    label = int(out.logits[i].argmax())
    weights = out.weights[label].detach()  # P
    order = (out.similarity[i] * weights).argsort(descending=True, stable=True).tolist()
    reasons = tuple(
        Likeness(
            prototype=number,
            label=network.label(int(out.owner[number])),
            box=_box_of(out.maps[i, number].cpu(), cast(Placement, shown.placement)),
            similarity=float(out.similarity[i, number]),
            weight=float(weights[number]),
            own=None,
        )
        for number in _different(network, order, count)
    )
    chance, logit = float(networks.shares_of(network, out.logits[i])[label]), float(out.logits[i, label])
    return LooksLike(cast(Picture, shown.picture), network.label(label), chance, logit, reasons, shelf)


def _patch_of(data: DataSet, picture: int, cells: Tensor, placement: Placement, similarity: float) -> PrototypePatch:
    sample = data.samples[picture]
    label = data.labels[sample.label] if sample.label < len(data.labels) else str(sample.label)
    return PrototypePatch(Path(sample.name).name, picture, label, _box_of(cells, placement), similarity)


def _box_of(cells: Tensor, placement: Placement) -> Box:
    """The top 5 percent of what the network saw; all of it where the map is the same everywhere."""

    def rule(pixels: NDArray[np.float32]) -> NDArray[np.int64]:
        window = placement.at_size((pixels.shape[1], pixels.shape[0])).window
        left, top, right, bottom = (round(side) for side in window)
        box = regions.percentile_box(pixels[top:bottom, left:right])
        corner = np.array([left, top, left, top])
        return box + corner if box.any() else np.array([left, top, right, bottom])

    x0, y0, x1, y1 = box_on_pixels(cells.float().numpy(), placement, rule).tolist()
    return x0, y0, x1, y1


def projected_on(network: Network, data: DataSet, numbers: Iterable[int], batch: int = 64) -> dict[int, PrototypePatch]:
    """The patches that prototypes were projected on, by number; only their pictures are read."""
    module = prototypes_of(network)
    picture, cells = module.picture.flatten().tolist(), module.cell.flatten(0, 1).tolist()
    on: dict[int, list[int]] = {}
    for number in numbers:
        if picture[number] != NOWHERE:
            on.setdefault(picture[number], []).append(number)
    if not on:
        return {}
    other = (
        f"the prototypes of {network.name or 'this network'} were not projected on pictures of {data.name} as it is "
        "given here: give the data that it was trained on, with the same options"
    )
    if max(on) >= len(data):
        raise BadChoice(other)
    found: dict[int, PrototypePatch] = {}
    least = float(similarity_of(torch.tensor(SAME)))
    for place, placement, maps in _maps(network, data, sorted(on), batch):
        for number in on[place]:
            row, column = cells[number]
            if int(module.owner[number]) != data.samples[place].label or maps[number, row, column] < least:
                raise BadChoice(other)
            found[number] = _patch_of(data, place, maps[number], placement, float(maps[number].max()))
    return found


def _maps(network: Network, data: DataSet, places: list[int], batch: int) -> Iterator[tuple[int, Placement, Tensor]]:
    """Of the pictures at these places that can be read, every prototype's map: P,h,w."""
    part = replace(data, samples=tuple(data.samples[place] for place in places))
    for group in groups(network, part, batch):
        if group.batch is not None:
            with as_found(network), torch.no_grad():
                maps = prototypes_of(network)(group.batch).maps.cpu()  # N,P,h,w
            for place, shown, own in zip(group.of(places), group.shown, maps, strict=True):
                yield place, cast(Placement, shown.placement), own
