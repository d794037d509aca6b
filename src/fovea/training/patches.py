"""Fine-tuning on patches: what a localiser finds in every picture, cut out as the steps go by."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.basics.errors import BadChoice
from fovea.data import DataSet
from fovea.networks.loading import load
from fovea.networks.network import Network
from fovea.patches.classify import Patches, added, patches
from fovea.patches.lip import for_test, for_training, pick
from fovea.patches.scales import Anchored, look
from fovea.pictures.transforms import Prepare
from fovea.training.augment import crops, cut_out, recolor
from fovea.training.feed import Batch, Feed, Held, HeldOut, Progress, Wanted, preparing
from fovea.training.media import Pictures, Tested
from fovea.training.recipe import AugmentPart, Recipe
from fovea.training.scoring import Classified, hits, shares

AT_ONCE = 64  # pictures localised together


class PatchMedium(Pictures):
    """Pictures of which the network is shown the patches that `data.localizer` finds, never the whole."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        assert recipe.data.localizer is not None
        self.localizer = load(recipe.data.localizer)
        if not isinstance(self.localizer.module, Anchored):
            raise BadChoice(f"data.localizer is an AnchorNet; {recipe.data.localizer} has no branches that localise")
        if self.localizer.labels != self.labels:
            raise BadChoice(f"the localizer {recipe.data.localizer} knows other classes than {self.data.name}")
        if recipe.data.hold is False:
            raise BadChoice("patches are cut out of pictures held in memory: leave data.hold out")

    def feed(self, network: Network, device: torch.device, progress: Progress) -> Feed:
        self.localizer.module.to(device)
        return PatchFeed(self.localizer, preparing(network), self.data, self.recipe.augment, device, progress)

    def tested(self, network: Network, device: torch.device, progress: Progress) -> Tested | None:
        if self.test is None:
            return None
        return PatchTest(self.localizer, HeldOut(self.localizer, self.test, device, progress))


class PatchFeed:
    """A step shows patches of one branch, by turns; of each picture one of those that LIP picks for training."""

    def __init__(
        self,
        localizer: Network,
        prepare: Prepare,
        data: DataSet,
        augment: AugmentPart,
        device: torch.device,
        progress: Progress,
    ) -> None:
        shown = preparing(localizer)
        self.prepare, self.augment, self.device, self.size = prepare, augment, device, shown.size
        whole = Held(shown, data, max(shown.size), AugmentPart(), device, progress)
        self.samples, self.skipped = whole.samples, whole.skipped
        self.pixels, self.labels = whole.pixels, whole.labels
        self.sides, self.boxes, self.counts = _all_picks(localizer, whole.pixels)

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        height, width = self.size
        for one in wanted:
            index, draws, more = (part.to(self.device) for part in (one.index, one.draws, one.more))
            branch = int(one.more[0, 0] * len(self.sides))
            side, counts = self.sides[branch], self.counts[branch][index]
            which = (more[:, 1] * counts).long().clamp(max=counts - 1)
            boxes = self.boxes[branch][index, which].float()  # N,4
            scale = boxes.new_tensor([width, height, width, height])
            inner = crops(draws, torch.full((len(index), 2), float(side), device=self.device), self.augment)
            windows = (boxes[:, :2].repeat(1, 2) + inner * side) / scale
            flips = (draws[:, 4] < 0.5) & self.augment.flip
            pixels = recolor(cut_out(self.pixels[index], windows, flips, (side, side)), draws, self.augment)
            yield Batch(self.prepare.normalise(pixels), self.labels[index], one.index)


def _all_picks(localizer: Network, pixels: Tensor) -> tuple[list[int], list[Tensor], list[Tensor]]:
    """The side, the boxes (N,K,4) and their numbers (N) of every branch, for the class that was decided."""
    sides: list[int] = []
    boxes: list[list[Tensor]] = []
    counts: list[list[Tensor]] = []
    size = pixels.shape[2:]
    for start in range(0, len(pixels), AT_ONCE):
        seen = look(localizer, preparing(localizer).normalise(pixels[start : start + AT_ONCE]))
        if not sides:
            sides = [scale.side for scale in seen.scales]
            boxes, counts = [[] for _ in sides], [[] for _ in sides]
        for number, scale in enumerate(seen.scales):
            picks = pick(scale.values, scale.boxes, for_training(scale.side, size))
            boxes[number].append(picks.boxes)
            counts[number].append(picks.count)
    joined = [[torch.cat(parts).to(pixels.device) for parts in one] for one in (boxes, counts)]
    return sides, joined[0], joined[1]


class PatchTest(Classified):
    """The score of adding up what the network says of each test picture's patches, found with the test settings."""

    def __init__(self, localizer: Network, held: HeldOut) -> None:
        super().__init__(held)
        self.localizer = localizer
        self.found: list[Sequence[Patches]] = []  # of every batch, found once

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        module.eval()
        counts = torch.zeros(3, dtype=torch.float64)
        for number, (inputs, labels) in enumerate(self.held.batches(AT_ONCE, fabric.global_rank, fabric.world_size)):
            cut = self._patches(number, inputs)
            output = added(lambda batch: network.read(module(batch)), self.localizer, network, inputs, cut, size)
            counts += hits(output, labels)
        return shares(counts, fabric, len(network.labels or ()))

    def _patches(self, number: int, inputs: Tensor) -> Sequence[Patches]:
        if number >= len(self.found):
            self.found.append(patches(look(self.localizer, inputs), for_test, inputs.shape[2:]))
        return self.found[number]
