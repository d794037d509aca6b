"""Patches looked for in pictures as a network takes them, so that they are found in what it will be shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice, Progress, quiet
from fovea.data import DataSet, Sample, Source
from fovea.models.twostream import EMBEDDED, TwoStream, Views
from fovea.networks import Network, alone
from fovea.networks.running import completion
from fovea.patches import Extracted, extract, open_source, without_folders
from fovea.pictures import Prepare, from_array


@dataclass(frozen=True)
class AsTaken:
    """A picture as a network takes it."""

    source: Source
    prepare: Prepare

    def read(self) -> Image.Image:
        pixels = self.prepare.pixels(self.source.read()).permute(1, 2, 0).numpy()  # H,W,C
        return from_array(pixels)


def source_of(module: TwoStream) -> str | None:
    """Where a two-stream network's patches come from, without whose folders a file lies in."""
    if module.localizer is not None:
        return EMBEDDED
    return None if module.source is None else without_folders(module.source)


def patches_of(network: Network, data: DataSet, device: torch.device, progress: Progress = quiet) -> Extracted | None:
    """The patches of every picture by a two-stream network's own source, in pixels of its input, kept on disk; None
    where the network has no local stream, or a localizer inside it."""
    module, prepare = cast(TwoStream, network.module), cast(Prepare, network.transform)
    if module.local is None or module.localizer is not None:
        return None
    if module.source is None:
        why = f"as l2caf:efficientnet_lite0-cub100, or {EMBEDDED!r} (in a recipe network.options.source)"
        raise BadChoice(f"the network has no patch source: give the option source=KIND:NET, {why}")
    taken = tuple(replace(sample, source=AsTaken(sample.source, prepare)) for sample in data.samples)
    form = f"{prepare.size[1]}x{prepare.size[0]}-{prepare.crop}-{prepare.interpolation}"  # other pixels, other patches
    seen = replace(data, name=f"{data.name}-{form}", samples=taken)
    return extract(seen, module.source, device=device, progress=progress)


def in_shares(patches: Extracted, samples: Sequence[Sample], size: tuple[int, int], count: int) -> Tensor:
    """The best `count` patches of each sample, in shares of the input's width and height: N,count,4."""
    for sample in samples:
        if sample.name not in patches:
            raise BadChoice(
                f"{patches.file} has no patch of {sample.name}, which could not be read when patches were looked for: "
                "delete that file, and they are looked for again"
            )
    rows = torch.tensor([filled(patches[one.name].boxes, count) for one in samples], dtype=torch.float32)
    height, width = size
    return rows / rows.new_tensor([width, height, width, height])


Box = tuple[float, float, float, float]


@completion("boxes", about="patches of pictures, by the source of a two-stream network")
def boxes(network: Network, pictures: Tensor) -> Views:
    """The best patches of pictures as the network takes them. A source is opened once on each device."""
    module = cast(TwoStream, network.module)
    key = (module.source, pictures.device)
    if key not in network.kept:
        with alone(pictures.device):  # building a network draws random numbers
            network.kept[key] = network.kept.get(key) or open_source(str(module.source), pictures.device)
    height, width = pictures.shape[2:]
    patches = network.kept[key](as_images(pictures, cast(Prepare, network.transform)))
    found = torch.tensor([filled(patch.boxes, module.patches) for patch in patches], dtype=torch.float32)
    return Views(pictures, (found / found.new_tensor([width, height, width, height])).to(pictures.device))


def filled(boxes: Sequence[Box], count: int) -> list[Box]:
    """The first so many; of a picture with fewer, its own again, the best first."""
    return [boxes[i % len(boxes)] for i in range(count)]


@torch.no_grad()
def as_images(pictures: Tensor, prepare: Prepare) -> list[Image.Image]:
    """What a network is given, as pictures again."""
    shift, scale = (pictures.new_tensor(values).view(-1, 1, 1) for values in (prepare.mean, prepare.std))
    pixels = ((pictures.float() * scale + shift) * 255).round().clamp(0, 255).byte()
    return [from_array(one) for one in pixels.permute(0, 2, 3, 1).cpu().numpy()]
