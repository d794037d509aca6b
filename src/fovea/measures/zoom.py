"""Accuracy against what is read: networks that read a few glimpses of a picture, beside ones that read all of it.

The form of TNet's Table 1 and Fig. 2: accuracy and cost by the number of glimpses, the glimpses without the overview
(5.3), and how often a glimpse was where the thing is. Pictures are decoded once for all networks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from fovea.basics import BadChoice, by_bootstrap, interval, student
from fovea.data import DataSet, Sample
from fovea.evidence import calibration_error, reliability
from fovea.glimpses import (
    at_level,
    certain,
    covered,
    overview_alone,
    stepping,
    walks_of,
    where_it_looked,
    without_overview,
    work,
)
from fovea.measures import Figures, Run, Tally, mean, measure, seeds
from fovea.measures.cost import noise, spent
from fovea.measures.plots import GRAY, Rows, sheet, style
from fovea.measures.runner import Input
from fovea.models.glimpsing import ORDERS, Certainty, Glimpsing, Route, Walk, walked
from fovea.networks import Matching, Network, answered, as_found, blank, input_of, input_shape, macs, match, parameters
from fovea.pictures import inwards

LADDER = (0, 1, 2, 3, 4, 6, 8)  # numbers of glimpses, where none are asked for
ROUNDS = 5  # forwards that are timed
OF_SEEDS = ("top1", "top5", "alone", "first", "read", "ms_per_picture", "peak_mb")  # told as their mean over seeds
WIDE = 10  # times the cheapest, from which on the axis of multiplications is logarithmic
Row = dict[str, Any]
Order = tuple[str, str]  # of a network and of what it reads next
WORDS = {
    "over_seeds": "means; low and high are Student's 95 % interval of the mean over networks",
    "alone": "top1 of the mean over the glimpses, the overview left out; first: of the overview alone",
    "found_at": "share of pictures with boxes where a glimpse of the level has the middle of one in it; "
    "contains_at: a whole one",
    "read": "share of the picture in the glimpses of the deepest level, their union, mean over pictures",
    "macs": "multiplications a picture (TNet, Eq. 11)",
}
UNTIL = "a walk ends when its answer is as certain as this, at the number of glimpses usual for the network at last"


@measure(
    "zoom",
    title="Accuracy against glimpses",
    about="How accuracy and cost grow with the number of glimpses, beside networks that read whole pictures, and "
    "where the glimpses lie.",
    example="--data gtsdb:folds=0-1 --net tnet-gtsdb --glimpses 0,1,2,4 --out zoom.png",
    nets="several",
    needs=("labels",),
    usual={"net": ("tnet-gtsdb",)},
    columns=(
        "net", "seeds", "order", "until", "glimpses", "levels", "top1", "top5", "alone", "first", "found_at_?",
        "contains_at_?", "read", "macs", "ms_per_picture", "peak_mb",
    ),
    interval="top1",
    figure="draw",
)  # fmt: skip
def zoom(
    run: Run,
    *,
    glimpses: Sequence[int] | None = None,
    until: Sequence[float] | None = None,
    order: Sequence[str] | None = None,
    batch: int = 32,
    time: bool = True,
    seed: int = 0,
) -> Figures:
    """One row per network and number of glimpses; `glimpses` beyond what a network reads are left out.

    With `order` (levels, best) there are such rows for each, and with `until` one for each certainty, of walks that end
    there, in each order; glimpses and macs are then means over pictures. A network that reads whole pictures has one
    row. Networks whose names differ in a last -seed<N> alone have rows of their means besides. `time` adds time and
    peak memory of a batch, where all pictures are read alike.
    """
    networks, data = list(run.networks.values()), run.data
    if any(not network.labels for network in networks):
        raise BadChoice("a network without labels is taken for an embedding: fovea.wrap(module, labels=...)")
    orders = tuple(dict.fromkeys(order or (("levels", "best") if until else ("levels",))))
    walkers = [walker for named in run.networks.items() for walker in walkers_of(*named, glimpses, until or (), orders)]
    sureness: dict[Order, Sureness] = {}
    for samples, inputs in run.inputs(batch):
        taken, walks = dict(zip(run.networks, inputs, strict=True)), dict[Order, list[Walk]]()
        for walker in walkers:
            walker.take(samples, taken[walker.name], data, walks)
        for key, made in walks.items():
            walker = next(walker for walker in walkers if walker.key == key)
            sureness.setdefault(key, Sureness()).take(walker, made, samples)
    rows = []
    for done, walker in enumerate(walkers, 1):
        rows.append({**walker.row(data, seed), **costs_of(walker, batch, time)})
        run.progress(done, len(walkers))

    def size(network: Network) -> str:
        return " x ".join(str(side) for side in reversed(blank(network).shape[2:]))

    settings = {
        "input": ", ".join(dict.fromkeys(f"{input_of(one)} to {size(one)}" for one in networks)),
        "labels": ", ".join(dict.fromkeys(f"matched by {one.matching.how}" for one in walkers if one.matching)),
        "device": networks[0].device.type,
        "batch": batch,
        "interval": by_bootstrap("top1", seed),
        **WORDS,
        "until": UNTIL if until else None,
        "ms_per_picture": f"median of {ROUNDS} forwards of a batch, by the batch; peak_mb: of its tensors at once"
        if time
        else None,
    }
    told = [(dict(zip(("net", "order"), key, strict=True)), found) for key, found in sureness.items()]
    calibration = [{**about, **row} for about, found in told for row in found.rows()]
    curves = [{**about, **row} for about, found in told for row in found.curves()]
    details = {"calibration": calibration, "reliability": curves} if until else {}
    tables = {"Certainty after each thing read": calibration} if until else {}
    return run.figures([*rows, *over_seeds(rows)], settings, details=details, tables=tables)


@dataclass
class Walker:
    """A network with a number of glimpses, and what came of it so far."""

    name: str
    network: Network
    route: Route | None  # None: it reads whole pictures
    most: int = 0  # glimpses that are read of a picture for all walkers of this order
    matching: Matching | None = None
    levels: int | None = None  # down to the deepest one read
    tally: Tally = field(default_factory=Tally)

    @property
    def alike(self) -> bool:
        """Whether all pictures are read alike, level by level."""
        return self.route is None or self.route.usual

    @property
    def key(self) -> Order:
        """Of the walk that it is a beginning of."""
        return self.name, (self.route.order if self.route else None) or "levels"

    def take(self, samples: Sequence[Sample], given: Input, data: DataSet, walks: "dict[Order, list[Walk]]") -> None:
        """A batch of pictures. Walks of one order, glimpse by glimpse, are made once for all walkers: `walks`."""
        outputs = self._outputs(given.tensors, walks)
        logits = torch.cat([self.network.read(out) for out in outputs])
        if self.matching is None:
            self.matching = match(self.network, data, logits.shape[1])
        labels = self.matching.of(samples)
        self.tally.answers("top", logits, labels)
        if self.route is None:
            return
        boxes = [inwards(sample.boxes, place) for sample, place in zip(samples, given.places, strict=True)]
        start = 0
        for out in outputs:
            chosen = slice(start, start + len(out.logits))
            self._look(out, labels[chosen], boxes[chosen], given.tensors)
            start = chosen.stop

    def _outputs(self, tensors: Tensor, walks: "dict[Order, list[Walk]]") -> list[Any]:
        """Of all pictures together, or of each."""
        route = self.route
        if self.alike or route is None:
            with as_found(self.network), torch.no_grad():
                return [answered(self.network, tensors, None if route is None else route.glimpses)]
        if self.key not in walks:
            walks[self.key] = walks_of(self.network, tensors, Route(self.most, order=route.order))
        return [walk.first(self._end(walk)) for walk in walks[self.key]]

    def _end(self, walk: Walk) -> int:
        """How many things are read of a picture before its walk ends, of those that could be."""
        assert self.route is not None
        overview = len(walk.levels) - walk.glimpses
        most = min(overview + (self.route.glimpses or 0), len(walk.levels))
        least = overview + cast(Glimpsing, self.network.module).least
        if self.route.until is None:
            return most
        sure = certain(self.network, walk).amax(2)[0].tolist()
        return next((things for things in range(max(least, 1), most) if sure[things - 1] >= self.route.until), most)

    def _look(self, out: Walk, labels: Tensor, boxes: Sequence[Tensor], tensors: Tensor) -> None:
        self.levels = max(self.levels or 1, *out.levels)
        for key, answer in (("alone", without_overview(out)), ("first", overview_alone(out))):
            if answer is not None:
                self.tally.answers(key, answer, labels)
        for key, values in where_it_looked(out, boxes).items():  # K,4 each, in the input's pixels
            self.tally.put(key, values)
        if max(out.levels) > 1:
            self.tally.put("read", covered(at_level(out, max(out.levels)), (tensors.shape[2], tensors.shape[3])))
        if not self.alike:
            self.tally.put("glimpses", np.array([out.glimpses]))
            depth = int(getattr(self.network.module, "levels", 2))
            self.tally.put("macs", np.array([work(self.network, tensors.shape[1], out.levels, depth)]))

    def row(self, data: DataSet, seed: int) -> Row:
        rank, hit = self.tally["top"], self.tally["top"] < 1
        low, high = interval(hit, seed=seed)
        looked = {key: mean(self.tally[key]) for key in self.tally.columns if "_at_" in str(key)}
        route = self.route or Route()
        asked = {"order": route.order, "until": route.until} if route.order or route.until else {}
        return {
            "net": self.name,
            "data": data.name,
            "images": len(rank),
            **asked,
            "glimpses": route.glimpses if route.until is None else float(self.tally["glimpses"].mean()),
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


class Sureness:
    """Certainty after each thing read, of walks that never end early, before calibration and after."""

    def __init__(self) -> None:
        self.tally = Tally()

    def take(self, walker: Walker, walks: Sequence[Walk], samples: Sequence[Sample]) -> None:
        assert walker.matching is not None
        labels = walker.matching.of(samples)
        for walk, label in zip(walks, labels.tolist(), strict=True):
            for calibrated, certainty in ((True, None), (False, Certainty())):
                shares = certain(walker.network, walk, certainty)[0]  # V,classes
                self.tally.put(("nll", calibrated), -shares[:, label].clamp_min(1e-30).log())
                self.tally.put(("sure", calibrated), shares.amax(1))
            self.tally.put("right", shares.argmax(1) == label)

    def rows(self) -> list[Row]:
        answers = len(right := self.tally["right"])
        return [
            {
                "calibrated": calibrated,
                "answers": answers,
                "nll": mean(self.tally["nll", calibrated]),
                "ece": calibration_error(self.tally["sure", calibrated], right),
            }
            for calibrated in (False, True)
        ]

    def curves(self) -> list[Row]:
        right = self.tally["right"]
        return [
            {"calibrated": calibrated, "answers": count, "certainty": sure, "right": share}
            for calibrated in (False, True)
            for count, sure, share in reliability(self.tally["sure", calibrated], right)
        ]


def walkers_of(
    name: str, network: Network, asked: Sequence[int] | None, until: Sequence[float], orders: Sequence[str]
) -> Iterator[Walker]:
    """One for each number of glimpses that the network can read and each certainty, in each order that it has."""
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
    several = bool(until) or tuple(orders) != ("levels",)
    for order in orders:
        if order == "levels":
            yield from (Walker(name, network, Route(count, order=order if several else None)) for count in known)
        routes = _routes(network, order, until) if several else []
        if routes:
            most = max(*known, routes[0].glimpses or 0)
            most = most if order == "best" else routes[0].glimpses or 0  # a plan is of a number of glimpses
            in_order = [replace(routes[0], glimpses=count, until=None) for count in known] if order == "best" else []
            yield from (Walker(name, network, route, most) for route in (*in_order, *routes[1:]))


def _routes(network: Network, order: str, until: Sequence[float]) -> list[Route]:
    """The usual one in an order, and one for each certainty; none where the network has no such order."""
    if not network.can("steps"):
        return []
    for given in (order, *([None] if order == "levels" else [])):  # those in turn have the one of their own
        try:
            whole = stepping(network, Route(order=given))[1]
        except BadChoice:
            continue
        return [whole, *(replace(whole, until=sure) for sure in until)]
    if order not in ORDERS:
        raise BadChoice(f"no order {order!r} (there are: {', '.join(ORDERS)})")
    return []


def costs_of(walker: Walker, batch: int, timed: bool) -> Row:
    network, route = walker.network, walker.route
    row: Row = {"params": parameters(network.module)}
    if not walker.alike:
        return {"macs": round(float(walker.tally["macs"].mean())), **row}
    glimpses = None if route is None else route.glimpses
    row = {"macs": macs(network, blank(network), glimpses), **row}
    if not timed:
        return row
    return row | spent(network, noise(network, input_shape(network, None), batch), glimpses, ROUNDS)


def over_seeds(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The means of networks that differ in their seeds, for each number of glimpses, with Student's 95 % intervals."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        name, seed = seeds.of(row["net"])
        if seed:
            until = row.get("until")
            key = name, row.get("order"), until, None if until else row["glimpses"]
            groups.setdefault(key, []).append(row)
    return [_together(name, own) for (name, *_), own in groups.items() if len(own) > 1]


def _together(name: str, rows: Sequence[Mapping[str, Any]]) -> Row:
    row: Row = {**rows[0], "net": name, "seeds": len(rows)}
    if row.get("order"):  # of walks that are not all alike
        row["macs"] = round(np.mean([one["macs"] for one in rows]))
        row["glimpses"] = float(np.mean([one["glimpses"] for one in rows])) if row["until"] else row["glimpses"]
    for key in [key for key in rows[0] if key in OF_SEEDS or "_at_" in key]:
        values: list[float] = [one[key] for one in rows if one.get(key) is not None]
        row[key] = float(np.mean(values)) if len(values) == len(rows) else None
        if row[key] is not None and key == "top1":
            row["low"], row["high"] = student(values)
        elif row[key] is not None and (key in ("alone", "read") or key.startswith("found_at_")):
            row[f"{key}_low"], row[f"{key}_high"] = student(values)
    return row


def draw(found: Figures) -> Figure:
    """TNet's Fig. 2: one line per network and order that it reads glimpses in, their number beside each point, or the
    certainty that ended walks; a marker for one that reads it all. Beside it, how often certain answers are right."""
    rows, curves = drawn(found.rows), found.details.get("reliability", [])
    series = list(dict.fromkeys(map(_series, rows)))
    figure = sheet(8.4 if not curves else 13.4, 5.6)
    panel, *more = figure.subplots(1, 2 if curves else 1, squeeze=False, width_ratios=[8, 5][: 1 + bool(curves)])[0]
    for place, name in enumerate(series):
        _line(panel, [row for row in rows if _series(row) == name], style(place))
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
    for beside in more:
        _calibration(beside, found)
    return figure


def _series(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["net"], row.get("order"), row.get("until") is not None


def _calibration(panel: Axes, found: Figures) -> None:
    """Reliability before calibration and after, of each network and order, with the errors that they come to."""
    errors = found.details["calibration"]
    panel.plot([0, 1], [0, 1], color=GRAY, linestyle=":")
    for place, about in enumerate(errors):
        key = [about[name] for name in ("net", "order", "calibrated")]
        points = [
            row for row in found.details["reliability"] if [row[name] for name in ("net", "order", "calibrated")] == key
        ]
        look = {**style(place // 2), "linestyle": "-" if about["calibrated"] else "--"}
        look |= {"fillstyle": "full" if about["calibrated"] else "none", "alpha": 0.85}
        when = "calibrated" if about["calibrated"] else "before"
        label = f"{about['net']}, {about['order']}, {when}: ECE {about['ece']:.3f}, NLL {about['nll']:.3f}"
        panel.plot([row["certainty"] for row in points], [row["right"] for row in points], **look, label=label)
    panel.set(title="after each thing read", xlabel="certainty", ylabel="share of answers that are right", xlim=(0, 1))
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small", loc="lower right")


def drawn(rows: Rows) -> Rows:
    """Where there is a mean over seeds, it stands for them."""
    means = {row["net"] for row in rows if row.get("seeds")}
    own = [(row, *seeds.of(row["net"])) for row in rows]
    return [row for row, name, seed in own if not seed or name not in means]


def _line(panel: Axes, rows: Rows, look: Mapping[str, Any]) -> None:
    reads, sure = rows[0]["glimpses"] is not None, rows[0].get("until") is not None
    rows = sorted(rows, key=lambda row: row["until"] if sure else row["glimpses"] or 0)
    x, y = [row["macs"] / 1e9 for row in rows], [row["top1"] for row in rows]
    below, above = ([row["top1"] - row["low"] for row in rows], [row["high"] - row["top1"] for row in rows])
    of_seeds = f", {rows[0]['seeds']} seeds" if rows[0].get("seeds") else ""
    how = {"levels": "level by level", "best": "best first"}.get(rows[0].get("order") or "", "by glimpses")
    name = f"{rows[0]['net']}{of_seeds}, {how if reads else 'whole pictures'}{', until sure' if sure else ''}"
    panel.errorbar(
        x, y, [below, above], **look, markersize=8 if reads else 10, capsize=3, alpha=0.9,
        linestyle=("--" if sure else "-") if reads else "none", fillstyle="full" if reads else "none", label=name,
    )  # fmt: skip
    mark = {"textcoords": "offset points", "color": look["color"], "fontweight": "bold"}
    for row, place in zip(rows, zip(x, y, strict=True), strict=True) if reads else ():
        if sure:
            panel.annotate(f"{row['until']:g}", place, (-4, -22), rotation=90, va="top", fontsize="x-small", **mark)
        else:
            panel.annotate(str(row["glimpses"]), place, (6, 6), **mark)
