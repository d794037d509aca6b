"""Does attention narrow with the steps, as the thesis says? How much of a patch is above half of its map's maximum.

The thesis (chapter 5, Figs. 5.1 and 5.2) shows that it does on a few pictures; here it is measured over a data set."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import RESAMPLES, BadChoice, interval_of_means
from fovea.measures import Figures, Run, Tally, measure
from fovea.measures.figures import cell
from fovea.measures.plots import Rows, sheet, style
from fovea.measures.runner import Input
from fovea.models.twostream import TwoStream
from fovea.networks import Network, as_found, match, rank_of
from fovea.streams import Streams, source_of

Values = NDArray[np.float64]
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
    about="Does attention narrow with the steps? The part of a patch above half of its map's maximum, step by step.",
    needs=("labels",),
    usual={"net": ("twostream-cub100",)},
    figure="draw",
)
def finer(
    run: Run, *, method: Sequence[str] = ("gradcam",), control: Sequence[str] = (), batch: int = 32, seed: int = 0
) -> Figures:
    """One row per method: how much smaller or larger the area is at the last step than at the first, and in how many
    pictures it is smaller. Then one for every method and step: the area, how often the step alone is right, and its
    mean weight. Maps are of the network's answer; a picture's area is the mean over its patches. `control` (untrained)
    adds rows of the same network with LSTMs that have learned nothing: what they do, steps do by themselves."""
    streams = Streams.of(run.network, *method)
    if not method or len(set(method)) < len(method):
        raise BadChoice(f"name one or more methods, each once; got {list(method)}")
    if streams.local.steps < 2:
        raise BadChoice(f"{run.network.name or 'this network'} looks once: nothing can narrow in a single step")
    matching, looking = match(run.network, run.data, streams.classes), {"": (streams, Tally())}
    for how in control:
        if how != UNTRAINED:
            raise BadChoice(f"steps are compared with LSTMs that are {UNTRAINED}; got control={how!r}")
        looking[f", {how} LSTMs"] = Streams.of(_untrained(run.network, seed), *method), Tally()
    for samples, (given,) in run.inputs(batch):
        for own, tally in looking.values():
            _add(tally, own, method, given, matching.of(samples))
    images, patches = looking[""][1][method[0]].shape[:2]
    about, rows, steps = run.about(images), list[dict[str, Any]](), list[dict[str, Any]]()
    for name, (_, tally) in looking.items():
        rows += [{**about, "method": one + name, **change_of(tally[one], seed)} for one in method]
        steps += [{**about, "method": one + name, **row} for one in method for row in _steps(tally, one, seed)]
    source = source_of(streams.module)
    settings = {
        "labels": f"matched by {matching.how}",
        "steps": streams.local.steps,
        "patches": f"{patches} a picture" + (f", by {source}" if source else ""),
        "class": "the network's answer",
        "area": f"share of the patch above half of its map's maximum, upsampled bilinearly to {streams.module.patch} "
        "pixels a side; blank maps are left out",
        "change": "area at the last step less that at the first, of the patches that have a map at both",
        "interval": f"95 %, percentiles of {RESAMPLES:,} bootstrap resamples of the pictures, seed {seed}",
    }
    notes = [sentence(row, streams.local.steps) for row in rows]
    notes += [f"{row['method']}: {row['blank']} blank map(s) left out" for row in rows if row["blank"]]
    table = {f"{images} pictures of {run.data.name}, step by step": _by_step(steps)}
    return run.figures([*rows, *steps], settings, tables=table, notes=notes)


def _untrained(network: Network, seed: int) -> Network:
    """The same network with LSTMs, and what asks between them, as they begin."""
    module = cast(TwoStream, deepcopy(network.module))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in module.local.recurrent.modules():  # type: ignore[union-attr]  # which has steps
            if isinstance(layer, (nn.LSTM, nn.Linear)):
                layer.reset_parameters()
    return replace(network, module=module)


def _by_step(rows: Rows) -> list[dict[str, Any]]:
    """One row per step, the methods beside each other."""
    lines: dict[int, dict[str, Any]] = {}
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


def change_of(areas: Values, seed: int) -> dict[str, Any]:
    """From the first step to the last, of the patches that have a map at both."""
    both = areas[:, :, [0, -1]]
    both = _over_patches(np.where(np.isnan(both).any(2, keepdims=True), np.nan, both))  # N,2
    both = both[~np.isnan(both).any(1)]
    if not len(both):
        none = dict.fromkeys(("change", "low", "high", "first", "last", "narrowed", "attention"))
        return none | {"measured": 0, "blank": int(np.isnan(areas).sum())}
    change = both[:, 1] - both[:, 0]
    (low,), (high,) = interval_of_means(change[:, None], seed=seed)
    return {
        "change": float(change.mean()),
        "low": low,
        "high": high,
        "first": float(both[:, 0].mean()),
        "last": float(both[:, 1].mean()),
        "narrowed": float((change < 0).mean()),
        "attention": verdict(low, high),
        "measured": len(both),
        "blank": int(np.isnan(areas).sum()),
    }


def verdict(low: float, high: float) -> str:
    """What an interval of the change says."""
    return "narrows" if high < 0 else "widens" if low > 0 else "does not change"


def _steps(tally: Tally, method: str, seed: int) -> list[dict[str, Any]]:
    areas, blank = _over_patches(tally[method]), np.isnan(tally[method]).sum((0, 1))  # N,T  T
    low, high = interval_of_means(areas, seed=seed)
    rows = []
    for step in range(areas.shape[1]):
        known = areas[~np.isnan(areas[:, step]), step]
        spread = (float(known.mean()), low[step], high[step]) if len(known) else (None,) * 3
        row = {"step": step + 1, **dict(zip(("area", "low", "high"), spread, strict=True))}
        row |= {key: float(tally[key][:, step].mean()) for key in ("top1", "weight")}
        rows.append(row | {"blank": int(blank[step])})
    return rows


def sentence(row: Mapping[str, Any], steps: int) -> str:
    """A method's row in words."""
    if row["change"] is None:
        return f"{row['method']}: all maps of the first or the last step are blank, so nothing can be said"
    return (
        f"{row['method']}: attention {row['attention']}: {row['first']:.3f} of the patch at step 1, {row['last']:.3f} "
        f"at step {steps}, a change of {row['change']:+.3f} (95 %: {row['low']:+.3f} to {row['high']:+.3f}); "
        f"narrower in {100 * row['narrowed']:.0f} % of {row['measured']} pictures"
    )


def draw(found: Figures) -> Figure:
    """One line per method, its interval as a band."""
    methods = [row["method"] for row in found.rows if "step" not in row]
    figure = sheet(7.6, 4.8)
    panel = figure.subplots()
    for place, method in enumerate(methods):
        rows = [row for row in found.rows if row["method"] == method and row.get("area") is not None]
        whole = next(row for row in found.rows if row["method"] == method and "step" not in row)
        steps, area, low, high = ([row[key] for row in rows] for key in ("step", "area", "low", "high"))
        panel.fill_between(steps, low, high, color=style(place)["color"], alpha=0.2, linewidth=0)
        name = method if whole["attention"] is None else f"{method}: {whole['attention']} ({whole['change']:+.3f})"
        panel.plot(steps, area, label=name, **style(place))
    first = found.rows[0]
    title, words = f"{first['net']} on {first['images']} pictures of {first['data']}", "above half of the maximum"
    panel.set(title=title, xlabel="step", ylabel=f"share of the patch {words}", ylim=(0, None))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(alpha=0.3)
    panel.legend(title="from the first step to the last; band: 95 % interval", fontsize="small")
    return figure
