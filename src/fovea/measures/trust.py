"""Which map should I trust? Localisation, insertion and deletion, sanity and time of every method, on one's own data.

Maps are of the true class where boxes are drawn, of the class that comes first elsewhere; of a network without labels,
an embedding, they are of the whole output, and the curves follow the cosine to the whole picture's embedding.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadPicture, FoveaError
from fovea.heatmaps.explain import explain
from fovea.heatmaps.methods import Method, usual
from fovea.heatmaps.methods import names as known
from fovea.heatmaps.sanity import COPIES, last_to_run, randomized, rank_correlation
from fovea.measures.boxes import THRESHOLDS, max_box_acc
from fovea.measures.curve_kinds import KINDS, filling
from fovea.measures.curves import area_under, best, places
from fovea.measures.figures import Figures
from fovea.measures.localized import THRESHOLD, localised
from fovea.measures.random_control import RANDOM, method_or_control
from fovea.measures.registry import measure
from fovea.measures.runner import Run
from fovea.measures.timing import Call, forward, seconds
from fovea.measures.timing import compare as compare_times
from fovea.measures.trust_figure import draw as draw
from fovea.measures.trust_maps import Looking, Part, Progress, Score, mapped, parts_of, same_maps
from fovea.measures.trust_rules import AS_QUICK, MARGIN, UNCHANGED, Comparison, Measured, advise, compare
from fovea.networks.network import Network, as_found

CURVES = ("insertion", "deletion")
BATCH = {"cpu": 4, "cuda": 64}  # masked pictures at a time: what a processor's memory is quickest with
SLOW = 20.0  # bare forwards from which on one measurement of a time is enough
ROUNDS = 7
GOOD = "good maps: localization and insertion high, deletion low, sanity near 0; 95 % intervals"
RULES = {
    "sanity": "rank correlation with the maps of 2 copies, the last or all layers drawn anew; near 0 is good",
    "x_forward": "one picture, median of ratios to the bare forwards before and after",
    "better": f"by at least {MARGIN}, and the 95 % interval of the paired difference (bootstrap over the pictures) is "
    "above 0",
    "left_out": f"rank correlation of at least {UNCHANGED} with all layers random; worse than random maps on any "
    "measure; neither insertion nor deletion better than theirs",
    "recommended": "beaten on the fewest measures by the methods left; of several, one whose maps of a class change "
    f"with the last layer (below {UNCHANGED}), then the quickest (times within {AS_QUICK - 1:.0%} are equal), then the "
    "first named",
}


@measure(
    "trust",
    title="Which map to trust",
    about="Which map should I trust? Every method's localization, insertion, deletion, sanity and time, and a verdict.",
    needs=("labels",),
    fit="squash",
    columns=("method", "gt_known", "insertion", "deletion", "sanity_last", "sanity_all", "x_forward", "verdict"),
    figure="draw",
)
def trust(
    run: Run,
    *,
    method: Sequence[str | Method] | None = None,
    curve_pictures: int = 32,
    steps: int = 8,
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """One row per method with its verdict, the random control among them; the recommendation is in `details`.

    Every method of fovea's if none is named; one that the network's head does not allow is told in `details`, with its
    reason. `curve_pictures`, spread over the data, are those of insertion, deletion and sanity.
    """
    network, data = run.network, run.data
    looking = Looking(network, _named(method, seed))
    if curve_pictures < 2 or steps < 2 or batch < 1:
        given = f"{curve_pictures}, {steps} and {batch}"
        raise BadChoice(f"curves take at least 2 pictures and 2 steps, a batch at least 1 picture; got {given}")
    with_boxes, few = data.with_boxes(), data.first(curve_pictures)
    kinds, masked = len(looking.methods), 2 * (steps - 1)
    on_boxes, on_drawing, on_curves, on_copies, on_times = _shared(
        run.progress,
        len(with_boxes),
        len(with_boxes) * kinds,
        len(few) * kinds * masked,
        len(few) * len(COPIES),
        2 * kinds * ROUNDS,
    )
    skipped: dict[str, str] = {}
    maps, how = mapped(looking, with_boxes, batch, skipped, on_boxes)
    drawn = localised({name: maps[name] for name in looking.names}, on_drawing, run.workers) if maps else {}
    parts = list(parts_of(looking, few, batch, skipped))
    count = sum(map(len, parts))
    if not parts:
        raise BadPicture(f"no picture of {data.name} could be measured: {[*skipped.values(), 'it is empty'][0]}")
    if count < 2:
        raise BadChoice(
            f"one picture tells nothing about others: give two or more; {data.name} has {count} that counts"
        )
    areas = _areas(looking, parts, steps, on_curves)
    alike = _sanity(looking, parts, on_copies)
    times = _times(looking, parts[0].tensors[:1], on_times)
    same = same_maps(looking, parts)
    chosen = {name: max_box_acc(each.largest)[1] for name, each in drawn.items()}  # the threshold's place
    measured = []
    for name in looking.names:
        pictures = {kind: areas[name, kind] for kind in CURVES}
        if drawn:
            pictures["gt_known"] = (drawn[name].largest[:, chosen[name]] >= 0.5).astype(np.float64)
        last, every = (_mean(alike[name, what]) for what in ("logits", "all layers"))
        measured.append(Measured(name, pictures, last, every, times[name], same[name]))
    compared = compare(measured, seed)
    advice = advise(measured, compared, network.labels is not None)
    about = {
        "net": network.name or "network",
        "images": len(next(iter(drawn.values())).largest) if drawn else count,
        "curve_images": count,
    }
    rows = [
        {
            **about,
            "method": one.method,
            **_row(one, compared),
            "threshold": float(THRESHOLDS[chosen[one.method]]) if drawn else None,
            "verdict": advice.verdicts[one.method],
        }
        for one in measured
    ]
    run.skipped += skipped.items()
    random = f"uniform values in the cells, seed {seed}"
    settings = {**_settings(network, how, bool(drawn), count, steps), "random": random}
    return run.figures(
        rows,
        settings,
        details={
            "recommended": advice.recommended,
            "recommendation": list(advice.sentences),
            "refused": looking.refused,
        },
        notes=(GOOD, *advice.sentences),
        warnings=[f"{name} gives no maps of this network: {reason}" for name, reason in looking.refused.items()],
    )


def _settings(network: Network, how: str, boxes: bool, count: int, steps: int) -> dict[str, Any]:
    """By which rules it was measured."""
    return {
        "localisation": f"IoU of at least 0.5 with any true box; threshold: {THRESHOLD}" if boxes else "no boxes",
        "maps": _of_what(network, how),
        "curves": f"{count} pictures spread over the data, {steps} steps, the area under each",
        "followed": "cosine to the whole picture's embedding" if network.labels is None else "probability of the class",
        **{kind: str(KINDS[kind]).partition("; ")[2] for kind in CURVES},
        **RULES,
    }


def _named(methods: Sequence[str | Method] | None, seed: int) -> list[Method]:
    """The methods, each once, and the control, which comes last whether it was named or not."""
    given = [one for one in (usual() if methods is None else methods) if one != RANDOM]
    found = [method_or_control(one, seed) for one in given]
    names = [one.name for one in found]
    if not found or len(set(names)) < len(names):
        raise BadChoice(f"name one or more methods, each once (there are: {', '.join(known())}); got {names}")
    return [*found, method_or_control(RANDOM, seed)]


def _shared(progress: Progress, *sizes: int) -> list[Progress]:
    """A progress for each part of the work; their sizes are about as long as they take."""
    total = sum(sizes)

    def of(start: int, size: int) -> Progress:
        return lambda done, whole: progress(start + size * done // max(whole, 1), total)

    return [of(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def _areas(
    looking: Looking, parts: Sequence[Part], steps: int, progress: Progress
) -> dict[tuple[str, str], NDArray[np.float64]]:
    """The area under every picture's curve, by method and kind."""
    shares = np.linspace(0, 1, steps + 1)
    found: dict[tuple[str, str], list[NDArray[np.float64]]] = {
        (name, kind): [] for name in looking.names for kind in CURVES
    }
    done, total = 0, sum(map(len, parts)) * len(found)
    for part in parts:
        score = part.score()
        empty = torch.zeros_like(part.tensors[:, :1], dtype=torch.bool)  # N,1,H,W
        orders = {name: places(part.maps[name], *part.tensors.shape[2:]) for name in looking.names}
        everything = under_masks(looking.network, part.tensors, ~empty, torch.zeros(()), score)
        for kind in CURVES:
            keeps, fill = KINDS[kind].keeps, filling(KINDS[kind].fill, looking.network, part.tensors)
            nothing = under_masks(looking.network, part.tensors, empty, fill, score)
            first, last = (nothing, everything) if keeps else (everything, nothing)
            for name, order in orders.items():
                top = best(order, shares[1:-1])
                inner = under_masks(looking.network, part.tensors, top if keeps else ~top, fill, score)
                curves = np.concatenate([first, inner, last], 1)  # N,S
                found[name, kind].append(np.array([area_under(one, shares) for one in curves]))
                done += len(part)
                progress(done, total)
    return {key: np.concatenate(each) for key, each in found.items()}


def under_masks(network: Network, tensors: Tensor, masks: Tensor, fill: Tensor, score: Score) -> NDArray[np.float64]:
    """The score (N,S) of every picture under every mask (N,S,H,W), which is true where a picture is shown."""
    (count, steps), batch = masks.shape[:2], BATCH.get(tensors.device.type, BATCH["cpu"])
    flat, fill = masks.flatten(0, 1).unsqueeze(1), fill.to(tensors).expand_as(tensors)  # N*S,1,H,W  N,C,H,W
    scores = []
    with as_found(network), torch.no_grad():
        for start in range(0, count * steps, batch):
            own = torch.arange(start, min(start + batch, count * steps), device=tensors.device) // steps
            output = network(torch.where(flat[start : start + batch], tensors[own], fill[own]))
            scores.append(score(output, own).double().cpu().numpy())
    return np.concatenate(scores).reshape(count, steps)


def _sanity(looking: Looking, parts: Sequence[Part], progress: Progress) -> dict[tuple[str, str], list[float]]:
    """How alike every method's maps are to those of copies with random weights, by method and what was randomised."""
    network = looking.network
    last = last_to_run(network, parts[0].tensors[:1])
    found: dict[tuple[str, str], list[float]] = {(name, what): [] for name in looking.names for what, _ in COPIES}
    done, total = 0, sum(map(len, parts)) * len(COPIES)
    for what, seed in COPIES:
        other = replace(network, module=randomized(network.module, what, seed, last), layer=_layer(network), _cuts={})
        copied = Looking(other, looking.methods)
        for part in parts:
            try:
                seen, _ = copied(part.tensors, part.shown, part.target)
            except FoveaError:  # random weights give nothing to look at
                seen = {}
            for name, maps in seen.items():
                true = part.maps[name].float().cpu().numpy()
                found[name, what] += [rank_correlation(true[i], maps.map(i)) for i in range(len(part))]
            done += len(part)
            progress(done, total)
    return found


def _layer(network: Network) -> str | None:
    """The name of the layer that is looked at, which a copy has too."""
    if isinstance(network.layer, nn.Module):
        return next(str(name) for name, one in network.module.named_modules() if one is network.layer)
    return network.layer


def _times(looking: Looking, picture: Tensor, progress: Progress) -> dict[str, float]:
    """Every method's time for one picture, in bare forwards of the same minute."""
    total, done = len(looking.methods) * ROUNDS * 2, itertools.count(1)

    def waited(call: Call) -> None:
        call()
        if picture.device.type == "cuda":
            torch.cuda.synchronize(picture.device)
        progress(min(next(done), total), total)

    bare_call: Call = partial(waited, forward(looking.network, picture))
    calls: dict[tuple[str, str], Call] = {
        ("", one.name): partial(waited, partial(explain, looking.network, picture, one, looking.target))
        for one in looking.methods
    }
    bare = min(seconds(bare_call) for _ in range(3))
    once = {key: seconds(call) / bare for key, call in calls.items()}
    quick = {key: call for key, call in calls.items() if once[key] <= SLOW}  # one that iterates is known well enough
    often = {key: ratio for key, (ratio, _) in compare_times(bare_call, quick, ROUNDS).items()}
    progress(total, total)
    return {one.name: (once | often)["", one.name] for one in looking.methods}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _row(one: Measured, compared: Comparison) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for what in ("gt_known", *CURVES):
        own = compared.alone.get((what, one.method))
        row |= {
            what: own.mean if own else None,
            f"{what}_low": own.low if own else None,
            f"{what}_high": own.high if own else None,
        }
    return row | {
        "sanity_last": one.sanity_last,
        "sanity_all": one.sanity_all,
        "x_forward": one.x_forward,
        "same_as": one.same_as,
    }


def _of_what(network: Network, how: str) -> str:
    if network.labels is None:
        return "of the whole output: the network has no labels"
    boxes = f"of the true class for boxes (matched by {how}), " if how else ""
    return f"{boxes}of the class that comes first for curves and sanity"
