"""Faithfulness: does the answer hang on the pixels that a map calls important?

Insertion and deletion (Petsiuk et al. 2018, RISE): the best pixels are put into a blurred picture, or taken out of the
picture, and the class's probability is followed. Coverage and masking (AnchorNet, Fig. 12): all but the best pixels, or
the best pixels, are set to 0, and the accuracy is told. Of a good map the insertion and coverage curves are high, the
deletion and masking curves low."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import BadChoice, by_bootstrap, interval_of_means
from fovea.heatmaps import Method, look_at
from fovea.measures import Figures, Run, measure, plots
from fovea.measures.curves import KINDS, Curve, Kind, area_under, best, curve, joined, kind_of, places
from fovea.measures.figures import printed
from fovea.measures.localized import cells_of
from fovea.measures.random_control import methods_or_control
from fovea.networks import Network, filling

Key = tuple[str, str]  # a method's name, a kind's name


AREAS = {"insertion": "put in", "deletion": "taken out", "coverage": "kept", "masking": "masked"}
ENDS = ("", "_low", "_high")
READS = {"probability": "mean probability of the class", "accuracy": "top-1 accuracy"}


@measure(
    "faithfulness",
    title="Faithfulness",
    about="Whether the answer depends on the pixels that a heatmap marks: they are inserted, deleted or masked, and "
    "the areas under the curves compared with those of random maps.",
    example="photos/ --net mine.safetensors --method gradcam,l2caf,random",
    needs=("labels?",),
    fit="crop",
    figure="draw",
)
def faithfulness(
    run: Run,
    *,
    method: Sequence[str | Method] = ("cam", "gradcam", "l2caf", "l2caf-oblivious", "random"),
    kinds: Sequence[str | Kind] = ("insertion", "deletion", "coverage", "masking"),
    steps: int = 20,
    true_class: bool = False,
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """One row per method with the area under each curve, then one for every method, kind and share of the pixels.
    Methods are fovea's and `random`, the control. Maps are of the class that the network puts first, or of the true
    one, and so is the probability. `kinds`: names of KINDS, with another filling after a colon (`deletion:black`)."""
    methods, ways = methods_or_control(method, seed), [kind_of(kind) for kind in kinds]
    if not methods:
        raise BadChoice("no method was named; random is the control")
    if not ways or len({way.name for way in ways}) < len(ways):
        raise BadChoice(f"name one or more kinds of curve, each once; got {list(kinds)}")
    shares = np.linspace(0, 1, steps + 1)
    curves: dict[Key, list[Curve]] = {(one.name, way.name): [] for one in methods for way in ways}
    blank = dict.fromkeys((one.name for one in methods), 0)
    images, how = 0, ""
    for part in _parts(run, methods, true_class, batch):
        for number, (key, found) in enumerate(part.curves(ways, shares), 1):
            curves[key].append(found)
            done = (images + len(run.skipped)) * len(curves) + number * len(part.tensors)
            run.progress(done, len(run.data) * len(curves))
        images, how = images + len(part.tensors), part.matched_by
        blank = {name: blank[name] + count for name, count in part.blank.items()}
    if not images:
        run.refuse_empty()
    whole = {key: joined(parts, 0) for key, parts in curves.items() if parts}
    net = run.network.name or "network"
    about = {name: {"net": net, "method": name, "data": run.data.name, "images": images} for name in blank}
    areas = {one: {**_areas(one, ways, whole, shares, seed), "blank": blank[one]} for one in about}
    rows = [{**about[one], **areas[one]} for one in about]
    for (name, kind), found in whole.items():
        means = [_values(found, what).mean(0).tolist() for what in ("accuracy", "probability")]
        for share, accuracy, probability in zip(shares.tolist(), *means, strict=True):
            point = {"area": round(share, 6), "accuracy": accuracy, "probability": probability}
            rows.append({**about[name], "kind": kind, **point})
    settings = {
        "labels": how,
        "class": "the true one" if true_class else "the one that the network puts first",
        "steps": steps,
        "area": "share of the input's pixels kept or taken away, best first; under the curves by the trapezoid rule",
        "order": "cells interpolated bilinearly to pixels; equal values, as in a blank map, in reading order",
        "random": f"uniform values in the cells, seed {seed}",
        "interval": by_bootstrap("the areas", seed),
        **{way.name: str(way) for way in ways},
    }
    table = printed([{"method": one, **areas[one]} for one in areas], ("method", *(way.name for way in ways), "blank"))
    notes = ["good maps: insertion and coverage high, deletion and masking low; random is the control"]
    return run.figures(rows, settings, tables={f"areas under the curves, {net} on {run.data.name}": table}, notes=notes)


def draw(found: Figures) -> Figure:
    """One panel per kind, one line per method, the random control dashed."""
    panels = {
        kind: (
            KINDS[kind].reads,
            {
                "title": f"{kind} ({'higher' if KINDS[kind].keeps else 'lower'} is better)",
                "xlabel": f"share of the pixels {AREAS[kind]}, best first",
                "ylabel": READS[KINDS[kind].reads],
                "ylim": (0, None),
            },
        )
        for kind in dict.fromkeys(row["kind"] for row in found.rows if "kind" in row)
    }
    return plots.curves(found, panels, "area under the curve", 4.4, dense=True)


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


def _parts(run: Run, methods: Sequence[Method], true_class: bool, batch: int) -> Iterator[_Part]:
    network, matching = run.network, None
    for samples, ((tensors, shown, _),) in run.inputs(batch, parts=0):
        if tensors.ndim != 4:
            raise BadChoice(f"faithfulness needs inputs N,C,H,W; this network takes {tuple(tensors.shape)}")
        matching = matching or run.known_classes(tensors)
        if true_class and matching is None:
            raise BadChoice(f"{run.data.name} has no true classes that {network.name or 'the network'} knows")
        true = matching.of(samples) if matching is not None else None
        maps, output = look_at(network, tensors, shown, methods, true if true_class else "top1")
        labels = output.argmax(1).cpu() if true is None else true
        run.refused |= maps.refused
        good = output.isfinite().all(1).cpu()
        run.skipped += [(samples[i].name, "the network's output is not a number") for i in (~good).nonzero()[:, 0]]
        kept = good.nonzero()[:, 0].tolist()
        if not kept:
            continue
        yield _Part(
            network,
            f"matched by {matching.how}" if matching is not None else "none: by the class that the network predicts",
            tensors[good],
            labels[good],
            (labels if true_class else output.topk(1).indices[:, 0].cpu())[good],
            {name: cells_of(seen)[good] for name, seen in maps.items()},
            {name: sum(seen.diagnosis[i][0] is not None for i in kept) for name, seen in maps.items()},
            batch,
        )


def _areas(
    method: str, ways: Sequence[Kind], whole: dict[Key, Curve], shares: NDArray[np.float64], seed: int
) -> dict[str, float]:
    """Under every curve, with its interval: the mean over pictures of the area under each one's own curve."""
    own = np.stack([area_under(_values(whole[method, way.name], way.reads), shares) for way in ways], 1)  # N,ways
    low, high = interval_of_means(own, seed)
    ends = zip(ways, own.mean(0).tolist(), low, high, strict=True)
    return {f"{way.name}{end}": value for way, *values in ends for end, value in zip(ENDS, values, strict=True)}


def _values(found: Curve, what: str) -> NDArray[np.float64]:
    return (found.right if what == "accuracy" else found.probability).astype(np.float64)
