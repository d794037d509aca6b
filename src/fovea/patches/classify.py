"""A classifier that reads only the localized patches: its answers to them, added up for every picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from fovea import networks
from fovea.basics import BadChoice, BadNetwork, demand_bounds, demand_kinds, finite
from fovea.networks import Group, Inputs, Network, NetworkLike, as_found, as_network, groups, in_order
from fovea.patches.lip import for_test
from fovea.patches.localized import Box, on_picture
from fovea.patches.scales import Choice, Look, look
from fovea.pictures import MAX_PIXELS, Shown, about, windows
from fovea.results import Results, ShowsBoxes, Step, drawing, marks


@dataclass(frozen=True)
class PatchBatch:
    """Patches of one size out of a batch of pictures."""

    side: int
    owner: Tensor  # M: which picture each is of
    boxes: Tensor  # M,4: in the localizer's pixels

    def cut(self, batch: Tensor) -> Tensor:
        """Out of the pictures N,C,H,W: M,C,side,side."""
        return windows.pixels(batch, self.owner, self.boxes[:, :2], (self.side, self.side))


@dataclass(frozen=True, repr=False)
class PatchAnswer(ShowsBoxes):
    """What a classifier says of one picture, from its patches alone."""

    shown: Shown
    label: str
    probability: float  # the mean over the patches
    side: int
    boxes: tuple[Box, ...]  # of the patches
    shares: Tensor  # classes: the mean of the patches' probabilities

    saved_as = ("overlay", "patches.png")

    @property
    def patches(self) -> int:
        return len(self.boxes)

    def draw(self) -> Image.Image:
        drawn = marks.with_boxes(self.shown.image(), self.boxes)
        title = f"{drawing.spaced(self.label)} {self.probability:.2f}"
        below = f"from {marks.counted(self.patches, self.side)} alone"
        return drawing.titled(drawn, title, below, drawing.scale_of(drawn))

    def to_dict(self) -> dict[str, Any]:
        boxes = [[round(side, 2) for side in box] for box in self.boxes]
        answer = {"label": self.label, "probability": finite(self.probability)}
        return {**about(self.shown), **answer, "side": self.side, "patches": boxes}


class PatchAnswers(Results[PatchAnswer]):
    """`values` are the mean of the patches' probabilities, N,classes."""

    @property
    def values(self) -> Tensor:
        return torch.stack([answer.shares for answer in self])


def classify_patches(  # a public door: two networks, and what may be asked of both
    localizer: NetworkLike,
    classifier: NetworkLike,
    pictures: Inputs,
    *,
    settings: Choice = for_test,
    method: str = "l2caf",
    side: int | None = None,
    batch: int = 16,
    device: str | None = None,
    max_pixels: int = MAX_PIXELS,
    fit: str | None = None,
) -> PatchAnswers:  # a public door: every option by its name
    """Localize patches by one network, classify them by another, add up what it says of them.

    Patches are cut out of the picture as the localizer takes it. Those of one size run together, whichever pictures of
    the batch they are of. `settings` gives LIP's for a side and an input's size; `fit` is the localizer's, as for
    `explain`."""
    demand_bounds({"batch": batch, "max_pixels": max_pixels, "side": side})
    demand_kinds(classify_patches, locals())
    finder, judge = as_network(localizer, device).fitted(fit), as_network(classifier, device)
    if judge.can("texts") or judge.can("sounds"):
        raise BadChoice(f"{judge.name or 'the classifier'} takes no pictures, so no patches: name one that does")

    def answered(group: Group, tensors: Tensor) -> list[PatchAnswer]:
        seen = look(finder, tensors, method=method, side=side, shown=group.shown)
        return _answers(finder, judge, group, seen, settings, tensors)

    found = groups(finder, pictures, batch, max_pixels)
    steps = starmap(Step, in_order(finder, found, answered, [settings, type(judge.module)]))
    about = {"localizer": finder.name, "classifier": judge.name, "method": method, "side": side}
    about["input"] = networks.input_of(finder)
    return PatchAnswers.of(steps, "classify_patches", about)


def _answers(
    finder: Network, judge: Network, group: Group, seen: Look, settings: Choice, tensors: Tensor
) -> list[PatchAnswer]:
    cut = patches(seen, settings, tensors.shape[2:])
    shares = judged(finder, judge, tensors, cut)
    probability, label = shares.max(1)
    answers = []
    for i, shown in enumerate(group.shown):
        boxes = [box for part in cut for box in part.boxes[part.owner == i].tolist()]
        where = tuple(on_picture(box, shown) for box in boxes)
        side = seen.scales[int(seen.chosen[i])].side
        answers.append(PatchAnswer(shown, judge.label(int(label[i])), float(probability[i]), side, where, shares[i]))
    return answers


def patches(seen: Look, settings: Choice, size: Sequence[int]) -> list[PatchBatch]:
    """The patches that LIP picks, by their size."""
    found = []
    for scale, (chosen, picks) in zip(seen.scales, seen.picks(settings, size), strict=True):
        there = picks.cells >= 0  # n,K
        owner = chosen.cpu().unsqueeze(1).expand(-1, there.shape[1])[there.cpu()]
        found.append(PatchBatch(scale.side, owner, picks.boxes[there].cpu()))
    return found


def judged(finder: Network, judge: Network, batch: Tensor, cut: Sequence[PatchBatch]) -> Tensor:
    """The mean of the probabilities that the classifier gives to each picture's patches: N,classes."""
    with as_found(judge), torch.no_grad():
        return added(lambda inputs: judge(inputs), finder, judge, batch, cut)


def added(
    classify: Callable[[Tensor], Tensor],
    finder: Network,
    judge: Network,
    batch: Tensor,
    cut: Sequence[PatchBatch],
    most: int = 256,
) -> Tensor:
    total: Tensor | None = None
    counts = torch.zeros(len(batch), device=judge.device)
    for part in cut:
        for start in range(0, len(part.owner), most):
            some = PatchBatch(part.side, part.owner[start : start + most], part.boxes[start : start + most])
            inputs = translated(some.cut(batch), finder, judge)
            shares = networks.shares_of(judge, _refused_clearly(classify, inputs, judge))
            owner = some.owner.to(shares.device)
            total = shares.new_zeros(len(batch), shares.shape[1]) if total is None else total
            total.index_add_(0, owner, shares)
            counts.index_add_(0, owner, torch.ones_like(owner, dtype=counts.dtype))
    if total is None:
        raise BadChoice("no patch was found in any picture: their heatmaps hold no number")
    return total / counts.clamp(min=1).unsqueeze(1)


def translated(inputs: Tensor, finder: Network, judge: Network) -> Tensor:
    """Patches as the localizer takes them, with the values that the classifier was trained on."""
    inputs = inputs.to(judge.device, judge.dtype)
    if finder.transform is None or judge.transform is None:
        return inputs  # as they are: nothing is known of one of them
    ours, theirs = networks.normalization_of(finder), networks.normalization_of(judge)
    if (ours.scale, ours.shift) == (theirs.scale, theirs.shift):
        return inputs
    return theirs.to_tensors(ours.to_pixels(inputs))


def _refused_clearly(classify: Callable[[Tensor], Tensor], inputs: Tensor, judge: Network) -> Tensor:
    try:
        return classify(inputs)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise BadNetwork(
            f"{judge.name or 'the classifier'} does not take patches of {inputs.shape[3]} x {inputs.shape[2]} pixels, "
            f"{inputs.shape[1]} channels ({str(error).partition(chr(10))[0]}): a classifier of patches must take "
            "pictures of any size"
        ) from error
