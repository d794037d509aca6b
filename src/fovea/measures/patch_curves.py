"""Patches kept, read and masked: what classifiers make of pictures when only the best patches are left, or gone.

AnchorNet, Fig. 12: accuracy against the area that the best k patches cover, and against the area that they mask when
they are set to 0. Good patches keep the accuracy high where they alone are shown, and take it away where they are gone.
The paper's covered patches are read by a classifier of patches (`net`), one by one; `full`, which knows whole pictures,
is shown them where they lie, on black.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice, by_bootstrap, resampled_means
from fovea.measures import Figures, Run, measure
from fovea.measures.curves import KINDS, Curve, area_under, curve, joined
from fovea.measures.figures import printed
from fovea.measures.patch_parts import Part, Row, Trial, alone
from fovea.measures.plots import curves
from fovea.measures.random_control import RANDOM
from fovea.models.glimpsing import Glimpsing
from fovea.networks import Network, answered, as_found, rank_of
from fovea.patches import SIDE, Look, PatchBatch, Settings, look, look_by_crops, pick, translated

OVERLAP, SHARE = 0.5, 1.0  # the paper's T at test time; every cell may be picked, so that areas can grow
OURS, THEIRS, CROPS = "anchornet", "l2caf", "few-crops"
READING, COVERAGE, MASKING = WAYS = ("reading", "coverage", "masking")
Key = tuple[str, str]  # a method's name, a kind of curve
Found = dict[str, Tensor]  # by method: the boxes of its best patches, N,K,4, of no size where there are fewer
Numbers = Sequence[int]
Random = np.random.Generator
PANELS = {
    READING: ("only the best patches read (higher is better)", "share of the picture read"),
    COVERAGE: ("only the best patches shown (higher is better)", "share of the picture shown"),
    MASKING: ("the best patches masked (lower is better)", "share of the picture masked"),
}


@measure(
    "patch-curves",
    title="Patches kept and masked",
    about="How accuracy depends on the best patches: when only they are shown, when they are masked, and against "
    "patches of other sources.",
    example="--localizer anchornet-imagenette --full whole.safetensors --data imagenette:split=test --out curves.png",
    nets=("localizer", "full", "net?", "rival?"),
    needs=("labels",),
    figure="draw",
)
def patch_curves(
    run: Run, *, numbers: Sequence[int] = (1, 2, 3, 5, 8, 12), crops: bool = False, batch: int = 16, seed: int = 0
) -> Figures:
    """One row per method with the mean accuracy over the areas that all methods reach, then a row for every point.
    Methods: AnchorNet's patches, squares on the l2caf map of `full`, with `crops` a tenth of the crops that `full` sees
    alone, the glimpses of a `rival` that reads some, such as Saccader, as the paper has it, and random patches of
    AnchorNet's sides. All are found in the picture as the localizer takes it, and `full` is shown the same. `net` reads
    patches and nothing else, and its answers are added up."""
    wanted = sorted(set(numbers))
    if not wanted:
        raise BadChoice("curves need one or more numbers of patches; got none")
    rival, reader = (run.networks.get(role) for role in ("rival", "net"))
    if rival is not None and not rival.can("glimpses"):
        raise BadChoice(f"{rival.name or 'the rival'} reads pictures as a whole: a rival reads glimpses, as Saccader")
    trial, full, generator = Trial(run), run.networks["full"], np.random.default_rng(seed)
    gathered: dict[Key, list[Curve]] = {}
    side = 0
    for part in trial.parts(batch):
        tensors = translated(part.tensors["localizer"], trial.localizer, full)
        side = round(SIDE * min(tensors.shape[2:]) / 224)
        found = _patches(part, full, tensors, side, wanted[-1], generator, crops)
        if rival is not None:
            theirs = translated(part.tensors["localizer"], trial.localizer, rival)
            found[trial.names["rival"]] = _glimpsed(rival, theirs, wanted[-1])
            found[RANDOM] = found.pop(RANDOM)  # the last
        masks = {method: covered(boxes, tensors.shape[2:])[:, _places(wanted)] for method, boxes in found.items()}
        for key, points in _curves(full, tensors, trial.labels("full", part), masks, batch):
            gathered.setdefault(key, []).append(points)
        for method, boxes in found.items() if reader is not None else ():
            gathered.setdefault((method, READING), []).append(_read(trial, part, boxes, masks[method], wanted))
    whole = {key: joined(each, 0) for key, each in gathered.items()}
    ways = [way for way in WAYS if (OURS, way) in whole]
    reached = {way: min(float(area.mean(0)[-1]) for area in _areas(whole, way).values()) for way in ways}
    settings = {
        "input": "as the localizer takes it, for all",
        "labels": f"matched by {trial.matching['full'].how}",
        "patches": f"LIP, T {OVERLAP:g}, P {SHARE:g}; of one branch a picture, the one that localizes",
        **({} if reader is None else {READING: f"{trial.names['net']} on each patch alone, its answers added up"}),
        **{way: str(KINDS[way]) for way in (COVERAGE, MASKING)},
        "mean accuracy": ", ".join(f"{way} over areas of 0 to {reached[way]:.3f}" for way in ways),
        "interval": by_bootstrap("mean accuracy", seed),
        "change": f"from {OURS}, its interval over the same resamples",
        THEIRS: f"squares of {side} px around the cells of its map, for the class that the network puts first",
        **({CROPS: "a tenth of the crops of three sides, each seen alone by the network"} if crops else {}),
        RANDOM: f"uniform values in the cells of the branch that localizes, seed {seed}",
    }
    rows = list(_rows({"net": trial.names["full"], **trial.about}, whole, reached, wanted, seed))
    columns = ["method", "images", *(key for way in ways for key in (way, f"{way}_change"))]
    summary = printed([row for row in rows if "kind" not in row], columns)
    notes = ["good patches: reading and coverage high, masking low; random is the control"]
    notes.append(f"mean accuracy: {settings['mean accuracy']}")
    title = f"mean accuracy over shared areas, {trial.names['full']} on {run.data.name}"
    return run.figures(rows, settings, tables={title: summary}, notes=notes)


def _places(wanted: Numbers) -> list[int]:
    return [number - 1 for number in wanted]


def _rows(
    about: Row, whole: dict[Key, Curve], reached: dict[str, float], wanted: Sequence[int], seed: int
) -> Iterator[Row]:
    """What each method reached, then its points."""
    means = _mean_accuracies(whole, reached, seed)
    for method in dict.fromkeys(method for method, _ in whole):
        row: Row = {**about, "method": method, "images": len(whole[method, COVERAGE].right)}
        for way in reached:
            value, drawn = means[method, way]
            row |= _ends(way, value, drawn)
            if method != OURS:
                first, others = means[OURS, way]
                row |= _ends(f"{way}_change", value - first, drawn - others)
        yield row
    for (method, way), points in whole.items():
        columns = (_covered(points, way), points.right, points.probability)
        for point in zip([0, *wanted], *(column.mean(0).tolist() for column in columns), strict=True):
            told = dict(zip(("patches", "area", "accuracy", "probability"), point, strict=True))
            yield {**about, "method": method, "images": len(points.right), "kind": way, **told}


def _ends(key: str, value: float, drawn: NDArray[np.float64]) -> Row:
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return {key: value, f"{key}_low": low, f"{key}_high": high}


def _patches(part: Part, full: Network, tensors: Tensor, side: int, most: int, generator: Random, crops: bool) -> Found:
    """The best patches of every method that needs no other network."""
    seen = part.seen
    cells = max(len(scale.boxes) for scale in seen.scales)
    values = torch.from_numpy(generator.random((len(tensors), cells))).float()  # N,P: by picture, however batched
    noise = [values[:, : len(scale.boxes)].view_as(scale.values).to(scale.values) for scale in seen.scales]
    looks = {OURS: seen, THEIRS: look(full, tensors, side=side, method=THEIRS)}
    if crops:
        looks[CROPS] = look_by_crops(full, tensors, None, None, few=True)
    found = {name: _picked(one, [scale.values for scale in one.scales], most) for name, one in looks.items()}
    return found | {RANDOM: _picked(seen, noise, most)}


def _picked(seen: Look, values: Sequence[Tensor], most: int) -> Tensor:
    """By LIP on these values of the scale that localizes each picture."""
    boxes = torch.zeros(len(seen.label), most, 4)
    for number, (scale, own) in enumerate(zip(seen.scales, values, strict=True)):
        given = seen.chosen == number
        picks = pick(own[given], scale.boxes, Settings(most, OVERLAP, SHARE)).boxes
        boxes[given.cpu(), : picks.shape[1]] = picks.cpu().float()
    return boxes


def _glimpsed(rival: Network, tensors: Tensor, most: int) -> Tensor:
    """The first glimpses; what is an overview is none."""
    with as_found(rival), torch.no_grad():
        walk = answered(rival, tensors, min(most, cast(Glimpsing, rival.module).most))
    boxes = walk.boxes[:, [i for i, level in enumerate(walk.levels) if level > 1]].cpu().float()
    return F.pad(boxes, (0, 0, 0, most - boxes.shape[1]))


def _read(trial: Trial, part: Part, boxes: Tensor, masks: Tensor, wanted: Numbers) -> Curve:
    """What the reader says of the first patches together: the mean of its probabilities for each alone."""
    owner, turn = (boxes[..., 2] > boxes[..., 0]).nonzero(as_tuple=True)  # M each
    own = boxes[owner, turn].round().long()
    sides, labels = own[:, 2] - own[:, 0], trial.labels("net", part)
    shares: Tensor | None = None
    for side in sorted(set(sides.tolist())):
        of = sides == side
        squares = PatchBatch(side, owner[of], own[of]).cut(part.tensors["localizer"])
        said = alone(trial.localizer, trial.nets["net"], squares).cpu()  # m,classes
        shares = said.new_zeros(*boxes.shape[:2], said.shape[1]) if shares is None else shares
        shares[owner[of], turn[of]] = said
    assert shares is not None  # every picture has a best patch
    sums = F.pad(shares.cumsum(1)[:, _places(wanted)], (0, 0, 1, 0))  # N,S,classes: of no patch nothing is said
    sums = sums / sums.sum(2, keepdim=True).clamp(min=1)
    places = torch.arange(len(sums)).unsqueeze(1).expand(-1, sums.shape[1])  # N,S
    right = rank_of(sums.flatten(0, 1), labels.cpu()[places.flatten()]) < 1
    probability = sums.gather(2, labels.cpu()[places].unsqueeze(2)).squeeze(2).double().numpy()
    shown = F.pad(masks.float().mean((2, 3)), (1, 0)).double().numpy()
    return Curve(shown, probability, right.reshape(shown.shape))


def covered(boxes: Tensor, size: Sequence[int]) -> Tensor:
    """What the first of the boxes (N,K,4) covers, the first two, and so on: N,K,H,W."""
    x0, y0, x1, y1 = boxes.unsqueeze(3).unbind(2)  # N,K,1 each
    rows, columns = torch.arange(size[0]), torch.arange(size[1])
    down, across = (rows >= y0) & (rows < y1), (columns >= x0) & (columns < x1)  # N,K,H  N,K,W
    masks = down.unsqueeze(3) & across.unsqueeze(2)
    for k in range(1, masks.shape[1]):
        masks[:, k] |= masks[:, k - 1]
    return masks


def _curves(full: Network, tensors: Tensor, labels: Tensor, found: Found, batch: int) -> Iterator[tuple[Key, Curve]]:
    """Of masks N,S,H,W by method. Both ends of the curves are the same for every method."""
    empty = torch.zeros(len(tensors), 1, *tensors.shape[2:], dtype=torch.bool)
    nothing, everything = (curve(full, tensors, labels, one, batch=batch) for one in (empty, ~empty))
    for method, masks in found.items():
        kept, gone = (curve(full, tensors, labels, one, batch=batch) for one in (masks, ~masks))
        yield (method, COVERAGE), joined([nothing, kept], 1)
        yield (method, MASKING), joined([everything, gone], 1)


def _covered(one: Curve, way: str) -> NDArray[np.float64]:
    """The area of the patches, N,S: what is shown of a picture where they are kept, and what is not where they mask."""
    return 1 - one.shown if way == MASKING else one.shown


def _areas(whole: dict[Key, Curve], way: str) -> dict[str, NDArray[np.float64]]:
    return {method: _covered(one, way) for (method, own), one in whole.items() if own == way}


def _mean_accuracies(
    whole: dict[Key, Curve], reached: dict[str, float], seed: int
) -> dict[Key, tuple[float, NDArray[np.float64]]]:
    """Of all pictures, and of each resample of them, which is the same for all curves."""
    both = [np.concatenate([_covered(found, way), found.right], 1) for (_, way), found in whole.items()]  # N,2S each
    drawn = np.split(resampled_means(np.concatenate(both, 1), seed), len(both), 1)  # R,2S each
    found = {}
    for key, points, rows in zip(whole, both, drawn, strict=True):
        upto = reached[key[1]]
        found[key] = _mean_accuracy(points.mean(0), upto), np.array([_mean_accuracy(row, upto) for row in rows])
    return found


def _mean_accuracy(points: NDArray[np.float64], upto: float) -> float:
    """Of the straight lines between the points (areas, then their accuracies), over areas from 0; beyond the last point
    as there."""
    area, accuracy = np.split(points, 2)
    at = np.append(area[area < upto], upto)
    return float(area_under(np.interp(at, area, accuracy), at)) / upto


def draw(found: Figures) -> Figure:
    """Accuracy against the area that patches cover, as they are read and shown, and that they mask."""
    same = {"ylabel": "top-1 accuracy", "ylim": (0, 1)}
    kinds = [kind for kind in PANELS if kind in found.rows[0]]
    panels = {kind: ("accuracy", {"title": PANELS[kind][0], "xlabel": PANELS[kind][1], **same}) for kind in kinds}
    return curves(found, panels, "mean accuracy over shared areas", 4.6, dense=False)
