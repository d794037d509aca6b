"""Patches that suffice: a classifier that reads the localised patches alone, beside one that reads whole pictures.

AnchorNet's Table 3 and Fig. 19 (`measure`), Figs. 16 to 18 (`sensitivity`) and Table 8 (`attack`). Pictures are decoded
and localised once; patches are cut out of the picture as the localiser takes it.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from fovea.data import Box, DataSet, Sample
from fovea.errors import BadChoice, BadPicture
from fovea.lip import Settings, for_test, pick
from fovea.localizing.downstream import Patches, judged, patches
from fovea.localizing.scales import Anchored, Choice, Look, Scale, look
from fovea.measure.attacks import FGSM, Victims
from fovea.measure.classify import RESAMPLES
from fovea.measure.cost import macs
from fovea.measure.figures import Figures
from fovea.measure.interval import interval
from fovea.measure.matching import Matching, match_by_trying
from fovea.measure.normalisation import WHITE, normalisation_of
from fovea.measure.stream import batches, blank, input_of, prepared, rank_of
from fovea.network import Network, as_found
from fovea.placement import Placement

Progress = Callable[[int, int], None]
Row = dict[str, Any]
Chosen = NDArray[np.bool_] | slice  # of the pictures
EVERY = slice(None)
OVERALL = "overall"
SHARES, OVERLAPS = (0.01, 0.05, 0.1, 0.3), (0.1, 0.3, 0.5, 0.7, 0.9)  # P and T
MACS = "the classifier's multiplications a picture, and with the localiser's; ratio: to its own on a whole picture"
EPSILONS = (0.2, 2.0)  # the paper's, and one that can be seen in an 8-bit picture


def measure(
    localizer: Network,
    classifier: Network,
    full: Network,
    data: DataSet,
    settings: Choice = for_test,
    batch: int = 16,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Figures:
    """Rows of three kinds: `patches` (Table 3), `localizer` (what it decides and finds), `rescaled` (Fig. 19).

    `classifier` was trained on patches, `full` on whole pictures, which it sees as its own transform makes them.
    `settings` gives LIP's for a side and an input's size.
    """
    demand_anchored(localizer)
    nets = (localizer, classifier, full)
    ours, theirs, whole = (demand_same_classes(one, data) for one in nets)
    skipped: list[tuple[str, str]] = []
    tally, sides = Tally(), list[int]()
    for part in parts(localizer, data, batch, skipped, progress):
        samples, tensors, seen = part.samples, part.tensors, part.seen
        sides = [scale.side for scale in seen.scales]
        cut = patches(seen, settings, tensors.shape[2:])
        tally.put("chosen", seen.chosen)
        tally.put("count", counts(cut, len(tensors)))
        tally.answers("patches", judged(localizer, classifier, tensors, cut), theirs.of(samples))
        tally.answers("full", _of_whole(full, part), whole.of(samples))
        tally.answers("plain", _of_whole(classifier, part), theirs.of(samples))
        tally.answers(OVERALL, seen.output, ours.of(samples))
        for scale in seen.scales:
            best, small = _best(scale).cut(tensors), rescaled(localizer, tensors, scale.side)
            tally.answers(scale.side, scale.logits, ours.of(samples))
            tally.answers(("localised", scale.side), alone(localizer, classifier, best), theirs.of(samples))
            tally.answers(("rescaled", scale.side), alone(localizer, classifier, small), theirs.of(samples))
            tally.answers(("rescaled_full", scale.side), alone(localizer, full, small), whole.of(samples))
            hit, chance = part.in_boxes(scale)
            tally.put(("hit", scale.side), hit)
            tally.put(("chance", scale.side), chance)
    demand_read(len(tally.columns), data, skipped)
    costs = Costs.of(localizer, classifier, sides)
    about = {"localizer": localizer.name or "network", "data": data.name}
    rows = [
        *_table(tally, costs, (classifier, full), about, seed),
        *_localizers(tally, sides, about),
        *_rescaled_rows(tally, sides, {"net": classifier.name or "network", **about}),
    ]
    size = blank(localizer).shape[2:]
    told = {
        **_settings(nets, (ours, theirs, whole), data, skipped),
        "macs": MACS,
        "lip": "; ".join(f"{side}: {_words(settings(side, size))}" for side in sides),
        "interval": f"95 % of top1, percentiles of {RESAMPLES:,} bootstrap resamples of the pictures, seed {seed}",
        "centre_in_box": "of the best patch, in any true box; chance: the mean over all cells of the same branch",
        "rescaled": "the whole picture, as the localiser takes it, scaled down to the patch's size (bicubic, smoothed)",
        "localised": "the one best patch of the branch, for the class that was decided",
    }
    return Figures("patches", told, rows, skipped)


def sensitivity(
    localizer: Network,
    classifier: Network,
    data: DataSet,
    shares: Sequence[float] = SHARES,
    overlaps: Sequence[float] = OVERLAPS,
    forced: bool = False,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> Figures:
    """A row for each branch, share (P) and overlap (T) of LIP, and with all branches together.

    Of the pictures that a branch localises, or of all, `forced` through every branch. A patch is classified once,
    however many settings pick it.
    """
    if not shares or not overlaps:
        raise BadChoice("name at least one share (P) and one overlap (T)")
    grid = [(share, overlap) for share in dict.fromkeys(shares) for overlap in dict.fromkeys(overlaps)]
    for share, overlap in grid:
        Settings(1, overlap, share)  # checks them
    demand_anchored(localizer)
    ours, theirs = (demand_same_classes(one, data) for one in (localizer, classifier))
    skipped: list[tuple[str, str]] = []
    tally, sides, most = Tally(), list[int](), dict[int, int]()
    for part in parts(localizer, data, batch, skipped, progress):
        labels = theirs.of(part.samples)
        for number, scale in enumerate(part.seen.scales):
            most[scale.side] = for_test(scale.side, part.tensors.shape[2:]).count
            given = torch.ones_like(part.seen.chosen) if forced else part.seen.chosen == number
            own = given.nonzero()[:, 0]  # n
            if not len(own):
                continue
            picks = [
                pick(scale.values[own], scale.boxes, Settings(most[scale.side], overlap, share)).cells.cpu()
                for share, overlap in grid
            ]  # n,K each
            sums = _sums(localizer, classifier, part.tensors, scale, own.cpu(), picks)
            for key, cells, output in zip(grid, picks, sums, strict=True):
                tally.answers((scale.side, *key), output, labels[own.cpu()])
                tally.put(("count", scale.side, *key), (cells >= 0).sum(1))
        sides = [scale.side for scale in part.seen.scales]
    demand_read(len(tally.columns), data, skipped)
    costs = Costs.of(localizer, classifier, sides)
    about = {"net": classifier.name or "network", "localizer": localizer.name or "network", "data": data.name}
    rows: list[Row] = []
    for group in [*([side] for side in sides), *([] if forced else [sides])]:
        for key in grid:
            found = tally.together([(side, *key) for side in group])
            many = {side: tally[("count", side, *key)] for side in group}
            cost = np.concatenate([costs.patch[side] * one for side, one in many.items()])
            rows.append(
                {
                    **about,
                    "scale": str(group[0]) if len(group) == 1 else OVERALL,
                    "share": key[0],
                    "overlap": key[1],
                    "images": len(cost),
                    "patches": mean(np.concatenate(list(many.values()))),
                    **found,
                    **costs.row(cost),
                }
            )
    told = {
        **_settings((localizer, classifier), (ours, theirs), data, skipped),
        "macs": MACS,
        "pictures": "all of them, by every branch" if forced else "of each branch those that it localises",
        "count": "at most " + ", ".join(f"{count} of {side} px" for side, count in most.items()),
    }
    return Figures("patch-sensitivity", told, rows, skipped)


def attack(
    localizer: Network,
    classifier: Network,
    full: Network,
    data: DataSet,
    epsilons: Sequence[float] = EPSILONS,
    settings: Choice = for_test,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> Figures:
    """Table 8: what FGSM on the localiser costs the classifier of its patches, by scale; ε in 8-bit units.

    Patches are found in the attacked picture, and cut out of it (`cut` is attacked, the paper's reading), or out of the
    clean one, which shows what the localisation alone loses. Beside it the localiser's own decision, and `full`, which
    is attacked by its own gradient.
    """
    epsilons = tuple(dict.fromkeys(epsilons))
    if not epsilons or not all(0 < one <= WHITE for one in epsilons):
        raise BadChoice(f"ε is above 0, in 8-bit units up to 255; got {', '.join(map(str, epsilons)) or 'none'}")
    demand_anchored(localizer)
    nets = (localizer, classifier, full)
    ours, theirs, whole = (demand_same_classes(one, data) for one in nets)
    skipped: list[tuple[str, str]] = []
    tally, sides = Tally(), list[int]()
    for part in parts(localizer, data, batch, skipped, progress):
        sides = [scale.side for scale in part.seen.scales]
        own, labels = part.tensors, theirs.of(part.samples)
        other, _, _ = prepared(full, part.samples, part.images)
        ways = attacked(localizer, own, ours.of(part.samples), epsilons)
        for epsilon, changed in zip((0.0, *epsilons), (own, *ways), strict=True):
            seen = look(localizer, changed) if epsilon else part.seen
            cut = patches(seen, settings, own.shape[2:])
            tally.put(("chosen", epsilon), seen.chosen)
            tally.answers(("decision", epsilon), seen.output, ours.of(part.samples))
            tally.answers(("attacked", epsilon), judged(localizer, classifier, changed, cut), labels)
            if epsilon:
                tally.answers(("clean", epsilon), judged(localizer, classifier, own, cut), labels)
        ways = attacked(full, other, whole.of(part.samples), epsilons)
        for epsilon, changed in zip((0.0, *epsilons), (other, *ways), strict=True):
            with as_found(full), torch.no_grad():
                tally.answers(("full", epsilon), full(changed), whole.of(part.samples))
    demand_read(len(tally.columns), data, skipped)
    rows = list(_attack_rows(tally, [one.name or "network" for one in nets], data.name, sides, (0.0, *epsilons)))
    told = {
        **_settings(nets, (ours, theirs, whole), data, skipped),
        "epsilon": "x + ε sign of the cross-entropy's gradient, ε in 8-bit units, clipped to 0..255, not rounded",
        "gradient": "of the branch that decides, for the localiser",
        "scale": "the branch that localises the picture in question; drop: from the same row without attack",
        "cut": "whether patches, found in the attacked picture, are cut out of it or out of the clean one",
    }
    return Figures("patch-attack", told, rows, skipped)


@dataclass(frozen=True)
class Part:
    """A batch of pictures as the localiser sees it."""

    samples: list[Sample]
    images: list[Image.Image]
    tensors: Tensor  # N,C,H,W
    places: list[Placement]
    boxes: list[tuple[Box, ...]]  # the true ones, in the user's pixels
    seen: Look

    def in_boxes(self, scale: Scale) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Does the centre of each picture's best patch lie in a box, and of what share of all patches does it (N each)?

        NaN where a picture has no box.
        """
        corners = scale.boxes.cpu().double().numpy()
        centres = (corners[:, :2] + corners[:, 2:]) / 2  # P,2  x y
        best = scale.values.flatten(1).argmax(1).tolist()
        found = np.full((2, len(best)), np.nan)
        for i, (place, boxes) in enumerate(zip(self.places, self.boxes, strict=True)):
            if boxes:
                inside = inside_any(centres * place.scale + place.offset, boxes)
                found[:, i] = inside[best[i]], inside.mean()
        return found[0], found[1]


def inside_any(points: NDArray[np.float64], boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Which points (P,2: x y) lie in any of the half-open boxes."""
    x, y = points.T[:, :, None]  # P,1 each
    x0, y0, x1, y1 = np.array(boxes).T
    found: NDArray[np.bool_] = ((x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)).any(1)
    return found


def parts(
    localizer: Network, data: DataSet, batch: int, skipped: list[tuple[str, str]], progress: Progress
) -> Iterator[Part]:
    """The data, a batch at a time. A picture without an answer, or with boxes that cannot be read, is skipped."""
    done = 0
    for samples, images in batches(data, batch, skipped):
        boxes = [_boxes(sample, skipped) for sample in samples]
        tensors, _, places = prepared(localizer, samples, images)
        seen = look(localizer, tensors)
        lost = ~seen.output.isfinite().all(1).cpu()
        skipped += [(samples[i].name, "the localiser's output is not a number") for i in lost.nonzero()[:, 0].tolist()]
        kept = [i for i, own in enumerate(boxes) if own is not None and not lost[i]]
        if len(kept) < len(samples) and kept:
            seen = look(localizer, tensors[kept])
        if kept:
            yield Part(
                [samples[i] for i in kept],
                [images[i] for i in kept],
                tensors[kept],
                [places[i] for i in kept],
                [boxes[i] or () for i in kept],
                seen,
            )
        done += len(kept)
        progress(min(done + len(skipped), len(data)), len(data))


def _boxes(sample: Sample, skipped: list[tuple[str, str]]) -> tuple[Box, ...] | None:
    try:
        return sample.boxes
    except BadPicture as reason:
        skipped.append((sample.name, str(reason)))
        return None


def demand_anchored(network: Network) -> None:
    if not isinstance(network.module, Anchored):
        raise BadChoice(
            f"the localizer must be an AnchorNet, as anchornet-imagenette is; {network.name or 'this network'} has no "
            "branches that localise"
        )


def demand_same_classes(network: Network, data: DataSet) -> Matching:
    """How the network's classes are those of the data."""
    matching = match_by_trying(network, data, blank(network))
    if matching.how.endswith("differ"):
        raise BadChoice(
            f"{network.name or 'the network'} knows other classes than {data.name}: "
            f"{', '.join((network.labels or ())[:3])} … instead of {', '.join(data.labels[:3])} …; "
            "use a network trained on these"
        )
    return matching


def demand_read(pictures: int, data: DataSet, skipped: Sequence[tuple[str, str]]) -> None:
    if not pictures:
        raise BadPicture(f"no picture of {data.name} could be measured: {skipped[0][1] if skipped else 'it is empty'}")


@dataclass
class Tally:
    """Figures of every picture, by what they tell of, gathered batch after batch."""

    columns: dict[Hashable, list[NDArray[Any]]] = field(default_factory=dict)
    classes: dict[Hashable, int] = field(default_factory=dict)

    def put(self, key: Hashable, values: Tensor | NDArray[Any]) -> None:
        own = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        self.columns.setdefault(key, []).append(own)

    def answers(self, key: Hashable, output: Tensor, labels: Tensor) -> None:
        self.put(key, rank_of(output, labels))
        self.classes[key] = output.shape[1]

    def __getitem__(self, key: Hashable) -> NDArray[Any]:
        """Of all batches; nothing where none had any."""
        return np.concatenate(self.columns.get(key) or [np.zeros(0)])

    def top(self, key: Hashable, which: Chosen = EVERY) -> dict[str, float | None]:
        rank = self[key][which]
        return {"top1": mean(rank < 1), "top5": mean(rank < 5) if self.classes.get(key, 0) >= 5 else None}

    def together(self, keys: Sequence[Hashable]) -> dict[str, float | None]:
        """The same of several columns as one."""
        classes = max(self.classes.get(key, 0) for key in keys)
        return Tally({OVERALL: [self[key] for key in keys]}, {OVERALL: classes}).top(OVERALL)


def mean(values: NDArray[Any]) -> float | None:
    """Of the values that are numbers."""
    own = values[~np.isnan(values)]
    return float(own.mean()) if len(own) else None


def counts(cut: Sequence[Patches], pictures: int) -> Tensor:
    """How many patches each picture has."""
    return torch.bincount(torch.cat([one.owner for one in cut]), minlength=pictures)


@dataclass(frozen=True)
class Costs:
    """Multiplications: of the classifier on a patch of each side and on a whole picture, and of the localiser."""

    patch: Mapping[int, int]
    whole: int
    localizer: int

    @staticmethod
    def of(localizer: Network, classifier: Network, sides: Sequence[int]) -> "Costs":
        own = blank(classifier)
        one = {side: macs(classifier, own.new_zeros(1, own.shape[1], side, side)) for side in sides}
        return Costs(one, macs(classifier, own), macs(localizer, blank(localizer)))

    def row(self, patches: NDArray[Any]) -> Row:
        """Of what the classifier multiplies for each picture: the mean, without and with the localiser."""
        own = mean(patches)
        if own is None:
            return dict.fromkeys(("macs", "macs_ratio", "macs_with_localizer", "ratio_with_localizer"))
        both = own + self.localizer
        return {
            "macs": round(own),
            "macs_ratio": own / self.whole,
            "macs_with_localizer": round(both),
            "ratio_with_localizer": both / self.whole,
        }

    def row_of_whole(self, own: int) -> Row:
        """Of a network that needs no localiser."""
        told = {"macs": own, "macs_ratio": own / self.whole}
        return {**told, "macs_with_localizer": own, "ratio_with_localizer": own / self.whole}


def _of_whole(network: Network, part: Part) -> Tensor:
    tensors, _, _ = prepared(network, part.samples, part.images)
    with as_found(network), torch.no_grad():
        return network(tensors)


def _best(scale: Scale) -> Patches:
    """The best patch of every picture."""
    best = scale.values.flatten(1).argmax(1).cpu()
    return Patches(scale.side, torch.arange(len(best)), scale.boxes.cpu()[best])


def alone(localizer: Network, classifier: Network, squares: Tensor) -> Tensor:
    """What the classifier says of each square (M,C,side,side, as the localiser takes pixels) by itself: M,classes."""
    count, side = len(squares), squares.shape[3]
    whole = torch.tensor([0, 0, side, side]).expand(count, 4)
    return judged(localizer, classifier, squares, [Patches(side, torch.arange(count), whole)])


def rescaled(localizer: Network, tensors: Tensor, side: int) -> Tensor:
    """Whole pictures as small as a patch."""
    black, white = (normalisation_of(localizer).grey(value).to(tensors) for value in (0, WHITE))
    small = F.interpolate(tensors, (side, side), mode="bicubic", align_corners=False, antialias=True)
    return small.maximum(black).minimum(white)  # bicubic overshoots


def attacked(network: Network, tensors: Tensor, labels: Tensor, epsilons: Sequence[float]) -> list[Tensor]:
    """The pictures after FGSM with the network's own gradient, which is followed once for every ε."""
    normal = normalisation_of(network)
    pixels = normal.to_pixels(tensors.float()).clamp(0, WHITE)
    victims = Victims(pixels, labels, range(len(pixels)))
    # 0 where a step of 1 leads out of 0..255 at once, as a step of any ε does
    direction = (FGSM(1.0, network)(victims, lambda done: None) - pixels).sign()
    return [normal.to_tensors((pixels + epsilon * direction).clamp(0, WHITE)).to(tensors) for epsilon in epsilons]


def _sums(
    localizer: Network, classifier: Network, tensors: Tensor, scale: Scale, own: Tensor, picks: Sequence[Tensor]
) -> list[Tensor]:
    """What the patches of each setting's picks (cells n,K, -1 for none) say together, every patch classified once."""
    cells = len(scale.boxes)
    picked = torch.zeros(len(own), cells + 1, dtype=torch.bool)
    for one in picks:
        picked.scatter_(1, torch.where(one >= 0, one, cells), True)
    row, cell = picked[:, :cells].nonzero(as_tuple=True)  # M each
    squares = Patches(scale.side, own[row], scale.boxes.cpu()[cell]).cut(tensors)
    answers = alone(localizer, classifier, squares).cpu()  # M,classes
    place = torch.zeros(len(own), cells, dtype=torch.long)
    place[row, cell] = torch.arange(len(row))
    found = []
    for one in picks:
        there = (one >= 0).unsqueeze(2)
        said = answers[place.gather(1, one.clamp(min=0))]  # n,K,classes
        found.append((said * there).sum(1) / there.sum(1))
    return found


def _table(
    tally: Tally, costs: Costs, nets: tuple[Network, Network], about: Mapping[str, Any], seed: int
) -> Iterator[Row]:
    """Table 3: whole pictures, then the patches of each scale, then all scales together."""
    classifier, full = nets
    chosen, number = tally["chosen"], tally["count"]
    sides = list(costs.patch)
    cost = np.array([costs.patch[side] for side in sides])[chosen] * number

    def row(net: Network, scale: str, key: str, which: Chosen) -> Row:
        hits = tally[key][which] < 1
        low, high = interval(hits, resamples=RESAMPLES, seed=seed) if len(hits) else (None, None)
        top = {**tally.top(key, which), "low": low, "high": high}
        named = {"kind": "patches", "net": net.name or "network", **about, "scale": scale, "images": len(hits)}
        return {**named, "patches": mean(number[which]) if key == "patches" else None, **top}

    yield {**row(full, "full", "full", EVERY), **costs.row_of_whole(macs(full, blank(full)))}
    yield {**row(classifier, "full, patch network", "plain", EVERY), **costs.row_of_whole(costs.whole)}
    for place, side in enumerate(sides):
        own = chosen == place
        yield {**row(classifier, str(side), "patches", own), **costs.row(cost[own])}
    yield {**row(classifier, OVERALL, "patches", EVERY), **costs.row(cost)}


def _localizers(tally: Tally, sides: Sequence[int], about: Mapping[str, Any]) -> Iterator[Row]:
    """What the localiser says itself, and where its best patches lie."""
    chosen = tally["chosen"]
    every = {what: np.stack([tally[(what, side)] for side in sides]) for what in ("hit", "chance")}  # J,N
    named = {"kind": "localizer", "net": about["localizer"], **about}
    for place, side in enumerate(sides):
        own = chosen == place
        yield {
            **named,
            "scale": str(side),
            "images": len(chosen),
            **tally.top(side),
            "share": float(own.mean()),
            "centre_in_box": mean(every["hit"][place, own]),
            "chance": mean(every["chance"][place, own]),
            "centre_in_box_forced": mean(every["hit"][place]),
            "chance_forced": mean(every["chance"][place]),
        }
    hit, chance = (one[chosen, np.arange(len(chosen))] for one in every.values())
    yield {
        **named,
        "scale": OVERALL,
        "images": len(chosen),
        **tally.top(OVERALL),
        "share": 1.0,
        "centre_in_box": mean(hit),
        "chance": mean(chance),
    }


def _rescaled_rows(tally: Tally, sides: Sequence[int], about: Mapping[str, Any]) -> Iterator[Row]:
    """Fig. 19: the best patch against the whole picture at its size, of a branch's own pictures and of all."""
    chosen = tally["chosen"]
    for over in ("its own", "all"):
        for place, side in enumerate(sides):
            own: Chosen = chosen == place if over == "its own" else EVERY
            shares = {what: tally.top((what, side), own)["top1"] for what in ("localised", "rescaled", "rescaled_full")}
            yield {
                "kind": "rescaled",
                **about,
                "scale": str(side),
                "pictures": over,
                "images": len(chosen[own]),
                **shares,
            }


def _attack_rows(
    tally: Tally, names: Sequence[str], data: str, sides: Sequence[int], epsilons: Sequence[float]
) -> Iterator[Row]:
    """Table 8: patches cut out of attacked pictures, out of clean ones, then the two networks that see the whole."""
    finder, judge, full = names
    for what, net, followed in (
        ("attacked", judge, finder), ("clean", judge, finder), ("decision", finder, finder), ("full", full, full)
    ):  # fmt: skip
        patched = what in ("attacked", "clean")
        for scale in [*(sides if patched else ()), OVERALL]:
            before: float | None = None
            for epsilon in epsilons:
                # without an attack there is nothing to cut otherwise
                key = "attacked" if patched and not epsilon else what
                chosen = tally[("chosen", epsilon)]
                own: Chosen = EVERY if isinstance(scale, str) else chosen == sides.index(scale)
                found = tally.top((key, epsilon), own)
                top1 = found["top1"]
                before = before if epsilon else top1
                if what == "clean" and not epsilon:
                    continue  # told already
                yield {
                    "net": net,
                    "localizer": finder if patched else None,
                    "data": data,
                    "cut": what if patched and epsilon else None,
                    "scale": str(scale),
                    "attack": f"fgsm on {followed}" if epsilon else "none",
                    "epsilon": epsilon,
                    "images": len(chosen[own]),
                    **found,
                    "drop": None if top1 is None or before is None else before - top1,
                }


def _settings(
    nets: Sequence[Network], matchings: Sequence[Matching], data: DataSet, skipped: Sequence[tuple[str, str]]
) -> Row:
    own = dict(zip(("localizer", "net", "full"), nets, strict=False))
    return {
        "data": data.name,
        **{name: network.name or "network" for name, network in own.items()},
        "input": ", ".join(f"{name} {input_of(network)}" for name, network in own.items() if name != "net"),
        "labels": "matched by " + ", ".join(dict.fromkeys(one.how for one in matchings)),
        "skipped": len(skipped),
    }


def _words(settings: Settings) -> str:
    return f"K {settings.count}, T {settings.overlap:g}, P {settings.share:g}"
