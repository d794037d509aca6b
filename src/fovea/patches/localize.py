"""fovea.localize: the informative patches of pictures, by AnchorNet or by any network's attention map."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import starmap
from typing import Any

import torch
from torch import Tensor

from fovea import networks
from fovea.basics import bounded, demand_kinds
from fovea.heatmaps import OVERVIEW, Closer, Viewed
from fovea.networks import Group, Inputs, Network, NetworkLike, as_found, as_network, groups, in_order, input_of
from fovea.patches.big import AskedClosely, localize_big
from fovea.patches.localized import BranchAnswer, LocalizedPicture, Patch, on_picture
from fovea.patches.media import medium_of, refuse_unused
from fovea.patches.options import LocalizeOptions
from fovea.patches.scales import Look, Scale
from fovea.patches.sound import localize_sounds
from fovea.patches.text import localize_texts
from fovea.pictures import MAX_PIXELS, BigPicture, Picture, Shown
from fovea.results import Results, Step, in_turn

NOTE = "squares around cells that may see the whole picture"


def localize(  # a public door: what may be asked for is all here, by name
    net: NetworkLike,
    pictures: Inputs,
    *,
    count: int | None = None,
    overlap: float | None = None,
    share: float | None = None,
    branch: int | None = None,
    target: str | int | None = None,
    method: str | None = None,
    side: int | None = None,
    evidence: str | None = None,
    batch: int = 16,
    device: str | None = None,
    max_pixels: int = MAX_PIXELS,
    fit: str | None = None,
    all: bool = False,
    resolution: float | None = None,
) -> Results[Any]:  # a public door: every option by its name
    """The patches that speak for what a picture is taken for, or for a class `target`: LIP on its heatmap.

    At most `count` patches (K), any two of which overlap by an IoU below `overlap` (T), among the best `share` of the
    cells (P); unless given, as the paper tests: patches that together are no larger than the picture, 0.5, 0.05.
    `branch` has AnchorNet localize by the branch with that side. For other networks `method` names the heatmap, l2caf
    unless given, and `side` is the patches' side in pixels of the network's input; `evidence="crops"` has the network
    see every patch alone instead ("few-crops": a tenth of them, coarse to fine), which proves it and takes long. `fit`
    is as for `explain`, as are `all` and `resolution`, of files too large to load. One LocalizedPicture per picture.

    A network for text is given texts, and one LocalizedText per text has its span of words, for `target` and by
    `branch` where asked; one for sounds is given .wav files, and each LocalizedSound has at most `count` time spans."""
    demand_kinds(localize, locals())
    network = as_network(net, device).fitted(fit)
    options = LocalizeOptions(count, overlap, share, branch, target, method, side, evidence)
    medium = medium_of(network)
    refuse_unused([medium], asdict(options))
    closer = Closer(all, resolution)
    about = network.settings(**asdict(options), input=input_of(network), **closer.asked)
    given: Any = pictures
    if medium == "texts":
        return localize_texts(network, given, target, branch)
    if medium == "sounds":
        return localize_sounds(network, given, 1 if count is None else count)
    steps = localize_steps(network, pictures, options, batch, max_pixels, closer)
    return Results.of(steps, "localize", about)


@bounded
def localize_steps(
    network: Network,
    pictures: Inputs,
    options: LocalizeOptions,
    batch: int = 16,
    max_pixels: int = MAX_PIXELS,
    closer: Closer = OVERVIEW,
) -> Iterator[Step[LocalizedPicture]]:
    """Batch after batch, so that a folder of any size needs the memory of one; files too large to load one by one."""

    options.demand(network)

    def found(group: Group, tensors: Tensor) -> list[LocalizedPicture]:
        label = None
        if options.target is not None:
            wanted = network.index(options.target, outputs_of(network, tensors))
            label = torch.full((len(tensors),), wanted, device=tensors.device)
        seen = options.look(network, tensors, label, options.branch, group.shown)
        return _localized(network, seen, options, group.shown, (tensors.shape[2], tensors.shape[3]))

    def closely(picture: Picture, big: BigPicture) -> LocalizedPicture:
        viewed, label = Viewed(network, picture, big), None
        if options.target is not None:
            label = network.index(options.target, outputs_of(network, networks.blank(network)))
        return localize_big(AskedClosely(viewed, options, closer, batch, label))

    def others(given: Inputs) -> Iterator[Step[LocalizedPicture]]:
        return starmap(Step, in_order(network, groups(network, given, batch, max_pixels), found))

    yield from in_turn(pictures, max_pixels, closely, others)


def outputs_of(network: Network, batch: Tensor) -> int:
    """How many classes a network has: as many as labels, or as outputs."""
    if network.labels is not None:
        return len(network.labels)
    with as_found(network), torch.no_grad():
        out = network.answer(batch[:1])
    return int((out.logits if network.can("branches") else network.read(out)).shape[1])


def _localized(
    network: Network, seen: Look, options: LocalizeOptions, shown: Sequence[Shown], size: tuple[int, int]
) -> list[LocalizedPicture]:
    made: dict[int, LocalizedPicture] = {}
    note = "" if seen.proven else f"{seen.source}: {NOTE}"
    answers, best = _answers(network, seen, shown), networks.predictions(network, seen.output)
    for scale, (chosen, picks) in zip(seen.scales, seen.picks(options.settings, size), strict=True):
        for row, i in enumerate(chosen.tolist()):
            cells = [cell for cell in picks.cells[row].tolist() if cell >= 0]
            patches = tuple(_patch(scale, scale.values[i], cell, shown[i]) for cell in cells)
            attended = [each.attention[i] for each in seen.scales if each.attention is not None]
            attention = tuple(each.float().cpu().numpy() for each in attended)
            answer = network.label(int(seen.label[i])), float(seen.probability[i]), scale.side, patches
            maps = scale.values[i].cpu().numpy(), answers[i], attention
            made[i] = LocalizedPicture(replace(shown[i], predictions=best[i]), *answer, *maps, note)
    return [made[i] for i in range(len(shown))]


def _answers(network: Network, seen: Look, shown: Sequence[Shown]) -> list[tuple[BranchAnswer, ...]]:
    """What each branch says on its own; a network without branches says one thing only."""
    answers: list[list[BranchAnswer]] = [[] for _ in shown]
    for scale in seen.scales:
        if (values := scale.own) is None:
            continue
        probability, label = networks.shares_of(network, scale.logits).max(1)
        for i, answer in enumerate(answers):
            best = _patch(scale, values[i], int(values[i].argmax()), shown[i])  # for the label that it gives itself
            answer.append(BranchAnswer(scale.side, network.label(int(label[i])), float(probability[i]), best))
    return [tuple(answer) for answer in answers]


def _patch(scale: Scale, values: Tensor, cell: int, shown: Shown) -> Patch:
    row, column = divmod(cell, scale.grid[1])
    return Patch(on_picture(scale.boxes[cell].tolist(), shown), float(values[row, column]), (row, column))
