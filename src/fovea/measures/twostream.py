"""What the parts of a two-stream network are worth: each stream, each step, sums of steps, attention (Tables 6.1, 6.2).

Every network is run once; its steps are then put together in every way. Networks that differ in a last -seed<N> alone
are told as one, by their mean and Student's interval over them."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import RESAMPLES, BadChoice, interval, student
from fovea.measures import Figures, Run, measure, seeds
from fovea.models.twostream import TwoStream, TwoStreamOutput, Views
from fovea.networks import as_found, match, rank_of
from fovea.streams import in_shares, patches_of, source_of

Hits = dict[str, NDArray[np.bool_]]  # by how the steps are put together; and "global", of the global stream alone
Row = dict[str, Any]
Names = Mapping[str, str]  # of networks, by their seeds
Shares = Mapping[str, float]  # likewise
Sight = tuple[int, ...]  # pixels and cells a side that a global stream sees


@measure(
    "twostream",
    title="Two streams and their parts",
    about="What the parts of a two-stream network contribute: each stream alone and both, every step alone, sums of "
    "steps, attention.",
    example="--data cub100:split=test --net twostream-cub100",
    nets="several",
    needs=("labels",),
    usual={"net": ("twostream-cub100",)},
    columns=("net", "seeds", "local", "source", "readout", "top1", "global_top1", "local_top1", "gain"),
    interval="top1",
)
def twostream(run: Run, *, batch: int = 32, seed: int = 0) -> Figures:
    """One row per network and way of putting its steps together, the network's own way first. `gain` is over the
    networks whose local stream is none, and whose global stream sees pictures at the same size and in as many cells,
    where they are among those given: seed by seed where these are the same, and else between the means."""
    for name, network in run.networks.items():
        if not network.can("streams") and not hasattr(network.module, "local"):  # a global stream alone has none
            raise BadChoice(f"{name} is not a two-stream network; 'fovea measure classify' measures any classifier")
    hits, sights = _hits(run, batch)
    groups: dict[str, dict[str, str]] = {}  # names of networks by what they are called without seeds, and their seeds
    for name in run.networks:
        called, number = seeds.of(name)
        groups.setdefault(called, {})[number] = name
    sight = {called: sights[next(iter(own.values()))] for called, own in groups.items()}
    alone: dict[Sight, str] = {}  # the global streams alone
    for called in (called for called, own in groups.items() if _module(run, own).local is None):
        if sight[called] in alone:
            both = f"{alone[sight[called]]} and {called}"
            raise BadChoice(f"{both} are both a global stream alone, and see alike: gains are over one of them")
        alone[sight[called]] = called
    rows: list[Row] = []
    for called, own in groups.items():
        below = groups.get(alone.get(sight[called], ""), {})
        base = {number: float(hits[name]["both"].mean()) for number, name in below.items()}
        rows += _rows(run, called, own, hits, base, seed)
    settings = {
        "images": len(next(iter(hits.values()))["both"]),
        "top1": "of the two streams' logits added, with the network's own weight",
        "interval": f"95 %: Student's over seeds; of one network, of {RESAMPLES:,} bootstrap resamples of the pictures",
        "gain": "over the global stream alone that sees pictures at the same size, in as many cells" if alone else None,
        "readout": "how steps are made one; the first of a network is its own, the others were not trained so",
    }
    return run.figures(rows, settings)


def _module(run: Run, group: Names) -> TwoStream:
    """Of the first of some networks that differ in their seeds alone."""
    return cast(TwoStream, run.networks[next(iter(group.values()))].module)


def _hits(run: Run, batch: int) -> tuple[dict[str, Hits], dict[str, Sight]]:
    """Which pictures each network is right about, in every way, and how it sees them; pictures are decoded once for
    all."""
    networks = run.networks
    matching = {name: match(network, run.data, len(network.labels or ())) for name, network in networks.items()}
    patches = {name: patches_of(network, run.data, network.device, run.progress) for name, network in networks.items()}
    hits: dict[str, dict[str, list[NDArray[np.bool_]]]] = {name: {} for name in networks}
    sights: dict[str, Sight] = {}
    for samples, inputs in run.inputs(batch):
        for (name, network), given in zip(networks.items(), inputs, strict=True):
            module, found = cast(TwoStream, network.module), patches[name]
            size = (given.tensors.shape[2], given.tensors.shape[3])
            boxes = None if found is None else in_shares(found, samples, size, module.patches).to(network.device)
            with as_found(network), torch.no_grad():
                out = module(Views(given.tensors, boxes))
                logits = answers(module, out)
            sights[name] = (*out.view.shape[2:], *(() if out.map is None else out.map.shape[2:]))
            labels = matching[name].of(samples)
            for key, each in logits.items():
                hits[name].setdefault(key, []).append(rank_of(each, labels) < 1)
    whole = {name: {key: np.concatenate(parts) for key, parts in own.items()} for name, own in hits.items()}
    return whole, sights


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


def _rows(run: Run, called: str, group: Names, hits: Mapping[str, Hits], base: Shares, seed: int) -> list[Row]:
    """Of networks that differ in their seeds alone, one row per way."""
    module = _module(run, group)
    first = "" if module.local is None else module.local.readout
    others = {way: (way, f"local {way}") for way in readouts(module) if way != first}
    keys = {"both": (first, "local"), **others}

    def top1(key: str) -> float:
        return float(np.mean([hits[name][key].mean() for name in group.values()]))

    return [
        {
            "net": called,
            "data": run.data.name,
            "seeds": len(group),
            "local": "none" if module.local is None else module.local.kind,
            "source": source_of(module),
            "patches": None if module.local is None else module.patches,
            "readout": readout or None,
            **_shares({number: hits[name][key] for number, name in group.items()}, base, seed),
            "global_top1": top1("global"),
            "local_top1": None if module.local is None else top1(local),
        }
        for key, (readout, local) in keys.items()
    ]


def _shares(hits: Mapping[str, NDArray[np.bool_]], base: Shares, seed: int) -> Row:
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
