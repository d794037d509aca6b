"""Which map to trust, decided picture by picture and told in words.

A method is left out when its maps still resemble those of random weights, when it is worse than random maps on any
measure, or when neither insertion nor deletion is better than theirs; for a classifier also when its maps are of no
class, by what it declares or since a random last layer leaves them nearly as they are.

One is better than another on a measure where the 95 % interval of their paired difference over the pictures lies above
0, and the difference is worth a word. Of those left, the one that is beaten on the fewest measures is recommended, of
several one whose maps change the most with the last layer, then the quickest. Those that are still level are all
named, in whatever order they were given: either will do. Nothing is added up into one score."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from fovea.basics import interval_of_means
from fovea.heatmaps import DEFAULT
from fovea.measures.random_control import RANDOM

MEASURES = {"gt_known": 1, "insertion": 1, "deletion": -1}  # whether more is better, or less
WORDS = {"gt_known": "localization", "insertion": "insertion", "deletion": "deletion"}
FAITHFUL = ("insertion", "deletion")  # what the answer hangs on; an object may lie elsewhere
UNCHANGED = 0.5  # rank correlation with a random network's maps from which on a map is not about the network
OF_NO_CLASS = 0.9  # likewise with the maps of a network whose last layer alone is random
MARGIN = 0.01  # a smaller difference may be certain, and is of no use
AS_SANE = 0.25  # rank correlations that differ by less are not told apart
AS_QUICK = 1.25  # times that differ by less are not told apart
RULES = {
    "sanity": "rank correlation with the maps of 2 copies, the last or all layers drawn anew; near 0 is good",
    "x_forward": "one picture, median of ratios to the bare forwards before and after",
    "better": f"by at least {MARGIN}, and the 95 % interval of the paired difference (bootstrap over the pictures) is "
    "above 0",
    "left_out": f"rank correlation of at least {UNCHANGED} with all layers random; worse than random maps on any "
    "measure; neither insertion nor deletion better than theirs; of a classifier, maps that are the same for every "
    f"class (so declared), or have a rank correlation of at least {OF_NO_CLASS} with the last layer random",
    "recommended": "beaten on the fewest measures by the methods left; of several, one whose maps of a class change "
    f"the most with the last layer (rank correlations within {AS_SANE} are equal), then the quickest (times within "
    f"{AS_QUICK - 1:.0%} are equal); of those still level either will do, and all are named in `level`",
}


@dataclass(frozen=True)
class Measured:
    """What one method reached, picture by picture; what could not be measured is not there."""

    method: str
    pictures: Mapping[str, NDArray[np.float64]]  # of gt_known, insertion, deletion: one value a picture
    sanity_last: float | None = None
    sanity_all: float | None = None
    x_forward: float | None = None
    same_as: str | None = None  # the method named before it that gives the same maps
    oblivious: bool = False  # whatever the class, the map is the same

    def is_same_as(self, other: "Measured") -> bool:
        return (self.same_as or self.method) == (other.same_as or other.method)


Several = Sequence[Measured]


@dataclass(frozen=True)
class Estimate:
    """A mean over the pictures and its 95 % interval; of a difference, above 0 is better whatever the measure."""

    mean: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        return self.low > 0 and self.mean >= MARGIN

    @property
    def worse(self) -> bool:
        return self.high < 0 and self.mean <= -MARGIN

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Comparison:
    """Every method on every measure, alone and against each other on the same pictures."""

    alone: Mapping[tuple[str, str], Estimate]  # measure, method
    against: Mapping[tuple[str, str, str], Estimate]  # measure, method, the other: above 0 where the first is better
    measures: tuple[str, ...]

    def beaten_on(self, one: str, others: Sequence[str]) -> list[str]:
        """The measures on which another is better than this one."""
        return [what for what in self.measures if any(self.against[what, one, other].worse for other in others)]


@dataclass(frozen=True)
class Advice:
    """`level` are all that will do as well as the recommended one, itself among them, sorted."""

    recommended: str | None
    level: tuple[str, ...]
    sentences: tuple[str, ...]
    verdicts: Mapping[str, str]

    def __str__(self) -> str:
        return " ".join(self.sentences)


def compare(found: Sequence[Measured], seed: int = 0) -> Comparison:
    """By a bootstrap over the pictures; two methods are resampled together, so that hard pictures are hard for both."""
    alone: dict[tuple[str, str], Estimate] = {}
    against: dict[tuple[str, str, str], Estimate] = {}
    names = [one.method for one in found]
    measures = tuple(what for what in MEASURES if all(what in one.pictures for one in found))
    for what in measures:
        values = {one.method: one.pictures[what] for one in found}
        pairs = list(permutations(names, 2))
        columns = [values[name] for name in names]
        columns += [MEASURES[what] * (values[one] - values[other]) for one, other in pairs]
        stacked = np.stack(columns, 1).astype(np.float64)  # pictures, names and pairs
        estimates = list(map(Estimate, stacked.mean(0).tolist(), *interval_of_means(stacked, seed)))
        alone |= {(what, name): own for name, own in zip(names, estimates, strict=False)}
        against |= {(what, *pair): own for pair, own in zip(pairs, estimates[len(names) :], strict=True)}
    return Comparison(alone, against, measures)


def advise(found: Sequence[Measured], compared: Comparison, of_classes: bool = True) -> Advice:
    """The recommendation with its reasons; `found` are methods, in any order, the control among them. Maps `of_classes`
    should change with the last layer, which tells equals apart, and are left out where they are of no class; those of
    an embedding need not."""
    methods = [one for one in found if one.method != RANDOM]
    reasons = {method.method: reason for method in methods if (reason := _reason_against(method, compared, of_classes))}
    left = [method for method in methods if method.method not in reasons]
    verdicts = {name: f"do not use: {reason}" for name, reason in reasons.items()}
    verdicts |= {one.method: "the control" for one in found if one.method == RANDOM}
    unwanted = dict[str, str]()
    for reason in reasons.values():
        unwanted[reason] = f"Do not use {_listed([name for name in reasons if reasons[name] == reason])}: {reason}."
    if not left:
        said = ["None of these maps can be trusted on this network and these pictures.", *unwanted.values()]
        return Advice(None, (), (*said, *_control(compared)), verdicts)
    top = _least_beaten(left, compared)
    sanity = {one.method: (one.sanity_last if of_classes else one.sanity_all) or 0.0 for one in top}
    sane = [one for one in top if sanity[one.method] <= max(min(sanity.values()), 0.0) + AS_SANE]
    quick = [one for one in sane if _time(one) <= AS_QUICK * min(map(_time, sane))]
    chosen = min(quick, key=lambda one: (one.method != DEFAULT, _time(one), one.method))
    others = sorted((one for one in left if one is not chosen), key=lambda one: one.method)
    tied = [one for one in others if not one.is_same_as(chosen) and not any(_told_apart(chosen, one, compared))]
    level = tuple(sorted([chosen.method, *(one.method for one in tied if one in quick)]))
    verdicts |= {one.method: _verdict(one, chosen, compared) for one in left}
    verdicts |= {name: "recommended" if name == chosen.method else "as good: either will do" for name in level}
    said = [f"Use {' or '.join(level)}: {'; '.join(_praise(chosen, left, compared))}."]
    said += [*_ties(chosen, others, tied, (top, sane, quick)), *_rest(chosen, others, compared)]
    aside = [f"{one.method} ({one.sanity_last:.2f})" for one in left if (one.sanity_last or 0) >= UNCHANGED]
    if aside and of_classes:
        said.append(f"Still alike with a random last layer, and so about more than the class: {_listed(aside)}.")
    said += [*unwanted.values(), *_control(compared)]
    return Advice(chosen.method, level, tuple(said), verdicts)


def _reason_against(one: Measured, compared: Comparison, of_classes: bool) -> str | None:
    if one.sanity_all is not None and one.sanity_all >= UNCHANGED:
        return f"its maps still resemble those of random weights (rank correlation {one.sanity_all:.2f})"
    control = {what: compared.against[what, one.method, RANDOM] for what in compared.measures}
    worse = [_difference(what, difference) for what, difference in control.items() if difference.worse]
    if worse:
        return f"it is worse than random maps: {', '.join(worse)}"
    faithful = {what: control[what] for what in FAITHFUL if what in control}
    if faithful and not any(difference.better for difference in faithful.values()):
        told = ", ".join(_difference(*each) for each in faithful.items())
        return f"the answer hangs on its pixels no more than on random ones: {told}"
    return _of_no_class(one) if of_classes else None


def _of_no_class(one: Measured) -> str | None:
    if one.oblivious:
        return "its maps are the same for every class, so they say nothing of this one"
    if one.sanity_last is not None and one.sanity_last >= OF_NO_CLASS:
        return f"a random last layer leaves its maps nearly as they are (rank correlation {one.sanity_last:.2f})"
    return None


def _least_beaten(left: Sequence[Measured], compared: Comparison) -> list[Measured]:
    """Those that are beaten on the fewest measures, by whichever of the others."""
    names = [one.method for one in left]
    beaten = {name: len(compared.beaten_on(name, [other for other in names if other != name])) for name in names}
    return [one for one in left if beaten[one.method] == min(beaten.values())]


def _time(one: Measured) -> float:
    return np.inf if one.x_forward is None else one.x_forward


def _praise(chosen: Measured, left: Sequence[Measured], compared: Comparison) -> Iterator[str]:
    """How it stands on every measure, the next best beside it, and its time."""
    others = [one.method for one in left if not one.is_same_as(chosen)]
    for what in compared.measures:
        own, against = compared.alone[what, chosen.method], {}
        for name in others:
            against[name] = compared.against[what, chosen.method, name]
        if not against:
            yield f"{WORDS[what]} {own}"
            continue
        next_best = min(against, key=lambda name: against[name].mean)
        place = "behind" if against[next_best].worse else "better than" if against[next_best].better else "as good as"
        yield f"{WORDS[what]} {own}, {place} {next_best}'s {compared.alone[what, next_best].mean:.3f}"
    if chosen.sanity_all is not None:
        yield f"its maps change with the weights (rank correlation {chosen.sanity_all:.2f} when all are random)"
    if chosen.x_forward is not None:
        yield f"{chosen.x_forward:.2f} x the time of a bare forward"


def _ties(chosen: Measured, others: Several, tied: Several, kept: Sequence[Several]) -> Iterator[str]:
    """Those that are as good on every measure, and what settled it: `kept` are those beaten least often, of these those
    whose maps change the most with the weights, and of these the quickest."""
    top, sane, quick = kept
    same = [other.method for other in others if other.is_same_as(chosen)]
    if same:
        yield f"{_listed(same)} {'gives' if len(same) == 1 else 'give'} the same maps here."
    level = [chosen, *(one for one in tied if one in quick)]
    if len(level) > 1:
        yield f"{_timed(level)} are level on every measure, in sanity and in time: either will do."
    settled = {
        "on every measure, and slower": [one for one in tied if one in sane and one not in quick],
        "on every measure, but its maps change less with the weights": [
            one for one in tied if one in top and one not in sane
        ],
    }
    for words, methods in settled.items():
        yield from (f"{_timed([one])} is level with it {words}." for one in methods)
    rest = [one for one in tied if one not in top]
    if rest:
        yield f"Not told apart from it, but beaten by others on more measures: {_timed(rest)}."


def _timed(methods: Sequence[Measured]) -> str:
    told = sorted(methods, key=lambda method: method.method)
    return _listed([f"{method.method} ({_time(method):.2f} x)" for method in told])


def _rest(chosen: Measured, others: Sequence[Measured], compared: Comparison) -> Iterator[str]:
    """Those that are better on one measure and worse on another, then those that are only worse."""
    behind = []
    for other in others:
        ahead, back = _told_apart(chosen, other, compared)
        if back:
            but = f", but the worse {_differences(other, chosen, ahead, compared)}" if ahead else ""
            yield f"{other.method} has the better {_differences(other, chosen, back, compared)}{but}."
        elif ahead:
            behind.append(f"{other.method} ({_differences(other, chosen, ahead, compared)})")
    if behind:
        yield f"Behind it: {'; '.join(behind)}."


def _differences(one: Measured, chosen: Measured, measures: Sequence[str], compared: Comparison) -> str:
    return ", ".join(_difference(what, compared.against[what, one.method, chosen.method]) for what in measures)


def _told_apart(chosen: Measured, one: Measured, compared: Comparison) -> tuple[list[str], list[str]]:
    """The measures on which the chosen method is better than this one, and on which it is worse."""
    against = {what: compared.against[what, chosen.method, one.method] for what in compared.measures}
    return [what for what in against if against[what].better], [what for what in against if against[what].worse]


def _verdict(one: Measured, chosen: Measured, compared: Comparison) -> str:
    if one is chosen:
        return "recommended"
    if one.is_same_as(chosen):
        return f"the same maps as {chosen.method}"
    ahead, back = _told_apart(chosen, one, compared)
    if not ahead and not back:
        return "as good, slower" if _time(one) > AS_QUICK * _time(chosen) else "as good"
    parts = [f"better {', '.join(WORDS[what] for what in back)}"] if back else []
    return "; ".join(parts + ([f"worse {', '.join(WORDS[what] for what in ahead)}"] if ahead else []))


def _control(compared: Comparison) -> Iterator[str]:
    told = [f"{WORDS[what]} {compared.alone[what, RANDOM].mean:.3f}" for what in compared.measures]
    if told:
        yield f"Random maps reach {', '.join(told)}."


def _difference(what: str, found: Estimate) -> str:
    """As the measure counts, so that a worse deletion is a higher one."""
    mean, low, high = (MEASURES[what] * one for one in (found.mean, found.low, found.high))
    return f"{WORDS[what]} {mean:+.3f} ({min(low, high):+.3f} to {max(low, high):+.3f})"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
