"""Where on a picture a prototype is seen, and the patches that prototypes were projected on."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fovea.basics import boxes as regions
from fovea.basics.errors import BadChoice
from fovea.data import DataSet
from fovea.models.protopnet import NOWHERE, prototypes_of, similarity_of
from fovea.networks.inputs import groups
from fovea.networks.network import Network, as_found
from fovea.pictures.placement import Placement, on_pixels
from fovea.prototypes.figure import Box
from fovea.prototypes.reasons import PrototypePatch

SAME = 1e-2  # squared distance: a prototype is as near as that to the cell that it was projected on


def patch_of(data: DataSet, picture: int, cells: Tensor, placement: Placement, similarity: float) -> PrototypePatch:
    sample = data.samples[picture]
    label = data.labels[sample.label] if sample.label < len(data.labels) else str(sample.label)
    return PrototypePatch(Path(sample.name).name, picture, label, box_of(cells, placement), similarity)


def box_of(cells: Tensor, placement: Placement) -> Box:
    """The top 5 percent of what the network saw; all of it where the map is the same everywhere."""
    left, top, right, bottom = (round(side) for side in placement.window)
    seen = on_pixels(cells.float().numpy(), placement)[top:bottom, left:right]
    x0, y0, x1, y1 = regions.percentile_box(seen).tolist()
    return (left + x0, top + y0, left + x1, top + y1) if x1 > x0 else (left, top, right, bottom)


def projected_on(
    network: Network, data: DataSet, prototypes: Iterable[int], batch: int = 64
) -> dict[int, PrototypePatch]:
    """The patches that prototypes were projected on, by number; only their pictures are read."""
    module = prototypes_of(network)
    picture, cells = module.picture.flatten().tolist(), module.cell.flatten(0, 1).tolist()
    on: dict[int, list[int]] = {}
    for number in prototypes:
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
    places = sorted(on)
    part = replace(data, samples=tuple(data.samples[place] for place in places))
    found: dict[int, PrototypePatch] = {}
    least = float(similarity_of(torch.tensor(SAME)))
    for group in groups(network, part, batch):
        if group.batch is None:
            continue
        with as_found(network), torch.no_grad():
            maps = module(group.batch).maps.cpu()  # N,P,h,w
        for i, (shown, place) in enumerate(zip(group.shown, group.of(places), strict=True)):
            assert shown.placement is not None
            for number in on[place]:
                row, column = cells[number]
                if int(module.owner[number]) != data.samples[place].label or maps[i, number, row, column] < least:
                    raise BadChoice(other)
                found[number] = patch_of(data, place, maps[i, number], shown.placement, float(maps[i, number].max()))
    return found
