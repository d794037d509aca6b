"""Does attention narrow with the steps, as the thesis says? How much of a patch is above half of its map's maximum.

The thesis (chapter 5, Figs. 5.1 and 5.2) shows that it does on a few pictures; here it is measured over a data set."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import RESAMPLES, BadChoice, interval_of_means, student
from fovea.measures import Figures, Run, Tally, measure, seeds
from fovea.measures.figures import cell
from fovea.measures.plots import Rows, sheet, style
from fovea.measures.runner import Input
from fovea.models.twostream import TwoStream
from fovea.networks import Network, as_found, match, rank_of
from fovea.streams import Streams, source_of

Values = NDArray[np.float64]
Row = dict[str, Any]
UNTRAINED = "untrained"


def area(maps: Tensor, side: int) -> Tensor:
    """The share of maps (M,h,w), upsampled bilinearly to side x side, above half of their maximum: M, NaN if blank."""
    large = F.interpolate(maps.unsqueeze(1).float(), (side, side), mode="bilinear", align_corners=False)  # M,1,S,S
    large = large.flatten(1)
    most = large.amax(1, keepdim=True)
    share = (large > most / 2).float().mean(1)
    return torch.where(most[:, 0] > 0, share, torch.nan)


@measure(
    "finer",
    title="Does attention narrow with the steps?",
    about="Whether a two-stream network's attention narrows with its steps: the share of a patch above half of its "
    "map's maximum, step by step. Networks whose names differ only in a last -seed0, -seed1, … share a row, with an "
    "interval over them.",
    example="--data cub100:split=test --net twostream-cub100 --out finer.png",
    nets="several",
    needs=("labels",),
    usual={"net": ("twostream-cub100",)},
    figure="draw",
)
def finer(
    run: Run, *, method: Sequence[str] = ("gradcam",), control: Sequence[str] = (), batch: int = 32, seed: int = 0
) -> Figures:
    """One row per network and method: how much smaller or larger the area is at the last step than at the first, and in
    how many pictures it is smaller. Then one for every method and step: the area, how often the step alone is right,
    and its mean weight. Maps are of the network's answer; a picture's area is the mean over its patches. `control`
    (untrained) adds rows of the same networks with LSTMs that have learned nothing: what they do, steps do by
    themselves; the change that was learned is what is left, picture by picture."""
    looks = _looks(run, method, control, seed)
    matching = {name: match(run.networks[name], run.data, own[""].streams.classes) for name, own in looks.items()}
    for samples, inputs in run.inputs(batch):
        for (name, own), given in zip(looks.items(), inputs, strict=True):
            for look in own.values():
                _add(look.tally, look.streams, method, given, matching[name].of(samples))
    several = len(looks) > 1
    groups: dict[str, list[Mapping[str, Look]]] = {}  # networks by what they are called without seeds
    for name, own in looks.items():
        groups.setdefault(seeds.of(name)[0] if several else name or "network", []).append(own)
    some = next(iter(looks.values()))[""]
    side = some.streams.module.patch
    images, steps = len(some.tally[method[0]]), some.streams.local.steps
    rows, by_step, tables = list[Row](), list[Row](), dict[str, Rows]()
    for called, nets in groups.items():
        about = {"net": called, "data": run.data.name, "images": images} | ({"seeds": len(nets)} if several else {})
        told = list[Row]()
        for how, one in product(nets[0], method):
            tallies, name = [own[how].tally for own in nets], one + (f", {how} LSTMs" if how else "")
            row = {**about, "method": name, **change_of([tally[one] for tally in tallies], seed)}
            rows.append(row | (learned_of(nets, one, seed) if control and not how else {}))
            told += [{**about, "method": name, **row} for row in _steps(tallies, one, seed)]
        by_step += told
        of_net = f" by {called}" if several else ""
        tables[f"{images} pictures of {run.data.name}, step by step{of_net}"] = _by_step(told)
    settings = {
        "labels": f"matched by {_all(one.how for one in matching.values())}",
        "steps": steps,
        "patches": _all(_patches_of(own[""], method[0]) for own in looks.values()),
        "class": "the network's answer",
        "area": f"share of the patch above half of its map's maximum, upsampled bilinearly to {side} pixels a side; "
        "blank maps are left out",
        "change": "area at the last step less that at the first, of the patches that have a map at both",
        "learned_change": "change less that with untrained LSTMs, picture by picture" if control else None,
        "interval": f"95 %, percentiles of {RESAMPLES:,} bootstrap resamples of the pictures, seed {seed}"
        + ("; of several seeds Student's over them" if several else ""),
    }
    notes = [sentence(row, steps) for row in rows]
    notes += [f"{_called(row)}: {row['blank']} blank map(s) left out" for row in rows if row["blank"]]
    return run.figures([*rows, *by_step], settings, tables=tables, notes=notes)


@dataclass(frozen=True)
class Look:
    """A network, as it is or with LSTMs that have learned nothing, and what is gathered of it."""

    streams: Streams
    tally: Tally = field(default_factory=Tally)


def _looks(run: Run, methods: Sequence[str], control: Sequence[str], seed: int) -> dict[str, dict[str, Look]]:
    """By name of a network: itself as "", and each control by what its LSTMs are."""
    if not methods or len(set(methods)) < len(methods):
        raise BadChoice(f"name one or more methods, each once; got {list(methods)}")
    for how in control:
        if how != UNTRAINED:
            raise BadChoice(f"steps are compared with LSTMs that are {UNTRAINED} alone; got control={how!r}")
    looks: dict[str, dict[str, Look]] = {}
    for place, (name, network) in enumerate(run.networks.items()):
        streams = Streams.of(network, *methods)
        if streams.local.steps < 2:
            raise BadChoice(f"{name or 'this network'} looks once: nothing can narrow in a single step")
        looks[name] = {"": Look(streams)}
        for how in control:
            looks[name][how] = Look(Streams.of(_untrained(network, seed + place), *methods))
    shapes = {(own[""].streams.local.steps, own[""].streams.module.patch) for own in looks.values()}
    if len(shapes) > 1:
        raise BadChoice("networks are compared that take the same number of steps, at patches of the same size")
    return looks


def _patches_of(look: Look, method: str) -> str:
    source = source_of(look.streams.module)
    return f"{look.tally[method].shape[1]} a picture" + (f", by {source}" if source else "")


def _all(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(words))


def _called(row: Mapping[str, Any]) -> str:
    """A row's method, and its network where there are several."""
    return f"{row['net']}, {row['method']}" if "seeds" in row else str(row["method"])


def _untrained(network: Network, seed: int) -> Network:
    """The same network with LSTMs, and what asks between them, as they begin."""
    module = cast(TwoStream, deepcopy(network.module))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in module.local.recurrent.modules():  # type: ignore[union-attr]  # which has steps
            if isinstance(layer, (nn.LSTM, nn.Linear)):
                layer.reset_parameters()
    return replace(network, module=module)


def _by_step(rows: Rows) -> list[Row]:
    """One row per step, the methods beside each other."""
    lines: dict[int, Row] = {}
    for row in rows:
        line = lines.setdefault(row["step"], {key: row[key] for key in ("step", "weight", "top1")})  # the trained one's
        line[f"area, {row['method']} (95 %)"] = cell(row, "area", "area")
    return list(lines.values())


def _add(tally: Tally, streams: Streams, methods: Sequence[str], given: Input, labels: Tensor) -> None:
    """A batch: by method the areas of its patches' maps, N,K,T, NaN where blank; the steps' hits and weights, N,T."""
    steps = streams.local.steps
    with as_found(streams.network):
        seen = streams.read(given.tensors)
        count, patches = seen.boxes.shape[:2]
        classes, places = seen.out.logits.argmax(1), streams.patches(seen, given.shown)
        for method in methods:
            maps = streams.step_maps(seen, method, classes, places)
            areas = torch.stack([area(heatmap.values[:, 0], streams.module.patch) for heatmap in maps], 1)  # N*K,T
            tally.put(method, areas.view(count, -1, steps).double())
    each = seen.steps.each.view(count, patches, steps, -1).mean(1)  # N,T,classes: patches count alike
    tally.put("top1", np.stack([rank_of(logits, labels) < 1 for logits in each.unbind(1)], 1))
    tally.put("weight", seen.steps.weights.view(count, -1, steps).mean(1).double())


def _over_patches(areas: Values) -> Values:
    """The mean of a picture's patches that have any: N,K,S to N,S; NaN where none has."""
    return torch.from_numpy(areas).nanmean(1).numpy()


def _first_and_last(areas: Values) -> Values:
    """A picture's areas at the first step and at the last, of the patches that have a map at both: N,2, else NaN."""
    both = areas[:, :, [0, -1]]
    return _over_patches(np.where(np.isnan(both).any(2, keepdims=True), np.nan, both))


def _sure(several: Sequence[Values], seed: int, least: float = 0.0) -> tuple[float, float, float]:
    """The mean of one network's pictures, NaN left out, with its interval over them; of several networks the mean of
    their means, with Student's interval over them, which ends at `least`."""
    means = [float(np.nanmean(values)) for values in several]
    if len(several) > 1:
        return float(np.mean(means)), *student(means, least)
    (low,), (high,) = interval_of_means(several[0][:, None], seed=seed)
    return means[0], low, high


def change_of(several: Sequence[Values], seed: int) -> Row:
    """From the first step to the last, of one network's areas N,K,T or of several networks'; `measured` and `blank`
    count pictures and maps of all of them."""
    ends = [_first_and_last(areas) for areas in several]
    ends = [both[~np.isnan(both).any(1)] for both in ends]  # N,2 each
    counts = {"measured": sum(map(len, ends)), "blank": int(sum(np.isnan(areas).sum() for areas in several))}
    if not all(map(len, ends)):
        return dict.fromkeys(("change", "low", "high", "first", "last", "narrowed", "attention")) | counts
    changes = [both[:, 1] - both[:, 0] for both in ends]
    change, low, high = _sure(changes, seed, -1.0)
    return {
        "change": change,
        "low": low,
        "high": high,
        "first": float(np.mean([both[:, 0].mean() for both in ends])),
        "last": float(np.mean([both[:, 1].mean() for both in ends])),
        "narrowed": float(np.mean([(change < 0).mean() for change in changes])),
        "attention": verdict(low, high),
        **counts,
    }


def learned_of(nets: Sequence[Mapping[str, Look]], method: str, seed: int) -> Row:
    """The change of networks less that of the same ones untrained, of the pictures where both have one."""
    ends = [[_first_and_last(own[how].tally[method]) for how in ("", UNTRAINED)] for own in nets]  # N,2 each
    apart = [np.diff(trained)[:, 0] - np.diff(untrained)[:, 0] for trained, untrained in ends]
    known = all((~np.isnan(values)).any() for values in apart)
    found = _sure(apart, seed, -1.0) if known else (None,) * 3
    return dict(zip(("learned_change", "learned_change_low", "learned_change_high"), found, strict=True))


def verdict(low: float, high: float) -> str:
    """What an interval of the change says."""
    return "narrows" if high < 0 else "widens" if low > 0 else "does not change"


def _steps(tallies: Sequence[Tally], method: str, seed: int) -> list[Row]:
    """Of one network, or of several as one."""
    areas = [_over_patches(tally[method]) for tally in tallies]  # N,T each
    blank = sum(np.isnan(tally[method]).sum((0, 1)) for tally in tallies)  # T
    rows = []
    for step in range(areas[0].shape[1]):
        own = [each[:, step] for each in areas]
        known = all((~np.isnan(values)).any() for values in own)
        row: Row = {"step": step + 1}
        row |= dict(zip(("area", "low", "high"), _sure(own, seed) if known else (None,) * 3, strict=True))
        row |= {key: float(np.mean([tally[key][:, step].mean() for tally in tallies])) for key in ("top1", "weight")}
        rows.append(row | {"blank": int(blank[step])})
    return rows


def sentence(row: Mapping[str, Any], steps: int) -> str:
    """A method's row in words."""
    if row["change"] is None:
        return f"{_called(row)}: all maps of the first or the last step are blank, so nothing can be said"
    learned = cell(row, "learned_change")
    return (
        f"{_called(row)}: attention {row['attention']}: {row['first']:.3f} of the patch at step 1, {row['last']:.3f} "
        f"at step {steps}, a change of {row['change']:+.3f} (95 %: {row['low']:+.3f} to {row['high']:+.3f}); "
        f"narrower in {100 * row['narrowed']:.0f} % of {row['measured']} pictures"
        + (f"; {learned} of it was learned" if learned is not None else "")
    )


def draw(found: Figures) -> Figure:
    """One line per network and method, its interval as a band."""
    lines = [row for row in found.rows if "step" not in row]
    figure = sheet(7.6, 4.8)
    panel = figure.subplots()
    for place, whole in enumerate(lines):
        of_line = (row for row in found.rows if "step" in row and _called(row) == _called(whole))
        rows = [row for row in of_line if row["area"] is not None]
        steps, area, low, high = ([row[key] for row in rows] for key in ("step", "area", "low", "high"))
        panel.fill_between(steps, low, high, color=style(place)["color"], alpha=0.2, linewidth=0)
        name = _called(whole)
        name = name if whole["attention"] is None else f"{name}: {whole['attention']} ({whole['change']:+.3f})"
        panel.plot(steps, area, label=name, **style(place))
    first = found.rows[0]
    of_net = "" if "seeds" in first else f"{first['net']} on "
    title, words = f"{of_net}{first['images']} pictures of {first['data']}", "above half of the maximum"
    panel.set(title=title, xlabel="step", ylabel=f"share of the patch {words}", ylim=(0, None))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(alpha=0.3)
    panel.legend(title="from the first step to the last; band: 95 % interval", fontsize="small")
    return figure
