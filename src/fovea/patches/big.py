"""Patches of a file too large to load: in its overview and the regions that this finds, or everywhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
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
from fovea.patches.scales import SIDE, Look, Scale, own_patches
from fovea.patches.stitched import whole_evidence
from fovea.pictures import BigFacts, Placement, Shown

STRUCK = 1000  # cells that a pick strikes out at most: fewer than 32 x 32 patches have an IoU of one half with it


@dataclass(frozen=True)
class AskedClosely:
    """What is asked of a big picture; `label`: of which class, where one was named."""

    viewed: Viewed
    options: LocalizeOptions
    closer: Closer
    batch: int
    label: int | None

    def look(self, tensors: Tensor, shown: Sequence[Shown], label: int | None, branch: int | None) -> Look:
        rows = None if label is None else torch.full((len(tensors),), label, device=tensors.device)
        return self.options.look(self.viewed.network, tensors, rows, branch, shown)

    def settings(self, side: int) -> Settings:
        """As of a picture of the network's size, however large this one is."""
        return self.options.settings(side, self.viewed.input)


def localize_big(asked: AskedClosely) -> LocalizedPicture:
    network, closer = asked.viewed.network, asked.closer
    if closer.all and not asked.options.by_crops:
        whole = _by_branches if network.can("branches") else _by_a_map
        if (found := whole(asked, closer.resolution or 1.0)) is not None:
            return found
    return _by_windows(asked)


def _by_branches(asked: AskedClosely, resolution: float) -> LocalizedPicture | None:
    """By the evidence of the whole."""
    viewed, level = asked.viewed, level_of(asked.viewed, resolution)
    if level is None:
        return None
    ((tensors, shown),) = viewed.taken([viewed.whole], 1)
    guess = int(asked.look(tensors, shown, None, None).label[0])
    found = whole_evidence(viewed.network, level, asked.label, asked.options.branch, guess)
    if found is None:
        return None
    place = on_extent(viewed.big.size, level.extent(found.tiling, found.branch), found.values.shape)
    patches = _picked(found.values, lambda cells: found.boxes(cells) * level.times, asked.settings(found.side))
    about = BigFacts.of(viewed.big, 1 / level.times, stitched=True)
    best = networks.predictions(viewed.network, found.logits[None])[0]
    named = Shown(viewed.picture.name, place, viewed.picture, best, about)
    label = viewed.network.label(found.label), found.probability
    return LocalizedPicture(named, *label, found.side, patches, found.values.numpy())


def _by_a_map(asked: AskedClosely, resolution: float) -> LocalizedPicture | None:
    """By the map that a network without branches has of the whole."""
    viewed, method = asked.viewed, find(asked.options.method or "l2caf")
    found = of_the_whole(viewed, [method], "top1" if asked.label is None else asked.label, None, resolution)
    if found is None:
        return None
    maps, output = found
    ((heatmap,),) = maps.values()
    place, big, side, boxes = heatmap.shown.placement, heatmap.shown.big, asked.options.side, None
    assert place is not None and big is not None  # noqa: PT018 - of the whole of a big picture
    if side is None:
        boxes = own_patches(viewed.network, heatmap.layer, viewed.input)
        side = round(SIDE * min(viewed.input) / 224) if boxes is None else int(boxes[0, 2] - boxes[0, 0])
    values = heatmap.map()
    boxes_of = partial(_squares, place=place, side=side / big.resolution)
    patches = _picked(torch.from_numpy(values), boxes_of, asked.settings(side))
    note = "" if boxes is not None and heatmap.method == "cam" else f"{heatmap.method} at {heatmap.layer}: squares"
    wanted = int(output.argmax()) if asked.label is None else asked.label
    share = float(networks.shares_of(viewed.network, output)[0, wanted])
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
    viewed, options, network = asked.viewed, asked.options, asked.viewed.network
    ((tensors, shown),) = viewed.taken([viewed.whole], 1)
    first = asked.look(tensors, shown, asked.label, options.branch)
    answers = _answers(first)
    scale = first.scales[int(first.chosen[0])]
    regions = apart(closer_regions(_map(scale, 0), _place(scale, shown[0], first.proven)))
    for tensors, placed in viewed.taken(viewed.windows(regions), asked.batch):
        answers += _answers(asked.look(tensors, placed, asked.label, options.branch))
    share, label, number = max(answers)
    side = first.scales[number].side
    branch = side if network.can("branches") or options.by_crops else options.branch
    every = [viewed.whole] if asked.closer.all else regions
    boxes = viewed.windows(every, asked.closer.resolution or (1.0 if asked.closer.all else None))
    parts, found = list[Part](), list[tuple[Box, float]]()
    for tensors, placed in viewed.taken(boxes, asked.batch):
        near = asked.look(tensors, placed, label, branch)
        number = min(number, len(near.scales) - 1)  # all are by one scale; of crops there is no other
        _, picks = near.picks(options.settings, (tensors.shape[2], tensors.shape[3]))[number]
        for i, (where, sure) in enumerate(zip(placed, near.probability.tolist(), strict=True)):
            parts.append(
                Part(_map(near.scales[number], i)[None], _place(near.scales[number], where, near.proven), [sure])
            )
            rows = zip(picks.cells[i].tolist(), picks.boxes[i].tolist(), picks.values[i].tolist(), strict=True)
            found += [(on_picture(box, where), value * sure) for cell, box, value in rows if cell >= 0]
    below = Part(_map(scale, 0)[None], _place(scale, shown[0], first.proven), [float(first.probability[0])])
    heatmap = blended(parts, viewed.big.size, None if asked.closer.all else below)[0]
    place = on_extent(viewed.big.size, viewed.whole, heatmap.shape)
    settings = asked.settings(side)
    values_of = dict(sorted(found, key=lambda row: row[1]))  # of a patch in two windows, the better one
    patches = [Patch(box, values_of[box], _cell(box, place)) for box in apart(found, settings.overlap, settings.count)]
    finest = max((viewed.input[1] / (box[2] - box[0]) for box in boxes), default=0.0)
    about = BigFacts.of(viewed.big, min(finest, 1.0), tuple(every))
    best = networks.predictions(network, first.output)[0]
    named = Shown(viewed.picture.name, place, viewed.picture, best, about)
    note = f"{first.source}, {BLENDED}"
    return LocalizedPicture(named, network.label(label), share, side, tuple(patches), heatmap, note=note)


def _answers(found: Look) -> list[tuple[float, int, int]]:
    """Probability, class and scale of every picture."""
    return [*zip(found.probability.tolist(), found.label.tolist(), found.chosen.tolist(), strict=True)]


def _map(scale: Scale, i: int) -> NDArray[np.float32]:
    """Of one picture; a cell that was not read has no evidence."""
    values: NDArray[np.float32] = scale.values[i].nan_to_num(0).cpu().numpy()
    return values


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
