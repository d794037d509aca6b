"""What the parts of a two-stream network are worth: each stream, each step, sums of steps, attention (Tables 6.1, 6.2).

Every network is run once; its steps are then put together in every way. Networks that differ in a last -seed<N> alone
are told as one, by their mean and Student's interval over them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics.errors import BadChoice
from fovea.basics.intervals import RESAMPLES, interval, student
from fovea.data import DataSet
from fovea.measures import seeds
from fovea.measures.figures import Figures
from fovea.measures.patch_parts import demand_read
from fovea.models.twostream import TwoStream, TwoStreamOutput, Views
from fovea.networks.matching import match
from fovea.networks.network import Network, as_found
from fovea.networks.stream import batches, prepared, rank_of
from fovea.streams.taken import in_shares, patches_of, source_of

Hits = dict[str, NDArray[np.bool_]]  # by how the steps are put together; and "global", of the global stream alone
Row = dict[str, Any]


def measure(
    networks: Sequence[Network],
    data: DataSet,
    batch: int = 32,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Figures:
    """A row a network and way of putting its steps together, the network's own way first.

    `gain` is over the networks whose local stream is none, trained alike, where they are among those given: seed by
    seed where these are the same, and else between the means.
    """
    if not networks or len({one.name for one in networks}) < len(networks):
        raise BadChoice(f"name one network or several, each by another name; got {[one.name for one in networks]}")
    odd = next((one for one in networks if not isinstance(one.module, TwoStream)), None)
    if odd is not None:
        raise BadChoice(
            f"{odd.name or 'this network'} has not two streams; 'fovea measure classify' measures any network"
        )
    skipped: list[tuple[str, str]] = []
    found = _hits(networks, data, batch, skipped, progress)
    groups: dict[str, list[Network]] = {}
    for network in networks:
        groups.setdefault(seeds.of(network.name)[0], []).append(network)
    alone = [own for own in groups.values() if _module(own[0]).local is None]
    base = {seeds.of(one.name)[1]: float(found[one.name]["both"].mean()) for one in alone[0]} if len(alone) == 1 else {}
    rows = [row for name, own in groups.items() for row in _rows(name, own, found, base, data, seed)]
    settings = {
        "data": data.name,
        "images": len(next(iter(found.values()))["both"]),
        "top1": "of the two streams' logits added, with the network's own weight",
        "interval": f"95 %: Student's over seeds; of one network, of {RESAMPLES:,} bootstrap resamples of the pictures",
        "gain": "over the global stream alone, trained alike" if base else None,
        "readout": "how steps are made one; the first of a network is its own, the others were not trained so",
    }
    return Figures("twostream", settings, rows, skipped)


def _module(network: Network) -> TwoStream:
    assert isinstance(network.module, TwoStream)
    return network.module


def _hits(
    networks: Sequence[Network],
    data: DataSet,
    batch: int,
    skipped: list[tuple[str, str]],
    progress: Callable[[int, int], None],
) -> dict[str, Hits]:
    """Which pictures each network is right about, in every way; pictures are decoded once for all."""
    matching = {one.name: match(one, data, len(one.labels or ())) for one in networks}
    patches = {one.name: patches_of(one, data, one.device, progress) for one in networks}
    parts: dict[str, dict[str, list[NDArray[np.bool_]]]] = {one.name: {} for one in networks}
    done = 0
    for samples, images in batches(data, batch, skipped):
        ready: dict[Any, Tensor] = {}
        for network in networks:
            if network.transform not in ready:
                ready[network.transform], _, _ = prepared(network, samples, images)
            tensors, module = ready[network.transform].to(network.device), _module(network)
            size, own = (tensors.shape[2], tensors.shape[3]), patches[network.name]
            boxes = None if own is None else in_shares(own, samples, size, module.patches).to(network.device)
            with as_found(network), torch.no_grad():
                given = answers(module, module(Views(tensors, boxes)))
            labels = matching[network.name].of(samples)
            for key, logits in given.items():
                parts[network.name].setdefault(key, []).append(rank_of(logits, labels) < 1)
        done += len(samples)
        progress(done, len(data))
    demand_read(done, data, skipped)
    return {name: {key: np.concatenate(rows) for key, rows in own.items()} for name, own in parts.items()}


def answers(module: TwoStream, out: TwoStreamOutput) -> dict[str, Tensor]:
    """Logits N,classes of both streams together, of each alone, and with the steps put together in other ways."""
    found = {"both": out.logits, "global": out.whole}
    if module.local is None or out.steps is None or out.local is None:
        return found
    found["local"] = out.local
    for readout in readouts(module):
        weights = module.local.weigh(out.steps.features, readout)
        each = module.local.answer(out.steps.features, weights)
        local = each.view(*out.logits.shape[:1], -1, each.shape[1]).mean(1)
        found[readout], found[f"local {readout}"] = out.whole + out.weight * local, local
    return found


def readouts(module: TwoStream) -> list[str]:
    """Fig. 6.1's steps one by one, Table 6.2's sums 1 to t, their mean; none where there is one step."""
    if module.local is None or module.local.steps < 2:
        return []
    numbers = range(1, module.local.steps + 1)
    return [*(f"sum:{t}" for t in numbers), *(f"step:{t}" for t in numbers), "mean"]


def _rows(
    name: str,
    networks: Sequence[Network],
    found: Mapping[str, Hits],
    base: Mapping[str, float],
    data: DataSet,
    seed: int,
) -> list[Row]:
    module = _module(networks[0])
    own = "" if module.local is None else module.local.readout
    keys = {"both": (own, "local"), **{one: (one, f"local {one}") for one in readouts(module)}}
    return [
        {
            "net": name,
            "data": data.name,
            "seeds": len(networks),
            "local": "none" if module.local is None else module.local.kind,
            "source": source_of(module),
            "patches": None if module.local is None else module.patches,
            "readout": readout or None,
            **_shares({seeds.of(one.name)[1]: found[one.name][key] for one in networks}, base, seed),
            "global_top1": float(np.mean([found[one.name]["global"].mean() for one in networks])),
            "local_top1": None
            if module.local is None
            else float(np.mean([found[one.name][local].mean() for one in networks])),
        }
        for key, (readout, local) in keys.items()
    ]  # fmt: skip


def _shares(hits: Mapping[str, NDArray[np.bool_]], base: Mapping[str, float], seed: int) -> Row:
    """Of networks by their seeds."""
    values = {key: float(one.mean()) for key, one in hits.items()}
    spread = student(list(values.values())) if len(values) > 1 else None
    low, high = spread or interval(next(iter(hits.values())), resamples=RESAMPLES, seed=seed)
    row: Row = {"top1": float(np.mean([*values.values()])), "low": low, "high": high}
    if not base:
        return row
    row["gain"] = row["top1"] - float(np.mean([*base.values()]))
    if base.keys() == values.keys() and len(base) > 1:  # seed by seed
        row["gain_low"], row["gain_high"] = student([one - base[key] for key, one in values.items()], least=-1.0)
    return row
