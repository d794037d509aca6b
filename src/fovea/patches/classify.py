"""A classifier that reads only the localised patches: its answers to them, added up for every picture."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadNetwork
from fovea.networks.inputs import Inputs, groups
from fovea.networks.network import Network, as_found, wrap
from fovea.patches.lip import for_test
from fovea.patches.scales import Choice, Look, look
from fovea.pictures import MAX_PIXELS, tell_skipped
from fovea.pictures.shown import Shown


@dataclass(frozen=True)
class Patches:
    """Patches of one size out of a batch of pictures."""

    side: int
    owner: Tensor  # M: which picture each is of
    boxes: Tensor  # M,4: in the localiser's pixels

    def cut(self, batch: Tensor) -> Tensor:
        """Out of the pictures N,C,H,W: M,C,side,side."""
        steps = torch.arange(self.side, device=batch.device)
        boxes, owner = self.boxes.to(batch.device), self.owner.to(batch.device)
        rows, columns = boxes[:, 1, None] + steps, boxes[:, 0, None] + steps  # M,side each
        found = batch[owner[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # M,side,side,C
        return found.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Answered:
    """What a classifier says of one picture, from its patches alone."""

    shown: Shown
    label: str
    probability: float  # the mean over the patches
    side: int
    patches: int


@dataclass(frozen=True)
class Answers:
    """`shares` are the mean of the patches' probabilities, a row a picture."""

    found: tuple[Answered, ...]
    shares: Tensor  # N,classes
    skipped: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: int) -> Answered:
        return self.found[index]

    def __iter__(self) -> Iterator[Answered]:
        return iter(self.found)


def classify_patches(
    localizer: Network | nn.Module,
    classifier: Network | nn.Module,
    pictures: Inputs,
    *,
    settings: Choice = for_test,
    method: str = "l2caf",
    side: int | None = None,
    batch: int = 16,
    max_pixels: int = MAX_PIXELS,
) -> Answers:
    """Localise patches by one network, classify them by another, add up what it says of them.

    Patches are cut out of the picture as the localiser takes it. Those of one size run together, whichever pictures of
    the batch they are of. `settings` gives LIP's for a side and an input's size.
    """
    finder, judge = (one if isinstance(one, Network) else wrap(one) for one in (localizer, classifier))
    answered: list[Answered] = []
    shares: list[Tensor] = []
    skipped: list[tuple[str, str]] = []
    for group in groups(finder, pictures, batch, max_pixels):
        skipped += group.skipped
        if group.batch is None:
            continue
        tensors = group.batch.to(finder.device, finder.dtype)
        seen = look(finder, tensors, method=method, side=side, shown=group.shown)
        cut = patches(seen, settings, tensors.shape[2:])
        own = judged(finder, judge, tensors, cut)
        counts = torch.bincount(torch.cat([one.owner for one in cut]), minlength=len(tensors)).tolist()
        best = own.max(1)
        answered += [
            Answered(shown, judge.label(label), share, seen.scales[scale].side, count)
            for shown, label, share, scale, count in zip(
                group.shown, best.indices.tolist(), best.values.tolist(), seen.chosen.tolist(), counts, strict=True
            )
        ]
        shares.append(own)
    tell_skipped(bool(answered), skipped)
    return Answers(tuple(answered), torch.cat(shares), tuple(skipped))


def patches(seen: Look, settings: Choice, size: Sequence[int]) -> list[Patches]:
    """The patches that LIP picks, by their size."""
    found = []
    for scale, (own, picks) in zip(seen.scales, seen.picks(settings, size), strict=True):
        there = picks.cells >= 0  # n,K
        owner = own.cpu().unsqueeze(1).expand(-1, there.shape[1])[there.cpu()]
        found.append(Patches(scale.side, owner, picks.boxes[there].cpu()))
    return found


def judged(finder: Network, judge: Network, batch: Tensor, cut: Sequence[Patches], most: int = 256) -> Tensor:
    """The mean of the probabilities that the classifier gives to each picture's patches: N,classes."""
    with as_found(judge), torch.no_grad():
        return added(lambda inputs: judge(inputs), finder, judge, batch, cut, most)


def added(
    classify: Callable[[Tensor], Tensor],
    finder: Network,
    judge: Network,
    batch: Tensor,
    cut: Sequence[Patches],
    most: int = 256,
) -> Tensor:
    total: Tensor | None = None
    counts = torch.zeros(len(batch), device=judge.device)
    for part in cut:
        for start in range(0, len(part.owner), most):
            own = Patches(part.side, part.owner[start : start + most], part.boxes[start : start + most])
            inputs = translated(own.cut(batch), finder, judge)
            shares = _refused_clearly(classify, inputs, judge).float().softmax(1)
            owner = own.owner.to(shares.device)
            total = shares.new_zeros(len(batch), shares.shape[1]) if total is None else total
            total.index_add_(0, owner, shares)
            counts.index_add_(0, owner, torch.ones_like(owner, dtype=counts.dtype))
    if total is None:
        raise BadChoice("no patch was found in any picture: their heatmaps hold no number")
    return total / counts.clamp(min=1).unsqueeze(1)


def translated(inputs: Tensor, finder: Network, judge: Network) -> Tensor:
    """Patches as the localiser takes them, with the values that the classifier was trained on."""
    from fovea.networks.normalization import normalization_of

    inputs = inputs.to(judge.device, judge.dtype)
    if finder.transform is None or judge.transform is None:
        return inputs  # as they are: nothing is known of one of them
    ours, theirs = normalization_of(finder), normalization_of(judge)
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
