"""Fine-tuning on patches: what a localizer finds in every picture, cut out as the steps go by."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice
from fovea.data import DataSet
from fovea.networks import Network, load
from fovea.patches import PatchBatch, added, for_test, for_training, look, patches, pick
from fovea.pictures import Prepare, constant
from fovea.training.augment import crops, cut_out, kernels, recolor
from fovea.training.feed import Batch, Feed, Progress, Wanted, preparing
from fovea.training.medium import Pictures
from fovea.training.pictures import Held, HeldOut
from fovea.training.recipe import Recipe
from fovea.training.scoring import Counts, Tested, hits

AT_ONCE = 64  # pictures localized together


class PatchMedium(Pictures):
    """Pictures of which the network is shown the patches that `data.localizer` finds, never the whole."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        assert recipe.data.localizer is not None
        self.localizer = load(recipe.data.localizer)
        if not self.localizer.can("branches"):
            raise BadChoice(f"data.localizer is an AnchorNet; {recipe.data.localizer} has no branches that localize")
        if self.localizer.labels != self.labels:
            raise BadChoice(f"the localizer {recipe.data.localizer} knows other classes than {self.data.name}")
        self.refuse_streaming()

    def feed(self, network: Network, device: torch.device, progress: Progress) -> Feed:
        self.localizer.module.to(device)
        return PatchFeed(self.localizer, preparing(network), self.data, self.recipe, device, progress)

    def taken(self, network: Network, data: DataSet, device: torch.device, progress: Progress) -> HeldOut:
        return HeldOut(self.localizer, data, device, progress)

    def scored(self, network: Network, taken: HeldOut) -> Tested:
        return PatchTest(self.localizer, taken, self.recipe.data.branch)


class PatchFeed(Held):
    """A step shows patches of one branch, by turns, unless `data.branch` names one; of each picture one of those that
    LIP picks for training, or some `together`, spread over them from the best to the last."""

    def __init__(
        self,
        localizer: Network,
        prepare: Prepare,
        data: DataSet,
        recipe: Recipe,
        device: torch.device,
        progress: Progress,
    ) -> None:
        shown = preparing(localizer)
        super().__init__(shown, data, max(shown.size), recipe.augment, device, progress)
        self.prepare, self.size, self.together = prepare, shown.size, recipe.data.together
        self.sides, self.boxes, self.counts = _all_picks(localizer, self.pixels, recipe.data.branch)

    def inputs(self, wanted: Wanted) -> Tensor:
        index, draws, (height, width) = wanted.index, wanted.draws, self.size
        branch = int(wanted.turn * len(self.sides))
        side, counts = self.sides[branch], self.counts[branch][index]
        index, draws, counts = (part.repeat_interleave(self.together, 0) for part in (index, draws, counts))
        boxes = self.boxes[branch][index, self._turns(counts, wanted)].float()  # N,4
        scale = constant((width, height, width, height), boxes.device, boxes.dtype)
        inner = crops(draws, torch.full((len(index), 2), float(side), device=self.device), self.augment)
        windows = (boxes[:, :2].repeat(1, 2) + inner * side) / scale
        flips = self.flips(wanted).repeat_interleave(self.together)
        pixels = cut_out(self.pixels[index], windows, flips, (side, side), kernels(draws, self.augment))
        return self.prepare.normalize(recolor(pixels, draws, self.augment))

    def _turns(self, counts: Tensor, wanted: Wanted) -> Tensor:
        """Which of each picture's patches, N, or N times as many as are shown together, one picture's side by side."""
        steps = torch.arange(self.together, device=counts.device).repeat(len(wanted.index))
        share = (wanted.more[:, 1].repeat_interleave(self.together) + steps / self.together) % 1
        return (share * counts).long().clamp(max=counts - 1)


def _all_picks(localizer: Network, pixels: Tensor, branch: int | None) -> tuple[list[int], list[Tensor], list[Tensor]]:
    """The side, the boxes (N,K,4) and their numbers (N) of every branch, or of one, for the class that was decided."""
    sides: list[int] = []
    boxes: list[list[Tensor]] = []
    counts: list[list[Tensor]] = []
    size = pixels.shape[2:]
    for start in range(0, len(pixels), AT_ONCE):
        seen = look(localizer, preparing(localizer).normalize(pixels[start : start + AT_ONCE]), branch=branch)
        scales = [scale for scale in seen.scales if branch in (None, scale.side)]
        if not sides:
            sides = [scale.side for scale in scales]
            boxes, counts = [[] for _ in sides], [[] for _ in sides]
        for number, scale in enumerate(scales):
            picks = pick(scale.values, scale.boxes, for_training(scale.side, size))
            boxes[number].append(picks.boxes)
            counts[number].append(picks.count)
    joined = [[torch.cat(parts).to(pixels.device) for parts in one] for one in (boxes, counts)]
    return sides, joined[0], joined[1]


class PatchTest(Tested):
    """The score of adding up what the network says of each test picture's patches, found with the test settings."""

    at_once = AT_ONCE

    def __init__(self, localizer: Network, held: HeldOut, branch: int | None) -> None:
        super().__init__(held)
        self.localizer, self.branch = localizer, branch
        self.patches: dict[int, Sequence[PatchBatch]] = {}  # by the first picture of every batch, found once

    def counts(self, network: Network, module: nn.Module, batch: Batch, size: int) -> Counts:
        inputs, first = cast(Tensor, batch.inputs), int(batch.index[0])
        if first not in self.patches:
            self.patches[first] = patches(look(self.localizer, inputs, branch=self.branch), for_test, inputs.shape[2:])
        cut = self.patches[first]
        output = added(lambda shown: network.read(module(shown)), self.localizer, network, inputs, cut, size)
        return hits(network, output, batch.target)
