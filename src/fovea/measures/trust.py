"""Which map should I trust? Localization, insertion and deletion, sanity and time of every method, on one's own data.

Maps are of the true class where boxes are drawn, of the class that comes first elsewhere; of a network without labels,
an embedding, they are of the whole output, and the curves follow the cosine to the whole picture's embedding."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fovea.basics import BadChoice, BadPicture, Progress, announce
from fovea.heatmaps import COPIES, Method, names, usual
from fovea.measures import Figures, Run, mean, measure, trust_maps
from fovea.measures.boxes import THRESHOLDS, max_box_acc
from fovea.measures.curves import KINDS
from fovea.measures.localized import THRESHOLD, localized
from fovea.measures.plots import COLORS, GRAY, Rows, sheet
from fovea.measures.random_control import RANDOM, methods_or_control
from fovea.measures.runner import refusals
from fovea.measures.trust_rules import MEASURES, RULES, UNCHANGED, Comparison, Measured, advise, compare
from fovea.networks import Network

Methods = Sequence[str | Method]
GOOD = "good maps: localization and insertion high, deletion low, sanity near 0; 95 % intervals"
OTHERS, CONTROL = "#9DB4C0", "#BBBBBB"
PANELS = {
    "gt_known": "localization\n(higher is better)",
    "insertion": "insertion\n(higher is better)",
    "deletion": "deletion\n(lower is better)",
    "sanity_last": "sanity: last layer random\n(near 0 is better)",
    "sanity_all": "sanity: all layers random\n(near 0 is better)",
    "x_forward": "time, x a bare forward\n(lower is better)",
}
KEY = "blue: recommended; orange: do not use; dashed: what random maps reach; dotted: too like a random network's"
WIDTH = 190  # letters a line of the recommendation


@measure(
    "trust",
    title="Which map to trust",
    chosen="threshold",
    about="Which heatmap method to trust on a network: localization, insertion, deletion, sanity and time of each, "
    "and a verdict.",
    example="photos/ --net mine.safetensors --limit 200",
    needs=("labels?",),
    fit="squash",
    columns=("method", "gt_known", "insertion", "deletion", "sanity_last", "sanity_all", "x_forward", "verdict"),
    figure="draw",
)
def trust(
    run: Run, *, method: Methods | None = None, curve_pictures: int = 32, steps: int = 8, batch: int = 16, seed: int = 0
) -> Figures:
    """One row per method with its verdict, the random control among them; the recommendation is in `details`. Every
    method of fovea's if none is named; one that the network's head does not allow is told in `details`, with its
    reason. `curve_pictures`, spread over the data, are those of insertion, deletion and sanity."""
    network, data, methods = run.network, run.data, _methods(method, seed)
    looking, with_boxes, few = trust_maps.Looking(network, methods), data.with_boxes(), data.first(curve_pictures)
    masked, rounds = len(few) * len(methods) * 2 * (steps - 1), 2 * trust_maps.ROUNDS * len(methods)
    work = (len(with_boxes), len(with_boxes) * len(methods), masked, len(few) * len(COPIES), rounds)
    on_boxes, on_drawing, on_curves, on_copies, on_times = _shared(run.progress, *work)
    skipped: dict[str, str] = {}
    run.progress(0, sum(work))  # from here on it is timed
    announce(_size(methods, len(few), steps, len(with_boxes)))
    maps, how = trust_maps.mapped(looking, run, batch, skipped, on_boxes)
    drawn = localized({name: maps[name] for name in looking.names}, on_drawing, run.workers) if maps else {}
    parts = list(trust_maps.parts_of(looking, few, batch, skipped))
    count = _enough(data.name, sum(map(len, parts)), skipped)
    curves = trust_maps.areas(looking, parts, steps, on_curves)
    alike = trust_maps.resemblance(looking, parts, on_copies)
    times, same = trust_maps.times_of(looking, parts[0].tensors[:1], on_times), trust_maps.same_maps(looking, parts)
    places = {name: max_box_acc(each.largest)[1] for name, each in drawn.items()}  # of the thresholds
    oblivious = {one.name for one in methods if one.oblivious}
    measured = []
    for name in looking.names:
        pictures = {kind: curves[name, kind] for kind in trust_maps.CURVES}
        if drawn:
            pictures["gt_known"] = (drawn[name].largest[:, places[name]] >= 0.5).astype(np.float64)
        last, every = (mean(np.array(alike[name, what])) for what in ("logits", "all layers"))
        measured.append(Measured(name, pictures, last, every, times[name], same[name], name in oblivious))
    compared = compare(measured, seed)
    advice = advise(measured, compared, network.labels is not None)
    images = len(next(iter(drawn.values())).largest) if drawn else count
    about = {"net": network.name or "network", "images": images, "curve_images": count}
    rows = []
    for one in measured:
        threshold = float(THRESHOLDS[places[one.method]]) if drawn else None
        said = {"threshold": threshold, "verdict": advice.verdicts[one.method]}
        rows.append({**about, **_row(one, compared), **said})
    run.skipped += skipped.items()
    told = {"recommended": advice.recommended, "level": list(advice.level), "recommendation": list(advice.sentences)}
    return run.figures(
        rows,
        _settings(network, how, bool(drawn), count, steps) | {"random": f"uniform values in the cells, seed {seed}"},
        details=told | {"refused": looking.refused},
        notes=(GOOD, *advice.sentences),
        warnings=refusals(looking.refused),
    )


def _enough(name: str, count: int, skipped: dict[str, str]) -> int:
    if not count:
        raise BadPicture(f"no picture of {name} could be measured: {[*skipped.values(), 'it is empty'][0]}")
    if count < 2:
        raise BadChoice(f"one picture says nothing about others: give two or more; {name} has {count} that counts")
    return count


def _settings(network: Network, how: str, boxes: bool, count: int, steps: int) -> dict[str, Any]:
    """By which rules it was measured."""
    return {
        "localisation": f"IoU of at least 0.5 with any true box; threshold: {THRESHOLD}" if boxes else "no boxes",
        "maps": _of_what(network, how),
        "curves": f"{count} pictures spread over the data, {steps} steps, the area under each",
        "followed": "cosine to the whole picture's embedding" if network.labels is None else "probability of the class",
        **{kind: str(KINDS[kind]).partition("; ")[2] for kind in trust_maps.CURVES},
        **RULES,
    }


def _size(methods: Sequence[Method], pictures: int, steps: int, boxes: int) -> str:
    """What there is to do, in passes through the network."""
    masks, maps = 2 * (steps - 1), boxes + pictures * (1 + len(COPIES))
    words = [
        f"{pictures:,} pictures x {len(methods)} methods x {masks} masks = {pictures * len(methods) * masks:,} passes",
        f"maps of {len(COPIES)} copies with random weights",
        *([f"boxes of {boxes:,} pictures"] if boxes else []),
    ]
    for method in methods:
        if method.costly:
            passes = f"{method.passes:,}" if isinstance(method.passes, int) else "many"
            words.append(f"{method.name}: {passes} passes for each of {maps:,} maps")
    return "; ".join(words)


def _of_what(network: Network, how: str) -> str:
    if network.labels is None:
        return "of the whole output: the network has no labels"
    boxes = f"of the true class for boxes (matched by {how}), elsewhere " if how else ""
    return f"{boxes}of the class that comes first for curves and sanity"


def _methods(given: Methods | None, seed: int) -> list[Method]:
    """The methods, each once, and the control, which comes last whether it was named or not."""
    methods = methods_or_control([one for one in (usual() if given is None else given) if one != RANDOM], seed)
    called = [method.name for method in methods]
    if not methods or len(set(called)) < len(called):
        raise BadChoice(f"name one or more methods, each once (there are: {', '.join(names())}); got {called}")
    return [*methods, *methods_or_control([RANDOM], seed)]


def _shared(progress: Progress, *sizes: int) -> list[Progress]:
    """A progress for each part of the work; their sizes are about as long as they take."""
    total = sum(sizes)

    def of(start: int, size: int) -> Progress:
        return lambda done, whole: progress(start + size * done // max(whole, 1), total)

    return [of(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def _row(one: Measured, compared: Comparison) -> dict[str, Any]:
    row: dict[str, Any] = {"method": one.method}
    for what in MEASURES:
        found = compared.alone.get((what, one.method))
        row[what] = found.mean if found else None
        row |= {f"{what}_low": found.low if found else None, f"{what}_high": found.high if found else None}
    return row | {key: getattr(one, key) for key in ("sanity_last", "sanity_all", "x_forward", "same_as")}


CHOSEN, UNWANTED = COLORS[:2]


def draw(found: Figures) -> Figure:
    rows, names = found.rows, [key for key in PANELS if any(row[key] is not None for row in found.rows)]
    words = textwrap.wrap(found.details["recommendation"][0], WIDTH)
    title = f"{rows[0]['net']} on {rows[0]['images']} pictures of {found.settings['data']}: which map to trust"
    figure = sheet(2.45 * len(names) + 1.4, 0.42 * len(rows) + 1.9 + 0.22 * (len(words) + 1), title)
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for panel, name in zip(panels, names, strict=True):
        _bars(panel, rows, name)
    panels[0].set_yticks(range(len(rows)), [row["method"] for row in rows])
    for label, row in zip(panels[0].get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row["verdict"] == "recommended" else "normal")
    panels[0].invert_yaxis()
    for panel in panels[1:]:
        panel.tick_params(left=False)
    figure.supxlabel("\n".join([KEY, *words]), fontsize="small", ha="left", x=0.01)
    return figure


def _bars(panel: Axes, rows: Rows, name: str) -> None:
    at = [place for place, row in enumerate(rows) if row[name] is not None]
    own = [rows[place] for place in at]
    values = [row[name] for row in own]
    bars = panel.barh(at, values, color=[_color(row) for row in own], height=0.7)
    lows, highs = ([row.get(f"{name}_{end}", row[name]) for row in own] for end in ("low", "high"))
    if lows != values:
        errors = np.abs(np.array([lows, highs]) - values)
        panel.errorbar(values, at, xerr=errors, fmt="none", ecolor="#333333", elinewidth=1, capsize=2.5)
    if name.startswith("sanity"):
        panel.axvline(UNCHANGED, color=UNWANTED, linestyle=":", linewidth=1)
        panel.set_xlim(min(-0.15, *values), 1)
        panel.axvline(0, color="#333333", linewidth=0.6)
    control = [row[name] for row in own if row["method"] == RANDOM]
    if control and name in MEASURES:
        panel.axvline(control[0], color=GRAY, linestyle="--", linewidth=1)  # what no information reaches
    edge = max([*highs, *values])
    if not name.startswith("sanity"):
        panel.set_xlim(0, 1.32 * edge)
    for bar, value, high in zip(bars, values, highs, strict=True):
        panel.annotate(
            f"{value:.2f}" if name in ("x_forward", "sanity_last", "sanity_all") else f"{value:.3f}",
            (max(high, value, 0), bar.get_y() + bar.get_height() / 2), (4, 0), textcoords="offset points",
            va="center", fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    panel.set_title(PANELS[name], fontsize="medium")
    panel.spines[["top", "right"]].set_visible(False)


def _color(row: Mapping[str, Any]) -> str:
    if row["method"] == RANDOM:
        return CONTROL
    return CHOSEN if row["verdict"] == "recommended" else UNWANTED if row["verdict"].startswith("do not") else OTHERS
