"""Cross-validation: every picture is answered by the network that was trained without it, and all answers count.

A network called NAME-fold<K>, one of n, answers the pictures of the K-th n-th of every class: of five, those of
`folds=0-1`, `2-3`, …, so that it was trained on the others. All of them together are one row, of all pictures. Where
each was trained several times, as NAME-seed<N>-fold<K>, the rows of the seeds have another one, of their means."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from fovea.basics import SEED, BadChoice, by_bootstrap, interval, interval_of_means
from fovea.data import FOLDS, DataSet, only_folds, parsed, value_of
from fovea.measures import Figures, Run, mean, measure, seeds
from fovea.measures.runner import Input
from fovea.measures.zoom import Walker, costs_of, walkers_of
from fovea.models.glimpsing import Controlled
from fovea.networks import Network, groups_for

OVER_SEEDS = "means; low and high are Student's 95 % interval over seeds, of changes seed by seed"
FOLD = re.compile(r"(.+)-fold(\d+)")
Row = dict[str, Any]
Folded = dict[str, dict[int, Network]]  # the networks of each name, by their folds


@measure(
    "folds",
    title="Cross-validation",
    about="Cross-validation of networks NAME-fold0, NAME-fold1, …, each measured on the part of the data that it was "
    "not trained on. All pictures count; differences from the first NAME are paired by picture, and it is measured "
    "where they looked.",
    example="--data gtsdb --of 2 --net whole-fold0.safetensors --net whole-fold1.safetensors",
    nets="several",
    needs=("labels",),
    columns=("net", "seeds", "glimpses", "images", "top1", "change", "found_at_?", "macs"),
    interval="top1",
)
def folds(
    run: Run,
    *,
    of: int = 5,
    only: Sequence[int] | None = None,
    glimpses: Sequence[int] | None = None,
    control: Sequence[str] = (),
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """One row per NAME, and number of `glimpses` of those that read some; `of` is how many folds each has, `only`
    which of them count, where not all are trained. `control`
    (random, center) adds rows of networks that go to such places instead of their own. `change` is beside the first
    NAME: its network of the same seed where it has one, else its first. Networks called NAME-seed<N>-fold<K> have a
    row of the means over seeds besides."""
    numbers = sorted(set(range(of) if only is None else only))
    folded, random = _folded(run.networks, of, numbers), _whole(run)
    for name, networks in list(folded.items()):
        if any(one.can("glimpses") for one in networks.values()):
            folded |= {_named(name, how): _controlled(networks, how, seed) for how in control}
    walkers = dict[tuple[str, int | None], list[Walker]]()
    for done, fold in enumerate(numbers, 1):
        part = only_folds(run.data, range(fold * FOLDS // of, (fold + 1) * FOLDS // of), random)
        for key, walker in _answered(run, part, {name: own[fold] for name, own in folded.items()}, glimpses, batch):
            walkers.setdefault(key, []).append(walker)
        run.progress(done, len(numbers))
    if all("top" not in walker.tally.columns for own in walkers.values() for walker in own):
        run.refuse_empty()
    first = _first(walkers)
    rows = [_row(name, own, first(name), run.data.name, seed) for (name, _), own in walkers.items()]
    settings = {
        "folds": f"{of}, each {FOLDS // of} tenths of every class; NAME-fold0 answers the first, and so on",
        **({} if only is None else {"only": f"folds {', '.join(map(str, numbers))}"}),
        "interval": by_bootstrap("top1", seed),
        "change": f"from {rows[0]['net']}, over the same pictures, its interval likewise",
        **({"over_seeds": OVER_SEEDS} if (means := _over_seeds(rows)) else {}),
        "found_at": "share of pictures with boxes where a glimpse of the level has the middle of one in it",
    }
    return run.figures([*rows, *means], settings)


def _whole(run: Run) -> int:
    """The seed of the division into folds, of a set that is given whole: which fold a picture is in depends on all."""
    options = parsed(run.given.data)[1] if isinstance(run.given.data, str) else {}
    some = [key for key in ("split", "labels", "folds", "part", "limit") if key in options]
    if some or run.given.split is not None or run.given.limit is not None:
        out = ", ".join(some) or "split, limit"
        raise BadChoice(f"cross-validation takes the whole set, divided as in training: leave {out} out")
    return value_of("fold_seed=", options.get("fold_seed", "0"), Annotated[int, SEED])  # type: ignore[no-any-return]


def _folded(networks: dict[str, Network], count: int, numbers: Sequence[int]) -> Folded:
    found: Folded = {}
    for called, network in networks.items():
        named = FOLD.fullmatch(called)
        if named is None:
            raise BadChoice(f"cross-validation takes networks called NAME-fold0, NAME-fold1, …; got {called!r}")
        found.setdefault(named[1], {})[int(named[2])] = network
    if count not in (2, 5, 10):
        raise BadChoice(f"the number of folds is 2, 5 or 10; got of={count}")
    if not numbers or not 0 <= numbers[0] <= numbers[-1] < count:
        raise BadChoice(f"of {count} folds, only={','.join(map(str, numbers))} names some that are none (from 0)")
    for name, own in found.items():
        odd = sorted({*numbers} ^ {*own})
        if odd:
            why = f"{name}-fold{odd[0]} is {'missing' if odd[0] in numbers else 'one too many'}"
            raise BadChoice(f"of {count} folds, all are given, numbered from 0 (or those of --only): {why}")
    return found


def _controlled(networks: dict[int, Network], how: str, seed: int) -> dict[int, Network]:
    odd = next((one for one in networks.values() if not one.can("controls")), None)
    if odd is not None:
        raise BadChoice(f"{odd.name or 'this network'} does not choose where to look: --control {how} is for TNets")
    return {
        fold: replace(one, module=cast(Controlled, one.module).controlled(how, seed)) for fold, one in networks.items()
    }


def _answered(
    run: Run, part: DataSet, networks: dict[str, Network], glimpses: Sequence[int] | None, batch: int
) -> Iterator[tuple[tuple[str, int | None], Walker]]:
    """The part, answered by each network with each number of glimpses."""
    walkers = [walker for name, one in networks.items() for walker in walkers_of(name, one, glimpses, (), ("levels",))]
    for groups in groups_for(list(networks.values()), part, batch):
        run.skipped += groups[0].skipped
        if groups[0].batch is not None:
            samples = groups[0].of(part.samples)
            taken = dict(zip(networks, map(Input.of, groups), strict=True))
            for walker in walkers:
                walker.take(samples, taken[walker.name], run.data, {})
    for walker in walkers:
        yield (walker.name, walker.route.glimpses if walker.route else None), walker


def _named(name: str, how: str) -> str:
    """Of a network that goes where it is told; a seed stays at the end."""
    called, seed = seeds.of(name)
    return f"{called}, {how}" + (f"-seed{seed}" if seed else "")


def _first(walkers: Mapping[tuple[str, int | None], Sequence[Walker]]) -> Callable[[str], NDArray[np.bool_]]:
    """What changes of a network are from: the first NAME's answers, of the same seed where there are some."""
    (first, glimpses), *_ = walkers
    known = {seeds.of(name): _hits(own) for (name, count), own in walkers.items() if count == glimpses}
    called = seeds.of(first)[0]
    return lambda name: known.get((called, seeds.of(name)[1]), known[seeds.of(first)])


def _hits(walkers: Sequence[Walker]) -> NDArray[np.bool_]:
    return np.concatenate([walker.tally["top"] for walker in walkers if "top" in walker.tally.columns]) < 1


def _row(name: str, walkers: Sequence[Walker], first: NDArray[np.bool_], data: str, seed: int) -> Row:
    hits, one = _hits(walkers), walkers[0]
    low, high = interval(hits, seed=seed)
    row: Row = {"net": name, "data": data, "glimpses": one.route.glimpses if one.route else None, "images": len(hits)}
    row |= {"top1": float(hits.mean()), "low": low, "high": high}
    if len(hits) == len(first):
        (below,), (above,) = interval_of_means((hits.astype(float) - first)[:, None], seed)
        row |= {"change": float(hits.mean() - first.mean()), "change_low": below, "change_high": above}
    keys = dict.fromkeys(str(key) for walker in walkers for key in walker.tally.columns)
    for key in [key for key in keys if key.startswith("found_at_")]:
        found = np.concatenate([walker.tally[key] for walker in walkers])
        if mean(found) is None:
            continue  # nothing has boxes
        (below,), (above,) = interval_of_means(found[:, None], seed)
        row |= {key: mean(found), f"{key}_low": below, f"{key}_high": above}
    return row | costs_of(one, 1, False)


def _over_seeds(rows: Sequence[Row]) -> list[Row]:
    """The means of networks that differ in their seeds, for each number of glimpses."""
    groups: dict[tuple[str, int | None], dict[str, Row]] = {}
    for row in rows:
        name, seed = seeds.of(row["net"])
        plain = {key: value for key, value in row.items() if not key.endswith(("low", "high", "change"))}
        groups.setdefault((name, row["glimpses"]), {})[seed] = plain
    base, means = next(iter(groups.values())), []
    for (name, _), own in groups.items():
        if len(own) > 1:
            sure = [key for key in next(iter(own.values())) if key == "top1" or key.startswith("found_at_")]
            row = seeds.mean_row(name, own, sure, None if own is base else base)
            means.append({key.removeprefix("top1_"): value for key, value in row.items()})
    return means
