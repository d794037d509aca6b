"""Patches kept and patches masked: what a classifier makes of pictures when only the best patches are left, or gone.

AnchorNet, Fig. 12: accuracy against the area that the best k patches cover, and against the area that they mask when
they are set to 0. Good patches keep the accuracy high where they alone are shown, and take it away where they are gone.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice
from fovea.measures import Figures, Run, measure
from fovea.measures.curves import KINDS, Curve, area_under, curve, joined
from fovea.measures.patch_parts import Part, Row, Trial
from fovea.measures.plots import curves
from fovea.measures.random_control import RANDOM
from fovea.models.glimpsing import Glimpsing
from fovea.networks import Network, answered, as_found
from fovea.patches import SIDE, Look, Settings, look, pick, translated

OVERLAP, SHARE = 0.5, 1.0  # the paper's T at test time; every cell may be picked, so that areas can grow
OURS, THEIRS = "anchornet", "l2caf"
WAYS = ("coverage", "masking")
Key = tuple[str, str]  # a method's name, a kind of curve
Masks = dict[str, Tensor]  # N,S,H,W by method
Numbers = Sequence[int]
Random = np.random.Generator
PANELS = {
    "coverage": ("only the best patches shown (higher is better)", "share of the picture shown"),
    "masking": ("the best patches masked (lower is better)", "share of the picture masked"),
}


@measure(
    "patch-curves",
    title="Patches kept and masked",
    about="Accuracy when only the best patches are shown, and when they are masked, against l2caf and random patches.",
    nets=("localizer", "full", "rival?"),
    needs=("labels",),
    figure="draw",
)
def patch_curves(run: Run, *, numbers: Sequence[int] = (1, 2, 3, 5, 8, 12), batch: int = 16, seed: int = 0) -> Figures:
    """One row per method with the mean accuracy over the areas that all methods reach, then a row for every point.
    Methods: AnchorNet's patches, squares on the l2caf map of `full`, random patches of AnchorNet's sides, and the
    glimpses of a `rival` that reads some, such as Saccader, as the paper has it. All are found in the picture as the
    localizer takes it, and `full` is shown the same."""
    wanted = sorted(set(numbers))
    if not wanted:
        raise BadChoice("curves need one or more numbers of patches; got none")
    rival = run.networks.get("rival")
    if rival is not None and not rival.can("glimpses"):
        raise BadChoice(f"{rival.name or 'the rival'} reads pictures as a whole: a rival reads glimpses, as Saccader")
    trial, full, generator = Trial(run), run.networks["full"], np.random.default_rng(seed)
    methods = (OURS, THEIRS, *([] if rival is None else [trial.names["rival"]]), RANDOM)
    gathered: dict[Key, list[Curve]] = {(method, way): [] for method in methods for way in WAYS}
    side = 0
    for part in trial.parts(batch):
        tensors = translated(part.tensors["localizer"], trial.localizer, full)
        side = round(SIDE * min(tensors.shape[2:]) / 224)
        masks = _patches(part, full, tensors, side, wanted, generator)
        if rival is not None:
            theirs = translated(part.tensors["localizer"], trial.localizer, rival)
            masks[trial.names["rival"]] = _glimpsed(rival, theirs, wanted)
        for key, points in _curves(full, tensors, trial.labels("full", part), masks, batch):
            gathered[key].append(points)
    whole = {key: joined(each, 0) for key, each in gathered.items()}
    reached = {way: min(float(area.mean(0)[-1]) for area in _areas(whole, way).values()) for way in WAYS}
    settings = {
        "input": "as the localizer takes it, for all",
        "labels": f"matched by {trial.matching['full'].how}",
        "patches": f"LIP, T {OVERLAP:g}, P {SHARE:g}; of one branch a picture, the one that localizes",
        **{way: str(KINDS[way]) for way in WAYS},
        "mean accuracy": ", ".join(f"{way} over areas of 0 to {reached[way]:.3f}" for way in WAYS),
        THEIRS: f"squares of {side} px around the cells of its map, for the class that the network puts first",
        RANDOM: f"uniform values in the cells of the branch that localizes, seed {seed}",
    }
    rows = list(_rows({"net": trial.names["full"], **trial.about}, whole, reached, wanted))
    summary = [{key: row[key] for key in ("method", "images", *WAYS)} for row in rows if "kind" not in row]
    notes = ["good patches: coverage high, masking low; random is the control"]
    notes.append(f"mean accuracy: {settings['mean accuracy']}")
    title = f"mean accuracy over shared areas, {trial.names['full']} on {run.data.name}"
    return run.figures(rows, settings, tables={title: summary}, notes=notes)


def _rows(about: Row, whole: dict[Key, Curve], reached: dict[str, float], wanted: Sequence[int]) -> Iterator[Row]:
    """What each method reached, then its points."""
    for method in dict.fromkeys(method for method, _ in whole):
        upto = {way: _mean_accuracy(_areas(whole, way)[method], whole[method, way], reached[way]) for way in WAYS}
        yield {**about, "method": method, "images": len(whole[method, WAYS[0]].right), **upto}
    for (method, way), points in whole.items():
        columns = (_covered(points, way), points.right, points.probability)
        for point in zip([0, *wanted], *(column.mean(0).tolist() for column in columns), strict=True):
            told = dict(zip(("patches", "area", "accuracy", "probability"), point, strict=True))
            yield {**about, "method": method, "images": len(points.right), "kind": way, **told}


def _patches(part: Part, full: Network, tensors: Tensor, side: int, wanted: Numbers, generator: Random) -> Masks:
    """The masks of every method's best patches: N,S,H,W, true where the best of each wanted number lie."""
    seen = part.seen
    cells = max(len(scale.boxes) for scale in seen.scales)
    values = torch.from_numpy(generator.random((len(tensors), cells))).float()  # N,P: by picture, however batched
    noise = [values[:, : len(scale.boxes)].view_as(scale.values).to(scale.values) for scale in seen.scales]
    theirs = look(full, tensors, side=side, method=THEIRS)
    size = (tensors.shape[2], tensors.shape[3])
    return {
        OURS: _masks(seen, [scale.values for scale in seen.scales], wanted, size),
        THEIRS: _masks(theirs, [scale.values for scale in theirs.scales], wanted, size),
        RANDOM: _masks(seen, noise, wanted, size),
    }


def _glimpsed(rival: Network, tensors: Tensor, wanted: Sequence[int]) -> Tensor:
    """Where the first glimpses lie, as `_patches` gives it; what is an overview is none."""
    with as_found(rival), torch.no_grad():
        walk = answered(rival, tensors, min(wanted[-1], cast(Glimpsing, rival.module).most))
    boxes = walk.boxes[:, [i for i, level in enumerate(walk.levels) if level > 1]].cpu().float()
    boxes = F.pad(boxes, (0, 0, 0, wanted[-1] - boxes.shape[1]))  # fewer than asked for: the others of no size
    return covered(boxes, (tensors.shape[2], tensors.shape[3]))[:, [number - 1 for number in wanted]]


def _masks(seen: Look, values: Sequence[Tensor], wanted: Sequence[int], size: tuple[int, int]) -> Tensor:
    """Where the best patches lie, by LIP on these values of the scale that localizes each picture."""
    boxes = torch.zeros(len(seen.label), wanted[-1], 4)
    for number, (scale, own) in enumerate(zip(seen.scales, values, strict=True)):
        given = seen.chosen == number
        picks = pick(own[given], scale.boxes, Settings(wanted[-1], OVERLAP, SHARE))
        boxes[given.cpu()] = picks.boxes.cpu().float()  # where there are fewer, of no size
    return covered(boxes, size)[:, [number - 1 for number in wanted]]


def covered(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """What the first of the boxes (N,K,4) covers, the first two, and so on: N,K,H,W."""
    x0, y0, x1, y1 = boxes.unsqueeze(3).unbind(2)  # N,K,1 each
    rows, columns = torch.arange(size[0]), torch.arange(size[1])
    down, across = (rows >= y0) & (rows < y1), (columns >= x0) & (columns < x1)  # N,K,H  N,K,W
    masks = down.unsqueeze(3) & across.unsqueeze(2)
    for k in range(1, masks.shape[1]):
        masks[:, k] |= masks[:, k - 1]
    return masks


def _curves(full: Network, tensors: Tensor, labels: Tensor, found: Masks, batch: int) -> Iterator[tuple[Key, Curve]]:
    """Both ends of the curves are the same for every method."""
    empty = torch.zeros(len(tensors), 1, *tensors.shape[2:], dtype=torch.bool)
    nothing, everything = (curve(full, tensors, labels, one, batch=batch) for one in (empty, ~empty))
    for method, masks in found.items():
        kept, gone = (curve(full, tensors, labels, one, batch=batch) for one in (masks, ~masks))
        yield (method, "coverage"), joined([nothing, kept], 1)
        yield (method, "masking"), joined([everything, gone], 1)


def _covered(one: Curve, way: str) -> NDArray[np.float64]:
    """The area of the patches, N,S: what is shown of a picture where they are kept, and what is not where they mask."""
    return one.shown if way == "coverage" else 1 - one.shown


def _areas(whole: dict[Key, Curve], way: str) -> dict[str, NDArray[np.float64]]:
    return {method: _covered(one, way) for (method, own), one in whole.items() if own == way}


def _mean_accuracy(areas: NDArray[np.float64], found: Curve, upto: float) -> float:
    """Of the straight lines between the points, over areas from 0."""
    area, accuracy = areas.mean(0), found.right.mean(0)
    at = np.append(area[area < upto], upto)
    return area_under(np.interp(at, area, accuracy), at) / upto


def draw(found: Figures) -> Figure:
    """Accuracy against the area that patches cover, and that they mask."""
    same = {"ylabel": "top-1 accuracy", "ylim": (0, 1)}
    panels = {kind: ("accuracy", {"title": title, "xlabel": x, **same}) for kind, (title, x) in PANELS.items()}
    return curves(found, panels, "mean accuracy over shared areas", 4.6, dense=False)
