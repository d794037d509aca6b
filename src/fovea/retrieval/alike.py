"""Where a picture and its neighbours are alike: the maps of all pairs, from one pass through the trunk a picture."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fovea.basics.errors import BadNetwork, BadPicture
from fovea.heatmaps.explain import find, look_at, look_into
from fovea.heatmaps.heatmap import HeatMap, concat
from fovea.networks.cutting import Cut, Opened, cut
from fovea.networks.network import Network, as_found
from fovea.pictures import Picture
from fovea.pictures.shown import Shown
from fovea.retrieval.found import Found, Maps, Neighbour

OWN, PAIR = "l2caf-oblivious", "l2caf"
SIZE = 16  # neighbours at a time


def maps_of(found: Found) -> Maps:
    try:
        return _maps(found)
    except BadNetwork as reason:  # that it has no map to look at
        return Maps(None, None, (), tuple((one, str(reason)) for one in found.neighbours))


def _maps(found: Found) -> Maps:
    network = found.index.known.network
    query, shown = _prepared(network, found.picture)
    told, lost = list[tuple[Neighbour, Tensor, Shown]](), list[tuple[Neighbour, str]]()
    for one in found.neighbours:
        try:
            tensor, own = _prepared(network, Picture(one.name, one.path))
        except BadPicture as reason:
            lost.append((one, str(reason)))
            continue
        if tensor.shape == query.shape:
            told.append((one, tensor, own))
        else:
            lost.append((one, f"{one.name} comes to the network in another size than {found.name}"))
    with as_found(network) as parts:
        made = cut(network, query, None, parts)
        alone = made.open(query)
        seen, _ = look_into(network, alone, [shown], [find(OWN)], "output", made.layer)
        groups = [told[start : start + SIZE] for start in range(0, len(told), SIZE)]
        pairs = [_pairs(network, made, alone, query, shown, group) for group in groups]
    return Maps(seen[OWN], concat(pairs) if pairs else None, tuple(one for one, _, _ in told), tuple(lost))


def _prepared(network: Network, picture: Picture) -> tuple[Tensor, Shown]:
    tensor, placement = network.prepare(picture.read(sys.maxsize))  # its size was accepted when it was embedded
    ready = tensor.unsqueeze(0).to(network.device, network.dtype)  # 1,C,H,W
    return ready, Shown(picture.name, placement, picture)


def _pairs(
    network: Network,
    made: Cut,
    alone: Opened,
    query: Tensor,
    shown: Shown,
    others: Sequence[tuple[Neighbour, Tensor, Shown]],
) -> HeatMap:
    """What `explain(…, target='pair')` gives for query, neighbour, query, neighbour, …: 2K maps."""
    batch = torch.cat([tensor for _, tensor, _ in others])  # K,C,H,W
    names = [one for _, _, own in others for one in (shown, own)]
    opened = made.open(batch)
    if opened.whole or not opened.free:  # the head takes its own batch only, so every picture passes the whole network
        return look_at(network, _by_turns(query, batch), names, [find(PAIR)], "pair")[0][PAIR]
    features = _by_turns(alone.features.detach(), opened.features.detach()).requires_grad_()
    paired = replace(
        opened,
        features=features,
        output=opened.head(features.clone()),
        trunk=lambda: _by_turns(alone.trunk(), opened.trunk()),
    )
    return look_into(network, paired, names, [find(PAIR)], "pair", made.layer)[0][PAIR]


def _by_turns(one: Tensor, others: Tensor) -> Tensor:
    """One before each of the others: 2K,..."""
    return torch.stack([one.expand_as(others), others], dim=1).flatten(0, 1)
