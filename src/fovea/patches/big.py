"""Patches of a file too large to load: in its overview and the regions that this finds, or everywhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fovea import networks
from fovea.heatmaps import (
    BLENDED,
    Box,
    Closer,
    Part,
    Viewed,
    apart,
    blended,
    closer_regions,
    find,
    level_of,
    of_the_whole,
    on_extent,
)
from fovea.patches.lip import Settings, pick
from fovea.patches.localized import LocalizedPicture, Patch, on_picture
from fovea.patches.options import LocalizeOptions
from fovea.patches.scales import SIDE, Look, Scale, look, own_patches
from fovea.patches.stitched import whole_evidence
from fovea.pictures import BigFacts, Placement, Shown

STRUCK = 1000  # cells that a pick strikes out at most: fewer than 32 x 32 patches have an IoU of one half with it


@dataclass(frozen=True)
class AskedClosely:
    """What is asked of a big picture; `label`: of which class, where one was named."""

    seen: Viewed
    options: LocalizeOptions
    closer: Closer
    batch: int
    label: int | None

    def look(self, tensors: Tensor, shown: Sequence[Shown], label: int | None, branch: int | None) -> Look:
        rows = None if label is None else torch.full((len(tensors),), label, device=tensors.device)
        method = self.options.method or "l2caf"
        return look(self.seen.network, tensors, rows, branch, method, self.options.side, shown)

    def settings(self, side: int) -> Settings:
        """As of a picture of the network's size, however large this one is."""
        return self.options.settings(side, self.seen.input)


def localize_big(asked: AskedClosely) -> LocalizedPicture:
    network, closer = asked.seen.network, asked.closer
    if closer.all:
        whole = _by_branches if network.can("branches") else _by_a_map
        if (found := whole(asked, closer.resolution or 1.0)) is not None:
            return found
    return _by_windows(asked)


def _by_branches(asked: AskedClosely, resolution: float) -> LocalizedPicture | None:
    """By the evidence of the whole."""
    seen, level = asked.seen, level_of(asked.seen, resolution)
    if level is None:
        return None
    ((tensors, shown),) = seen.taken([seen.whole], 1)
    guess = int(asked.look(tensors, shown, None, None).label[0])
    found = whole_evidence(seen.network, level, asked.label, asked.options.branch, guess)
    if found is None:
        return None
    place = on_extent(seen.big.size, level.extent(found.tiling, found.branch), found.values.shape)
    patches = _picked(found.values, lambda cells: found.boxes(cells) * level.times, asked.settings(found.side))
    about = BigFacts.of(seen.big, 1 / level.times, stitched=True)
    best = networks.predictions(seen.network, found.logits[None])[0]
    named = Shown(seen.picture.name, place, seen.picture, best, about)
    label = seen.network.label(found.label), found.probability
    return LocalizedPicture(named, *label, found.side, patches, found.values.numpy())


def _by_a_map(asked: AskedClosely, resolution: float) -> LocalizedPicture | None:
    """By the map that a network without branches has of the whole."""
    seen, method = asked.seen, find(asked.options.method or "l2caf")
    maps = of_the_whole(seen, [method], asked.label, None, resolution)
    if maps is None:
        return None
    ((heatmap,),) = maps.values()
    place, big, own = heatmap.shown.placement, heatmap.shown.big, None
    assert place is not None and big is not None  # noqa: PT018 - of the whole of a big picture
    if asked.options.side is None:
        own = own_patches(seen.network, heatmap.layer, seen.input)
    side = asked.options.side or (round(SIDE * min(seen.input) / 224) if own is None else int(own[0, 2] - own[0, 0]))
    values = heatmap.map()
    boxes_of = partial(_squares, place=place, side=side / big.resolution)
    patches = _picked(torch.from_numpy(values), boxes_of, asked.settings(side))
    note = "" if own is not None and heatmap.method == "cam" else f"{heatmap.method} at {heatmap.layer}: squares"
    shares = dict(heatmap.shown.predictions)
    share = shares.get(heatmap.targets[0], 0.0)
    return LocalizedPicture(heatmap.shown, heatmap.targets[0], share, side, patches, values, note=note)


def _squares(cells: Tensor, place: Placement, side: float) -> Tensor:
    """Around the middles of cells, in full-resolution pixels, moved into the picture: M,4."""
    (columns, _), (width, height) = place.input, place.picture
    x = (cells % columns + 0.5) * place.scale[0] + place.offset[0] - side / 2
    y = (cells // columns + 0.5) * place.scale[1] + place.offset[1] - side / 2
    x, y = x.clamp(0, max(width - side, 0)), y.clamp(0, max(height - side, 0))
    return torch.stack([x, y, x + side, y + side], 1)


def _picked(values: Tensor, boxes_of: Callable[[Tensor], Tensor], settings: Settings) -> tuple[Patch, ...]:
    """LIP on one map of very many cells: among as many as picks can strike out."""
    flat = values.flatten()
    cells = flat.topk(min(settings.candidates(len(flat)), settings.count * STRUCK)).indices.sort().values
    boxes = boxes_of(cells).double()
    picks = pick(flat[cells].view(1, 1, -1), boxes, replace(settings, share=1.0)).cells[0]
    found = list[Patch]()
    for i in picks[picks >= 0].tolist():
        x0, y0, x1, y1 = boxes[i].tolist()
        found.append(Patch((x0, y0, x1, y1), float(flat[cells[i]]), divmod(int(cells[i]), values.shape[1])))
    return tuple(found)


def _by_windows(asked: AskedClosely) -> LocalizedPicture:
    """In windows as large as the network's input; what is found counts by the probability of the class in each.

    Where no class is named, it is what the overview, or a region that it finds, is taken for with most certainty.
    """
    seen, options, network = asked.seen, asked.options, asked.seen.network
    ((tensors, shown),) = seen.taken([seen.whole], 1)
    first = asked.look(tensors, shown, asked.label, options.branch)
    answers = _answers(first)
    scale = first.scales[int(first.chosen[0])]
    regions = apart(closer_regions(scale.values[0].cpu().numpy(), _place(scale, shown[0], first.proven)))
    for tensors, placed in seen.taken(seen.windows(regions), asked.batch):
        answers += _answers(asked.look(tensors, placed, asked.label, options.branch))
    share, label, number = max(answers)
    side = first.scales[number].side
    branch = side if network.can("branches") else options.branch
    every = [seen.whole] if asked.closer.all else regions
    boxes = seen.windows(every, asked.closer.resolution or (1.0 if asked.closer.all else None))
    parts, found = list[Part](), list[tuple[Box, float]]()
    for tensors, placed in seen.taken(boxes, asked.batch):
        near = asked.look(tensors, placed, label, branch)
        _, picks = near.picks(options.settings, (tensors.shape[2], tensors.shape[3]))[number]  # all are by one scale
        for i, (where, sure) in enumerate(zip(placed, near.probability.tolist(), strict=True)):
            values = near.scales[number].values[i].cpu().numpy()
            parts.append(Part(values[None], _place(near.scales[number], where, near.proven), [sure]))
            rows = zip(picks.cells[i].tolist(), picks.boxes[i].tolist(), picks.values[i].tolist(), strict=True)
            found += [(on_picture(box, where), value * sure) for cell, box, value in rows if cell >= 0]
    below = Part(scale.values[:1].cpu().numpy(), _place(scale, shown[0], first.proven), [float(first.probability[0])])
    heatmap = blended(parts, seen.big.size, None if asked.closer.all else below)[0]
    place = on_extent(seen.big.size, seen.whole, heatmap.shape)
    settings = asked.settings(side)
    values_of = dict(sorted(found, key=lambda row: row[1]))  # of a patch in two windows, the better one
    patches = [Patch(box, values_of[box], _cell(box, place)) for box in apart(found, settings.overlap, settings.count)]
    finest = max((seen.input[1] / (box[2] - box[0]) for box in boxes), default=0.0)
    about = BigFacts.of(seen.big, min(finest, 1.0), tuple(every))
    best = networks.predictions(network, first.output)[0]
    named = Shown(seen.picture.name, place, seen.picture, best, about)
    note = f"{first.source}, {BLENDED}"
    return LocalizedPicture(named, network.label(label), share, side, tuple(patches), heatmap, note=note)


def _answers(found: Look) -> list[tuple[float, int, int]]:
    """Probability, class and scale of every picture."""
    return [*zip(found.probability.tolist(), found.label.tolist(), found.chosen.tolist(), strict=True)]


def _place(scale: Scale, shown: Shown, proven: bool) -> Placement:
    """Where the cells of a heatmap lie in full-resolution pixels: around the middles of their patches, or, of a network
    that sees everything, evenly over the input."""
    assert shown.placement is not None  # of a window
    rows, columns = scale.grid
    x0, y0, x1, y1 = 0.0, 0.0, *map(float, shown.placement.input)
    if proven:
        middles = (scale.boxes[:, :2] + scale.boxes[:, 2:]).float() / 2
        (left, top), (right, bottom) = middles[0].tolist(), middles[-1].tolist()
        across, down = (right - left) / max(columns - 1, 1) / 2, (bottom - top) / max(rows - 1, 1) / 2
        x0, y0, x1, y1 = left - across, top - down, right + across, bottom + down
    return on_extent(shown.placement.picture, on_picture((x0, y0, x1, y1), shown), scale.grid)


def _cell(box: Box, place: Placement) -> tuple[int, int]:
    """The cell of the map that a box has its middle in."""
    middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    column, row = (
        min(max(int((at - start) / step), 0), cells - 1)
        for at, start, step, cells in zip(middle, place.offset, place.scale, place.input, strict=True)
    )
    return row, column
