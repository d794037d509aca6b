"""Where a picture and its neighbors are alike: the maps of all pairs, from one pass through the trunk per picture."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fovea.basics import BadNetwork, BadPicture
from fovea.heatmaps import HeatMaps, concat, find, look_at, look_into
from fovea.networks import Cut, Network, Opened, as_found, cut
from fovea.pictures import MAX_PIXELS, Picture, Shown

OWN, PAIR = "l2caf-oblivious", "l2caf"
SIZE = 16  # neighbors at a time


@dataclass(frozen=True)
class Neighbor:
    """A picture of the index; `name` is its path below the indexed folder, `label` the folder that it lies in."""

    name: str
    path: Path
    similarity: float  # cosine, -1 to 1
    label: str | None = None
    itself: bool = False  # the very file that was asked about

    @property
    def picture(self) -> Picture:
        """It is read where it lies in the indexed folder: no name in an index, and no link, leads out of that."""
        folder, real = self.path.parents[len(Path(self.name).parts) - 1], os.path.realpath(self.path)
        inside = Path(real).is_relative_to(os.path.realpath(folder))
        out = BadPicture(f"{self.name} is a link that leads out of the indexed folder: index what it leads to")
        return Picture(self.name, self.path if inside else out)


@dataclass(frozen=True)
class Maps:
    """`own` is where the network looks at the query. `pairs` holds two maps for each of `neighbors`, in their order:
    what of the query, and what of the neighbor, makes the two alike. `lost` are neighbors without maps, and why: all of
    them, and the query, where the network has no map to look at."""

    own: HeatMaps | None
    pairs: HeatMaps | None
    neighbors: tuple[Neighbor, ...]
    lost: tuple[tuple[Neighbor, str], ...] = ()


Ready = tuple[Neighbor, Tensor, Shown]  # a neighbor as the network takes it


def maps_of(network: Network, picture: Picture, neighbors: Sequence[Neighbor], max_pixels: int = MAX_PIXELS) -> Maps:
    try:
        return _maps(network, picture, neighbors, max_pixels)
    except BadNetwork as reason:  # that it has no map to look at
        return Maps(None, None, (), tuple((neighbor, str(reason)) for neighbor in neighbors))


def _maps(network: Network, picture: Picture, neighbors: Sequence[Neighbor], max_pixels: int) -> Maps:
    query, shown = _prepared(network, picture, max_pixels)
    ready, lost = list[Ready](), list[tuple[Neighbor, str]]()
    for neighbor in neighbors:
        try:
            tensor, place = _prepared(network, neighbor.picture, max_pixels)
        except BadPicture as reason:
            lost.append((neighbor, str(reason)))
            continue
        if tensor.shape == query.shape:
            ready.append((neighbor, tensor, place))
        else:
            lost.append((neighbor, f"{neighbor.name} comes to the network in another size than {picture.name}"))
    with as_found(network) as parts:
        made = cut(network, query, None, parts)
        alone = made.open(query)
        seen, _ = look_into(network, alone, [shown], [find(OWN)], "output", made.layer)
        groups = [ready[start : start + SIZE] for start in range(0, len(ready), SIZE)]
        pairs = [_pairs(network, made, alone, query, shown, group) for group in groups]
    return Maps(seen[OWN], concat(pairs) if pairs else None, tuple(item[0] for item in ready), tuple(lost))


def _prepared(network: Network, picture: Picture, max_pixels: int) -> tuple[Tensor, Shown]:
    tensor, placement = network.prepare(picture.read(max_pixels))
    ready = tensor.unsqueeze(0).to(network.device, network.dtype)  # 1,C,H,W
    return ready, Shown(picture.name, placement, picture)


def _pairs(network: Network, made: Cut, alone: Opened, query: Tensor, shown: Shown, others: list[Ready]) -> HeatMaps:
    """What `explain(…, target='pair')` gives for query, neighbor, query, neighbor, …: 2K maps."""
    batch = torch.cat([tensor for _, tensor, _ in others])  # K,C,H,W
    names = [place for _, _, other in others for place in (shown, other)]
    opened = made.open(batch)
    if opened.whole or not opened.free:  # the head takes its own batch only, so every picture passes the whole network
        return look_at(network, _by_turns(query, batch), names, [find(PAIR)], "pair")[0][PAIR]
    features = _by_turns(alone.features.detach(), opened.features.detach()).requires_grad_()
    output, trunk = opened.head(features.clone()), lambda: _by_turns(alone.trunk(), opened.trunk())
    paired = replace(opened, features=features, output=output, trunk=trunk, input=None)
    return look_into(network, paired, names, [find(PAIR)], "pair", made.layer)[0][PAIR]


def _by_turns(query: Tensor, others: Tensor) -> Tensor:
    """The query before each of the others: 2K,..."""
    return torch.stack([query.expand_as(others), others], dim=1).flatten(0, 1)
