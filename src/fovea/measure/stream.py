"""The pictures of a data set, a batch at a time, ready for a network."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fovea.data import DataSet, Sample
from fovea.errors import BadPicture
from fovea.heatmap import Shown
from fovea.network import Network
from fovea.pictures import Picture
from fovea.placement import Placement


def batches(
    data: DataSet, size: int, skipped: list[tuple[str, str]]
) -> Iterator[tuple[list[Sample], list[Image.Image]]]:
    def good() -> Iterator[tuple[Sample, Image.Image]]:
        for sample, image in data.read():
            if isinstance(image, BadPicture):
                skipped.append((sample.name, str(image)))
            else:
                yield sample, image

    stream = good()
    while chunk := list(islice(stream, size)):
        yield [sample for sample, _ in chunk], [image for _, image in chunk]


def prepared(
    network: Network, samples: Sequence[Sample], images: Sequence[Image.Image]
) -> tuple[torch.Tensor, list[Shown], list[Placement]]:
    ready = [network.prepare(image) for image in images]
    shown = [
        Shown(sample.name, placement, Picture(sample.name, image))
        for sample, image, (_, placement) in zip(samples, images, ready, strict=True)
    ]
    tensors = torch.stack([tensor for tensor, _ in ready]).to(network.device, network.dtype)
    return tensors, shown, [placement for _, placement in ready]


def rank_of(output: torch.Tensor, labels: torch.Tensor) -> NDArray[np.int64]:
    """How many other classes score no lower than the true one: a tie is not a hit."""
    own = output.gather(1, labels.to(output.device).unsqueeze(1))
    ranked: NDArray[np.int64] = ((~(output < own)).sum(1) - 1).cpu().numpy()
    return ranked
