"""How long a classifier takes with localized patches, against full pictures: in one run, turn by turn."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice
from fovea.measures import Figures, Run, measure
from fovea.measures.patch_parts import answer, words
from fovea.measures.timing import now
from fovea.networks import Network, load, macs
from fovea.patches import Choice, choice, judged, look, patches

Row = dict[str, Any]
Times = tuple[float, float, float]  # full pictures, localizing, patches


@measure(
    "bench patches",
    title="Time of patches against full pictures",
    about="Time of a classifier on localized patches, localizing included, beside the same classifier on whole "
    "pictures.",
    example="--net timm/resnet50 --localizer anchornet-imagenette",
    nets="names",
    usual={
        "net": ("timm/resnet50", "efficientnet_lite0"),
        "data": "imagenette:split=test",
        "limit": 64,
        "device": "cpu",
    },
)
def bench_patches(
    run: Run,
    *,
    localizer: str = "anchornet-imagenette",
    count: int | None = None,
    overlap: float = 0.3,
    share: float = 0.04,
    branch: int | None = None,
    batch: int = 16,
    rounds: int = 7,
) -> Figures:
    """One row per classifier, with random weights: time and multiplications of both ways, the localizer's included.
    Pictures are decoded beforehand. Every round times the full pictures, then the localizer, LIP and the patches."""
    if not run.names:
        raise BadChoice("name a classifier; got none")
    finder, settings = run.load(localizer), choice(count, overlap, share)
    batches = [inputs[0].tensors for _, inputs in run.inputs(batch, [finder])]
    rows = []
    for number, name in enumerate(run.names):
        judge = load(name, pretrained=False)
        judge.module.to(finder.device)
        times = []
        for turn in range(rounds + 1):  # the first warms up
            times.append(_turn(finder, judge, batches, settings, branch))
            run.progress(number * (rounds + 1) + turn + 1, len(run.names) * (rounds + 1))
        about = {"net": name, "localizer": finder.name, "data": run.data.name, "batch": batch}
        rows.append(about | _row(finder, judge, batches, settings, branch, times[1:]))
    scales, size = look(finder, batches[0][:1]).scales, batches[0].shape[2:]
    told = {
        "threads": torch.get_num_threads(),
        "device": finder.device.type,
        "rounds": rounds,
        "input": "the localizer's, for both ways",
        "lip": "; ".join(f"{scale.side}: {words(settings(scale.side, size))}" for scale in scales),
        "branch": "the surest of those that decide" if branch is None else branch,
        "ratio": "median over the rounds of (localizer + LIP + patches) / full pictures, of wall-clock time",
        "ratio_patches": "the same without the localizer and LIP",
        "macs_ratio": "multiplications of the patches / of full pictures; macs_ratio_all with the localizer's",
    }
    return Figures("bench patches", told, rows, run.skipped)


def _row(
    localizer: Network,
    judge: Network,
    groups: Sequence[Tensor],
    settings: Choice,
    branch: int | None,
    times: list[Times],
) -> Row:
    count, size = sum(map(len, groups)), groups[0].shape[2:]
    sides: Counter[int] = Counter()
    for tensors in groups:
        for part in patches(look(localizer, tensors, branch=branch), settings, size):
            sides[part.side] += len(part.owner)
    full, own = macs(judge, groups[0][:1]), macs(localizer, groups[0][:1])
    small = sum(number * macs(judge, groups[0][:1, :, :side, :side]) for side, number in sides.items()) / count
    middle = [median(time[i] for time in times) / count * 1e3 for i in range(3)]
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


def _turn(localizer: Network, judge: Network, groups: Sequence[Tensor], settings: Choice, branch: int | None) -> Times:
    """Seconds for all pictures."""
    spent = [0.0, 0.0, 0.0]
    for tensors in groups:
        marks = [now(tensors.device)]
        answer(judge, tensors)
        marks.append(now(tensors.device))
        cut = patches(look(localizer, tensors, branch=branch), settings, tensors.shape[2:])
        marks.append(now(tensors.device))
        judged(localizer, judge, tensors, cut)
        marks.append(now(tensors.device))
        spent = [before + end - start for before, start, end in zip(spent, marks, marks[1:], strict=False)]
    return spent[0], spent[1], spent[2]
