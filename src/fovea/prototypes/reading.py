"""The pictures of a data set as a network takes them, decoded in threads, each with its number in the set."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from fovea.basics.errors import BadPicture
from fovea.data import DataSet, Sample
from fovea.networks.network import Network
from fovea.pictures.placement import Placement

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Batch:
    inputs: Tensor  # N,C,H,W
    labels: tuple[int, ...]
    numbers: tuple[int, ...]  # which samples of the set
    placements: tuple[Placement, ...]


def batches(
    network: Network, data: DataSet, size: int, skipped: list[tuple[str, str]], progress: Progress
) -> Iterator[Batch]:
    """All of them in order, `size` at a time; those that cannot be read are noted."""

    def one(sample: Sample) -> tuple[Tensor, Placement] | BadPicture:
        try:
            return network.prepare(sample.source.read())
        except BadPicture as reason:
            return reason

    any_read = False
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(data), size):
            chunk = data.samples[start : start + size]
            found: list[tuple[int, Tensor, Placement]] = []
            for number, result in enumerate(pool.map(one, chunk), start):
                if isinstance(result, BadPicture):
                    skipped.append((data.samples[number].name, str(result)))
                else:
                    found.append((number, *result))
            if found:
                any_read = True
                numbers, ready, placements = zip(*found, strict=True)
                inputs = torch.stack(ready).to(network.device, network.dtype)
                labels = tuple(data.samples[number].label for number in numbers)
                yield Batch(inputs, labels, numbers, placements)
            progress(start + len(chunk), len(data))
    if not any_read:
        reason = f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else f"{data.name} is empty"
        raise BadPicture(reason)
