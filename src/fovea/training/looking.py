"""Pictures with patches, for networks of two streams: found once by the network's own source, kept on disk."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice
from fovea.data import DataSet
from fovea.models.twostream import TwoStream, TwoStreamOutput, Views
from fovea.networks import Network
from fovea.patches import Extracted
from fovea.pictures import inside
from fovea.streams import in_shares, patches_of
from fovea.training.augment import crops, recolor
from fovea.training.feed import Batch, Feed, Progress, Wanted, preparing, room
from fovea.training.medium import Pictures
from fovea.training.pictures import Held, HeldOut, held_bytes, side_of
from fovea.training.recipe import AugmentPart, Recipe
from fovea.training.scoring import Counts, Tested, answer, hits

LATER_DIGITS = 4096  # of a random number, as good as another one


class TwoStreamMedium(Pictures):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.refuse_streaming()
        if recipe.augment.mixup or recipe.augment.cutmix:
            raise BadChoice("two streams see two windows of one picture: leave mixup and cutmix out")
        if recipe.augment.kernels:
            raise BadChoice("windows of two streams are cut by the network: leave augment.kernels out")
        if recipe.loss.model_dump().get("distil") is not None:
            raise BadChoice("a teacher sees one picture, and two streams two windows of it: leave loss.distil out")

    def feed(self, network: Network, device: torch.device, progress: Progress) -> Feed:
        return TwoStreamFeed(network, self.data, self.recipe.augment, device, progress, self.recipe.data.side)

    def tested(self, network: Network, data: DataSet | None, device: torch.device, progress: Progress) -> Tested | None:
        if data is None:
            return None
        held = HeldOut(network, data, device, progress)
        return TwoStreamTest(held, patches_of(network, data, device, progress))


class TwoStreamFeed(Held):
    """Of every picture one of its patches, by turns of chance; both streams' windows are cut out of the same bytes."""

    def __init__(
        self,
        network: Network,
        data: DataSet,
        augment: AugmentPart,
        device: torch.device,
        progress: Progress,
        side: int | None = None,
    ) -> None:
        prepare = preparing(network)
        # a patch that is not cropped keeps its shape, as it does in use
        aspect = None if augment.patch_area == [1, 1] else augment.aspect
        self.inner = AugmentPart(area=augment.patch_area, aspect=aspect)
        patches = patches_of(network, data, device, progress)
        side, size = side_of(prepare, side), held_bytes(prepare, data, side)
        if size > room(device):
            raise BadChoice(
                f"{len(data)} pictures of {side} x {side} are {size / 2**30:.1f} GB, more than is held in memory here "
                f"({room(device) / 2**30:.1f} GB): set a smaller data.side, or limit= in data.train"
            )
        super().__init__(prepare, data, side, augment, device, progress)
        self.boxes: Tensor | None = None
        if patches is not None:
            self.boxes, self.counts = self._in_shares(patches)

    def _in_shares(self, patches: Extracted) -> tuple[Tensor, Tensor]:
        """Boxes in shares of the whole pictures, N,K,4, and how many there are of each, N."""
        most = max(len(patches[sample.name].boxes) for sample in self.samples)
        taken = in_shares(patches, self.samples, self.prepare.size, most)  # N,K,4 of the network's input
        width, height = self.sizes.unbind(1)
        places = [self.prepare.placement(int(w), int(h)) for w, h in self.sizes.tolist()]
        ends = ([o + s * i for o, s, i in zip(at.offset, at.scale, at.input, strict=True)] for at in places)
        seen = torch.tensor([[*at.offset, *end] for at, end in zip(places, ends, strict=True)])
        outer = seen.to(self.device) / torch.stack([width, height, width, height], 1)
        boxes = inside(taken.to(self.device).flatten(0, 1), outer.repeat_interleave(most, 0)).view(-1, most, 4)
        counts = [len(patches[sample.name].boxes) for sample in self.samples]
        return boxes, torch.tensor(counts, device=self.device)

    def inputs(self, wanted: Wanted) -> Views:
        whole = crops(wanted.draws, self.sizes[wanted.index], self.augment)
        boxes = None if self.boxes is None else self._patch(self.boxes, wanted).unsqueeze(1)
        pixels = recolor(self.pixels[wanted.index].float(), wanted.draws, self.augment)
        return Views(self.prepare.normalize(pixels), boxes, whole, self.flips(wanted))

    def _patch(self, patches: Tensor, wanted: Wanted) -> Tensor:
        boxes = patches[wanted.index, self.one_of(self.counts[wanted.index], wanted)]  # N,4
        extent = (boxes[:, 2:] - boxes[:, :2]) * self.sizes[wanted.index]
        return inside(crops(wanted.draws * LATER_DIGITS % 1, extent, self.inner), boxes)


class TwoStreamTest(Tested):
    """Top-1 of both streams together and of each alone, the best patches read."""

    def __init__(self, held: HeldOut, patches: Extracted | None) -> None:
        super().__init__(held)
        self.patches = patches

    def counts(self, network: Network, module: nn.Module, batch: Batch, size: int) -> Counts:
        inputs, boxes = cast(Tensor, batch.inputs), None
        if self.patches is not None:
            samples, count = [sample for sample, _ in batch.shown], cast(TwoStream, network.module).patches
            boxes = in_shares(self.patches, samples, (inputs.shape[2], inputs.shape[3]), count).to(inputs.device)
        out: TwoStreamOutput = answer(module, replace(batch, inputs=Views(inputs, boxes)))
        local = out.whole if out.local is None else out.local
        alone = {"global_top1": out.whole, "local_top1": local}
        joint = hits(network, out.logits, batch.target)
        return joint | {name: hits(network, logits, batch.target)["top1"] for name, logits in alone.items()}
