"""Faithfulness: does the answer hang on the pixels that a map calls important?

Insertion and deletion (Petsiuk et al. 2018, RISE): the best pixels are put into a blurred picture, or taken out of the
picture, and the class's probability is followed. Coverage and masking (AnchorNet, Fig. 12): all but the best pixels, or
the best pixels, are set to 0, and the accuracy is told. Of a good map the insertion and coverage curves are high, the
deletion and masking curves low.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics.errors import BadChoice, BadPicture
from fovea.data import DataSet
from fovea.heatmaps.explain import Method, look_at
from fovea.heatmaps.heatmap import HeatMap
from fovea.measures.curve_kinds import KINDS, Kind, filling, kind_of
from fovea.measures.curves import Curve, area_under, best, curve, joined, places
from fovea.measures.figures import Figures
from fovea.measures.random_control import method_or_control
from fovea.networks.matching import Matching, match_by_trying
from fovea.networks.network import Network
from fovea.networks.stream import batches, input_of, prepared

Key = tuple[str, str]  # a method's name, a kind's name


def measure(
    network: Network,
    data: DataSet,
    methods: Sequence[str | Method],
    kinds: Sequence[str | Kind] = tuple(KINDS),
    steps: int = 20,
    true_class: bool = False,
    batch: int = 16,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Figures:
    """A row a method with the area under each curve, then a row for every method, kind and share of the pixels.

    Methods are fovea's and `random`, the control. Maps are of the class that the network puts first, or of the true
    one, and so is the probability. `kinds`: names of KINDS, with another filling after a colon (`deletion:black`).
    """
    own, ways = [method_or_control(one, seed) for one in methods], [kind_of(one) for one in kinds]
    if not own:
        raise BadChoice("no method was named; random is the control")
    if not ways or len({way.name for way in ways}) < len(ways):
        raise BadChoice(f"name one or more kinds of curve, each once; got {list(kinds)}")
    if steps < 2 or batch < 1:
        raise BadChoice(f"a curve has at least 2 steps and a batch 1 picture; got {steps} and {batch}")
    shares = np.linspace(0, 1, steps + 1)
    skipped: list[tuple[str, str]] = []
    curves: dict[Key, list[Curve]] = {(one.name, way.name): [] for one in own for way in ways}
    blank = dict.fromkeys((one.name for one in own), 0)
    images, how = 0, ""
    for part in _parts(network, data, own, true_class, batch, skipped):
        for number, (key, found) in enumerate(part.curves(ways, shares), 1):
            curves[key].append(found)
            done = (images + len(skipped)) * len(curves) + number * len(part.tensors)
            progress(done, len(data) * len(curves))
        images, how = images + len(part.tensors), part.matched_by
        blank = {name: count + part.blank[name] for name, count in blank.items()}
    if not images:
        raise BadPicture(f"no picture of {data.name} could be measured: {skipped[0][1] if skipped else 'it is empty'}")
    whole = {key: joined(parts, 0) for key, parts in curves.items()}
    net = network.name or "network"
    about = {one.name: {"net": net, "method": one.name, "data": data.name, "images": images} for one in own}
    rows = [{**about[one], **_areas(one, ways, whole, shares), "blank": blank[one]} for one in about]
    for (method, kind), found in whole.items():
        rows += [{**about[method], "kind": kind, **point} for point in _points(found, shares)]
    settings = {
        "data": data.name,
        "input": input_of(network),
        "labels": f"matched by {how}",
        "class": "the true one" if true_class else "the one that the network puts first",
        "steps": steps,
        "area": "share of the input's pixels kept or taken away, best first; under the curves by the trapezoid rule",
        "order": "cells interpolated bilinearly to pixels; equal values, as in a blank map, in reading order",
        "random": f"uniform values in the cells, seed {seed}",
        **{way.name: str(way) for way in ways},
        "skipped": len(skipped),
    }
    return Figures("faithfulness", settings, rows, skipped)


@dataclass(frozen=True)
class _Part:
    """A batch of pictures with the maps of every method."""

    network: Network
    matched_by: str
    tensors: Tensor  # N,C,H,W
    labels: Tensor  # N
    followed: Tensor  # N: the class whose probability is told
    maps: dict[str, Tensor]  # N,h,w a method
    blank: dict[str, int]
    batch: int

    def curves(self, ways: Sequence[Kind], shares: NDArray[np.float64]) -> Iterator[tuple[Key, Curve]]:
        orders = {name: places(cells, *self.tensors.shape[2:]) for name, cells in self.maps.items()}
        # both ends of a curve are the same for every method
        everything = self._curve(torch.ones_like(self._empty), torch.zeros(()))
        for way in ways:
            fill = filling(way.fill, self.network, self.tensors)
            nothing = self._curve(self._empty, fill)
            first, last = (nothing, everything) if way.keeps else (everything, nothing)
            for name, order in orders.items():
                top = best(order, shares[1:-1])
                inner = self._curve(top if way.keeps else ~top, fill)
                yield (name, way.name), joined([first, inner, last], 1)

    @property
    def _empty(self) -> Tensor:
        count, _, height, width = self.tensors.shape
        return torch.zeros(count, 1, height, width, dtype=torch.bool, device=self.tensors.device)

    def _curve(self, masks: Tensor, fill: Tensor) -> Curve:
        return curve(self.network, self.tensors, self.labels, masks, fill, self.followed, self.batch)


def _parts(
    network: Network,
    data: DataSet,
    methods: Sequence[Method],
    true_class: bool,
    batch: int,
    skipped: list[tuple[str, str]],
) -> Iterator[_Part]:
    matching: Matching | None = None
    for samples, images in batches(data, batch, skipped):
        tensors, shown, _ = prepared(network, samples, images)
        if tensors.ndim != 4:
            raise BadChoice(f"faithfulness needs inputs N,C,H,W; this network takes {tuple(tensors.shape)}")
        matching = matching or match_by_trying(network, data, tensors)
        labels = matching.of(samples)
        maps, output = look_at(network, tensors, shown, methods, labels if true_class else "top1")
        good = output.isfinite().all(1).cpu()
        skipped += [(samples[i].name, "the network's output is not a number") for i in (~good).nonzero()[:, 0].tolist()]
        if not good.any():
            continue
        yield _Part(
            network,
            matching.how,
            tensors[good],
            labels[good],
            (labels if true_class else output.topk(1).indices[:, 0].cpu())[good],
            {name: _cells(seen)[good] for name, seen in maps.items()},
            {name: _blank(seen, good) for name, seen in maps.items()},
            batch,
        )


def _cells(seen: HeatMap) -> Tensor:
    if len(seen.grid) != 2 or seen.frames:
        raise BadChoice(f"maps must have rows and columns to be laid over a picture; {seen.layer} has {seen.grid}")
    return seen.values[:, 0].detach()  # N,h,w of the one target


def _blank(seen: HeatMap, good: Tensor) -> int:
    return sum(own and words[0] is not None for own, words in zip(good.tolist(), seen.diagnosis, strict=True))


def _areas(method: str, ways: Sequence[Kind], whole: dict[Key, Curve], shares: NDArray[np.float64]) -> dict[str, float]:
    return {way.name: area_under(_mean(whole[method, way.name], way.reads), shares) for way in ways}


def _points(found: Curve, shares: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    means = [_mean(found, what).tolist() for what in ("accuracy", "probability")]
    for share, accuracy, probability in zip(shares.tolist(), *means, strict=True):
        yield {"area": round(share, 6), "accuracy": accuracy, "probability": probability}


def _mean(found: Curve, what: str) -> NDArray[np.float64]:
    values = found.right if what == "accuracy" else found.probability
    mean: NDArray[np.float64] = values.mean(0, dtype=np.float64)
    return mean


def areas(found: Figures) -> Figures:
    """The part of the figures that fits a screen: a row a method."""
    rows = [{key: row[key] for key in row if key not in ("net", "data")} for row in found.rows if "kind" not in row]
    return Figures(found.what, found.settings, rows, found.skipped)
