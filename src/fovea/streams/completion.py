"""The boxes that a two-stream network is given with its pictures, found by its patch source."""

from collections.abc import Sequence
from typing import cast

import torch
from PIL import Image
from torch import Tensor

from fovea.models.twostream import TwoStream, Views
from fovea.networks import Network, alone
from fovea.networks.completion import completion
from fovea.patches import open_source
from fovea.pictures import Prepare, from_array

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
