"""Accuracy against what is read: networks that read a few glimpses of a picture, beside ones that read all of it.

The form of TNet's Table 1 and Fig. 2: accuracy and cost by the number of glimpses, the glimpses without the overview
(5.3), and how often a glimpse was where the thing is. Pictures are decoded once for all networks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fovea.basics import BadChoice, by_bootstrap, interval, student
from fovea.data import DataSet, Sample
from fovea.glimpses import at_level, covered, overview_alone, where_it_looked, without_overview
from fovea.measures import Figures, Run, Tally, mean, measure, seeds
from fovea.measures.cost import noise, spent
from fovea.measures.plots import Rows, sheet, style
from fovea.measures.runner import Input
from fovea.models.glimpsing import Glimpsing, walked
from fovea.networks import Matching, Network, answered, as_found, blank, input_of, input_shape, macs, match, parameters
from fovea.pictures import inwards

LADDER = (0, 1, 2, 3, 4, 6, 8)  # numbers of glimpses, where none are asked for
ROUNDS = 5  # forwards that are timed
OF_SEEDS = ("top1", "top5", "alone", "first", "read", "ms_per_picture", "peak_mb")  # told as their mean over seeds
WIDE = 10  # times the cheapest, from which on the axis of multiplications is logarithmic
Row = dict[str, Any]


@measure(
    "zoom",
    title="Accuracy against glimpses",
    about="Networks that read glimpses, beside ones that read whole pictures: accuracy, cost, and where they looked.",
    nets="several",
    needs=("labels",),
    usual={"net": ("tnet-imagenette",)},
    columns=(
        "net", "seeds", "glimpses", "levels", "top1", "top5", "alone", "first", "found_at_?", "contains_at_?", "read",
        "macs", "ms_per_picture", "peak_mb",
    ),
    interval="top1",
    figure="draw",
)  # fmt: skip
def zoom(
    run: Run, *, glimpses: Sequence[int] | None = None, batch: int = 32, time: bool = True, seed: int = 0
) -> Figures:
    """One row per network and number of glimpses; `glimpses` beyond what a network reads are left out.

    A network that reads whole pictures has one row. Networks whose names differ in a last -seed<N> alone have rows of
    their means besides. `time` adds time and peak memory of a batch.
    """
    networks, data = list(run.networks.values()), run.data
    if any(not network.labels for network in networks):
        raise BadChoice("a network without labels is taken for an embedding: fovea.wrap(module, labels=...)")
    walkers = [walker for named in run.networks.items() for walker in _walkers(*named, glimpses)]
    for samples, inputs in run.inputs(batch):
        taken = dict(zip(run.networks, inputs, strict=True))
        for walker in walkers:
            walker.take(samples, taken[walker.name], data)
    rows = []
    for done, walker in enumerate(walkers, 1):
        rows.append({**walker.row(data, seed), **_costs(walker, batch, time)})
        run.progress(done, len(walkers))

    def size(network: Network) -> str:
        return " x ".join(str(side) for side in reversed(blank(network).shape[2:]))

    settings = {
        "input": ", ".join(dict.fromkeys(f"{input_of(one)} to {size(one)}" for one in networks)),
        "labels": ", ".join(dict.fromkeys(f"matched by {one.matching.how}" for one in walkers if one.matching)),
        "device": networks[0].device.type,
        "batch": batch,
        "interval": by_bootstrap("top1", seed),
        "over_seeds": "means; low and high are Student's 95 % interval of the mean over networks",
        "alone": "top1 of the mean over the glimpses, the overview left out; first: of the overview alone",
        "found_at": "share of pictures with boxes where a glimpse of the level has the middle of one in it; "
        "contains_at: a whole one",
        "read": "share of the picture in the glimpses of the deepest level, their union, mean over pictures",
        "macs": "multiplications a picture (TNet, Eq. 11)",
        "ms_per_picture": f"median of {ROUNDS} forwards of a batch, by the batch; peak_mb: of its tensors at once"
        if time
        else None,
    }
    return run.figures([*rows, *over_seeds(rows)], settings)


@dataclass
class Walker:
    """A network with a number of glimpses, and what came of it so far."""

    name: str
    network: Network
    glimpses: int | None  # None: it reads whole pictures
    matching: Matching | None = None
    levels: int | None = None  # down to the deepest one read
    tally: Tally = field(default_factory=Tally)

    def take(self, samples: Sequence[Sample], given: Input, data: DataSet) -> None:
        """A batch of pictures."""
        tensors = given.tensors
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
        boxes = [inwards(sample.boxes, place) for sample, place in zip(samples, given.places, strict=True)]
        for key, values in where_it_looked(out, boxes).items():  # K,4 each, in the input's pixels
            self.tally.put(key, values)
        if self.levels > 1:
            self.tally.put("read", covered(at_level(out, self.levels), (tensors.shape[2], tensors.shape[3])))

    def row(self, data: DataSet, seed: int) -> Row:
        rank, hit = self.tally["top"], self.tally["top"] < 1
        low, high = interval(hit, seed=seed)
        looked = {key: mean(self.tally[key]) for key in self.tally.columns if "_at_" in str(key)}
        return {
            "net": self.name,
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


def _walkers(name: str, network: Network, asked: Sequence[int] | None) -> Iterator[Walker]:
    """One for each number of glimpses that the network can read."""
    with as_found(network), torch.no_grad():
        walks = walked(answered(network, blank(network)))
    if not walks:
        yield Walker(name, network, None)
        return
    module = cast(Glimpsing, network.module)
    counts = LADDER if asked is None else sorted(set(asked))
    known = [count for count in counts if module.least <= count <= module.most]
    if not known:
        words = f"reads {module.least} to {module.most} glimpses of a picture"
        raise BadChoice(f"{name} {words}; none of {list(asked or ())}")
    yield from (Walker(name, network, count) for count in known)


def _costs(walker: Walker, batch: int, timed: bool) -> Row:
    network, glimpses = walker.network, walker.glimpses
    row: Row = {"macs": macs(network, blank(network), glimpses), "params": parameters(network.module)}
    if not timed:
        return row
    return row | spent(network, noise(network, input_shape(network, None), batch), glimpses, ROUNDS)


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
