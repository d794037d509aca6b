"""Accuracy against what is read: networks that read a few glimpses of a picture, beside ones that read all of it.

The form of TNet's Table 1 and Fig. 2: accuracy and cost by the number of glimpses, the glimpses without the overview
(5.3), and how often a glimpse was where the thing is. Pictures are decoded once for all networks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from fovea.basics.errors import BadChoice, BadPicture
from fovea.basics.intervals import RESAMPLES, interval, student
from fovea.data import DataSet, Sample
from fovea.glimpses.walks import at_level, covered, overview_alone, where_it_looked, without_overview
from fovea.measures import seeds
from fovea.measures.figures import Figures
from fovea.measures.patch_parts import Tally, mean
from fovea.measures.plots import Rows, sheet, style
from fovea.models.glimpsing import Glimpsing, Walk
from fovea.networks.cost import answered, input_shape, macs, parameters, peak_mb, seconds
from fovea.networks.matching import Matching, match
from fovea.networks.network import Network, as_found
from fovea.networks.stream import batches, blank, input_of, prepared
from fovea.pictures.placement import inwards
from fovea.pictures.transforms import Prepare

LADDER = (0, 1, 2, 3, 4, 6, 8)  # numbers of glimpses, where none are asked for
ROUNDS = 5  # forwards that are timed
OF_SEEDS = ("top1", "top5", "alone", "first", "read", "ms_per_picture", "peak_mb")  # told as their mean over seeds
WIDE = 10  # times the cheapest, from which on the axis of multiplications is logarithmic
Row = dict[str, Any]


def measure(
    networks: Sequence[Network],
    data: DataSet,
    glimpses: Sequence[int] | None = None,
    batch: int = 32,
    seed: int = 0,
    timed: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Figures:
    """A row a network and number of glimpses; `glimpses` beyond what a network reads are left out.

    A network that reads whole pictures has one row. Networks whose names differ in a last -seed<N> alone have rows of
    their means besides. `timed` adds time and peak memory of a batch.
    """
    if not networks or len({one.name for one in networks}) < len(networks):
        raise BadChoice(f"name one network or several, each by another name; got {[one.name for one in networks]}")
    if any(not one.labels for one in networks):
        raise BadChoice("a network without labels is taken for an embedding: fovea.wrap(module, labels=...)")
    runs = [run for one in networks for run in _runs(one, glimpses)]
    skipped: list[tuple[str, str]] = []
    total = len(data) + (len(runs) if timed else 0)
    for samples, inputs in _inputs(networks, data, batch, skipped):
        for run in runs:
            run.take(samples, *inputs[_transform(run.network)], data)
        progress(len(runs[0].tally["top"]) + len(skipped), total)
    if not runs[0].tally.columns:
        raise BadPicture(
            f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else f"{data.name} is empty"
        )
    rows = []
    for done, run in enumerate(runs, 1):
        rows.append({**run.row(data, seed), **_costs(run, batch, timed)})
        progress(len(data) + done if timed else total, total)
    settings = {
        "data": data.name,
        "input": ", ".join(dict.fromkeys(_input(one) for one in networks)),
        "labels": ", ".join(dict.fromkeys(f"matched by {run.matching.how}" for run in runs if run.matching)),
        "device": networks[0].device.type,
        "batch": batch,
        "interval": f"95 % of top1, percentiles of {RESAMPLES:,} bootstrap resamples of the pictures, seed {seed}",
        "over_seeds": "means; low and high are Student's 95 % interval of the mean over networks",
        "alone": "top1 of the mean over the glimpses, the overview left out; first: of the overview alone",
        "found_at": "share of pictures with boxes where a glimpse of the level has the middle of one in it; "
        "contains_at: a whole one",
        "read": "share of the picture in the glimpses of the deepest level, their union, mean over pictures",
        "macs": "multiplications a picture (TNet, Eq. 11)",
        "ms_per_picture": f"median of {ROUNDS} forwards of a batch, by the batch; peak_mb: of its tensors at once"
        if timed
        else None,
        "skipped": len(skipped),
    }
    together = over_seeds(rows)
    return Figures("zoom", settings, [*rows, *together], skipped)


@dataclass
class Run:
    """A network with a number of glimpses, and what came of it so far."""

    network: Network
    glimpses: int | None  # None: it reads whole pictures
    matching: Matching | None = None
    levels: int | None = None  # down to the deepest one read
    tally: Tally = field(default_factory=Tally)

    def take(self, samples: Sequence[Sample], tensors: Tensor, boxes: Sequence[Tensor], data: DataSet) -> None:
        """A batch, with the boxes of each picture, K,4 in the input's pixels."""
        with as_found(self.network), torch.no_grad():
            out = answered(self.network, tensors, self.glimpses)
        logits = self.network.read(out)
        if self.matching is None:
            self.matching = match(self.network, data, logits.shape[1])
        labels = self.matching.of(samples)
        self.tally.answers("top", logits, labels)
        if self.glimpses is None:
            return
        self.levels = max(out.levels)
        for key, answer in (("alone", without_overview(out)), ("first", overview_alone(out))):
            if answer is not None:
                self.tally.answers(key, answer, labels)
        for key, values in where_it_looked(out, boxes).items():
            self.tally.put(key, values)
        if self.levels > 1:
            self.tally.put("read", covered(at_level(out, self.levels), (tensors.shape[2], tensors.shape[3])))

    def row(self, data: DataSet, seed: int) -> Row:
        rank, hit = self.tally["top"], self.tally["top"] < 1
        low, high = interval(hit, resamples=RESAMPLES, seed=seed)
        looked = {key: mean(self.tally[key]) for key in self.tally.columns if "_at_" in str(key)}
        return {
            "net": self.network.name,
            "data": data.name,
            "images": len(rank),
            "glimpses": self.glimpses,
            "levels": self.levels,
            "top1": float(hit.mean()),
            "low": low,
            "high": high,
            "top5": float((rank < 5).mean()) if self.tally.classes["top"] > 5 else None,
            "alone": self.tally.top("alone")["top1"],
            "first": self.tally.top("first")["top1"],
            **{str(key): value for key, value in looked.items() if value is not None},
            "read": mean(self.tally["read"]),
        }


def _runs(network: Network, asked: Sequence[int] | None) -> Iterator[Run]:
    """One for each number of glimpses that the network can read."""
    with as_found(network), torch.no_grad():
        walks = isinstance(answered(network, blank(network)), Walk)
    if not walks:  # a Saccader whose policy is not trained yet answers by all cells
        yield Run(network, None)
        return
    assert isinstance(network.module, Glimpsing)
    least, most = network.module.least, network.module.most
    own = [count for count in (LADDER if asked is None else sorted(set(asked))) if least <= count <= most]
    if not own:
        raise BadChoice(f"{network.name} reads {least} to {most} glimpses of a picture; none of {list(asked or ())}")
    yield from (Run(network, count) for count in own)


def _transform(network: Network) -> Any:
    """Networks that take pictures alike share what was prepared."""
    own = network.transform if isinstance(network.transform, Prepare) else id(network.transform)
    return own, network.device, network.dtype


def _inputs(
    networks: Sequence[Network], data: DataSet, batch: int, skipped: list[tuple[str, str]]
) -> Iterator[tuple[list[Sample], dict[Any, tuple[Tensor, list[Tensor]]]]]:
    """Batches as each transform gives them, with the boxes in its input's pixels."""
    kinds = {_transform(one): one for one in networks}
    for samples, images in batches(data, batch, skipped):
        ready = {}
        for kind, network in kinds.items():
            tensors, _, placements = prepared(network, samples, images)
            boxes = [inwards(sample.boxes, place) for sample, place in zip(samples, placements, strict=True)]
            ready[kind] = tensors, boxes
        yield samples, ready


def _costs(run: Run, batch: int, timed: bool) -> Row:
    network, glimpses = run.network, run.glimpses
    row: Row = {"macs": macs(network, blank(network), glimpses), "params": parameters(network.module)}
    if not timed:
        return row
    shape = input_shape(network, None)
    pixels = torch.rand(batch, *shape, generator=torch.Generator().manual_seed(0)).to(network.device, network.dtype)

    def forward() -> Any:
        with torch.no_grad():
            return answered(network, pixels, glimpses)

    with as_found(network):
        taken = seconds(forward, network.device, ROUNDS)
        peak = peak_mb(forward, network.device)
    return row | {"ms_per_picture": round(taken / batch * 1e3, 3), "peak_mb": round(peak, 1)}


def _input(network: Network) -> str:
    height, width = blank(network).shape[2:]
    return f"{input_of(network)} to {width} x {height}"


def over_seeds(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The means of networks that differ in their seeds, for each number of glimpses, with Student's 95 % intervals."""
    groups: dict[tuple[str, int | None], list[Mapping[str, Any]]] = {}
    for row in rows:
        name, seed = seeds.of(row["net"])
        if seed:
            groups.setdefault((name, row["glimpses"]), []).append(row)
    return [_together(name, own) for (name, _), own in groups.items() if len(own) > 1]


def _together(name: str, rows: Sequence[Mapping[str, Any]]) -> Row:
    row: Row = {**rows[0], "net": name, "seeds": len(rows)}
    for key in [key for key in rows[0] if key in OF_SEEDS or "_at_" in key]:
        values: list[float] = [one[key] for one in rows if one.get(key) is not None]
        row[key] = float(np.mean(values)) if len(values) == len(rows) else None
        if row[key] is not None and key == "top1":
            row["low"], row["high"] = student(values)
        elif row[key] is not None and key.startswith("found_at_"):
            row[f"{key}_low"], row[f"{key}_high"] = student(values)
    return row


def draw(found: Figures) -> Figure:
    """TNet's Fig. 2: one line per network that reads glimpses, their number beside each point; a marker for one that
    reads it all."""
    rows = drawn(found.rows)
    names = list(dict.fromkeys(row["net"] for row in rows))
    figure = sheet(8.4, 5.6)
    panel = figure.subplots()
    for place, name in enumerate(names):
        _line(panel, [row for row in rows if row["net"] == name], style(place))
    costs = [row["macs"] for row in rows]
    panel.set(
        title=f"{rows[0]['images']} pictures of {rows[0]['data']}",
        xlabel="multiplications a picture, in GMACs",
        ylabel="top-1 accuracy, 95 % interval",
        xscale="log" if max(costs) > WIDE * min(costs) else "linear",
    )
    if panel.get_xscale() == "linear":
        panel.set_xlim(left=0)
    else:
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.xaxis.set_major_formatter("{x:g}")
    panel.grid(alpha=0.3, which="both")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    return figure


def drawn(rows: Rows) -> Rows:
    """Where there is a mean over seeds, it stands for them."""
    means = {row["net"] for row in rows if row.get("seeds")}
    own = [(row, *seeds.of(row["net"])) for row in rows]
    return [row for row, name, seed in own if not seed or name not in means]


def _line(panel: Axes, rows: Rows, look: Mapping[str, Any]) -> None:
    reads = rows[0]["glimpses"] is not None
    rows = sorted(rows, key=lambda row: row["glimpses"] or 0)
    x, y = [row["macs"] / 1e9 for row in rows], [row["top1"] for row in rows]
    below, above = ([row["top1"] - row["low"] for row in rows], [row["high"] - row["top1"] for row in rows])
    of_seeds = f", {rows[0]['seeds']} seeds" if rows[0].get("seeds") else ""
    name = f"{rows[0]['net']}{of_seeds}, {'by glimpses' if reads else 'whole pictures'}"
    panel.errorbar(
        x, y, [below, above], **look, markersize=8 if reads else 10, capsize=3, alpha=0.9,
        linestyle="-" if reads else "none", fillstyle="full" if reads else "none", label=name,
    )  # fmt: skip
    mark = {"textcoords": "offset points", "color": look["color"], "fontweight": "bold"}
    for row, place in zip(rows, zip(x, y, strict=True), strict=True) if reads else ():
        panel.annotate(str(row["glimpses"]), place, (6, 6), **mark)
