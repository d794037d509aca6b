"""How long a classifier takes with localised patches, against full pictures: in one run, turn by turn."""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice
from fovea.data import DataSet
from fovea.measures.figures import Figures
from fovea.measures.timing import now
from fovea.networks.cost import macs
from fovea.networks.loading import load
from fovea.networks.network import Network, as_found
from fovea.networks.stream import batches, prepared
from fovea.patches.classify import judged, patches
from fovea.patches.lip import for_test
from fovea.patches.scales import Choice, look


def measure(
    localizer: Network,
    classifiers: Sequence[str],
    data: DataSet,
    settings: Choice = for_test,
    batch: int = 16,
    rounds: int = 7,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Figures:
    """A row a classifier, with random weights: time and multiplications of both ways, the localiser's own included.

    Pictures are decoded beforehand. Every round times the full pictures, then the localiser, LIP and the patches.
    """
    if rounds < 1 or not classifiers:
        raise BadChoice(f"name a classifier and at least one round; got {list(classifiers)} and {rounds}")
    skipped: list[tuple[str, str]] = []
    groups = [prepared(localizer, *one)[0] for one in batches(data, batch, skipped)]
    if not groups:
        raise BadChoice(f"{data.name} has no picture that could be read")
    rows, total = [], len(classifiers) * (rounds + 1)
    for number, name in enumerate(classifiers):
        judge, done = load(name, pretrained=False), number * (rounds + 1)
        judge.module.to(localizer.device)
        times = []
        for turn in range(rounds + 1):  # the first warms up
            times.append(_turn(localizer, judge, groups, settings))
            progress(done + turn + 1, total)
        about = {"net": name, "localizer": localizer.name, "data": data.name, "batch": batch}
        rows.append(about | _row(localizer, judge, groups, settings, times[1:]))
    about_all = {
        "threads": torch.get_num_threads(),
        "device": localizer.device.type,
        "rounds": rounds,
        "input": "the localiser's, for both ways",
        "lip": _words(localizer, groups[0], settings),
        "ratio": "median over the rounds of (localiser + LIP + patches) / full pictures, of wall-clock time",
        "ratio_patches": "the same without the localiser and LIP",
        "macs_ratio": "multiplications of the patches / of full pictures; macs_ratio_all with the localiser's",
    }
    return Figures("bench patches", about_all, rows, skipped)


def _words(localizer: Network, batch: Tensor, settings: Choice) -> str:
    """LIP's settings at every scale."""
    found = [(scale.side, settings(scale.side, batch.shape[2:])) for scale in look(localizer, batch[:1]).scales]
    return "; ".join(f"{side}: K {one.count}, T {one.overlap:g}, P {one.share:g}" for side, one in found)


Times = tuple[float, float, float]  # full pictures, localising, patches


def _row(
    localizer: Network, judge: Network, groups: Sequence[Tensor], settings: Choice, times: Sequence[Times]
) -> dict[str, Any]:
    count, size = sum(map(len, groups)), groups[0].shape[2:]
    sides: Counter[int] = Counter()
    for one in groups:
        for part in patches(look(localizer, one), settings, size):
            sides[part.side] += len(part.owner)
    full, own = macs(judge, groups[0][:1]), macs(localizer, groups[0][:1])
    small = sum(number * macs(judge, groups[0][:1, :, :side, :side]) for side, number in sides.items()) / count
    middle = [median(one[i] for one in times) / count * 1e3 for i in range(3)]
    return {
        "pictures": count,
        "patches": round(sides.total() / count, 2),
        "ms_full": round(middle[0], 2),
        "ms_localizer": round(middle[1], 2),
        "ms_patches": round(middle[2], 2),
        "ratio": round(median((found + read) / full for full, found, read in times), 3),
        "ratio_patches": round(median(read / full for full, _, read in times), 3),
        "macs_ratio": round(small / full, 3),
        "macs_ratio_all": round((small + own) / full, 3),
    }


def _turn(localizer: Network, judge: Network, groups: Sequence[Tensor], settings: Choice) -> Times:
    """Seconds for all pictures."""
    spent = [0.0, 0.0, 0.0]
    for one in groups:
        marks = [now(one.device)]
        with as_found(judge), torch.no_grad():
            judge(one)
        marks.append(now(one.device))
        cut = patches(look(localizer, one), settings, one.shape[2:])
        marks.append(now(one.device))
        judged(localizer, judge, one, cut)
        marks.append(now(one.device))
        spent = [before + end - start for before, start, end in zip(spent, marks, marks[1:], strict=False)]
    return spent[0], spent[1], spent[2]
