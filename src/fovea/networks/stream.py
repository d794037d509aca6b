"""What a network gives for the pictures of a data set, and small questions about its input and output."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadPicture, Progress, quiet
from fovea.data import DataSet, Sample
from fovea.networks.inputs import Group, groups, run_ahead
from fovea.networks.network import Network, as_found


def outputs(
    network: Network, data: DataSet, size: int, skipped: list[tuple[str, str]], progress: Progress = quiet
) -> Iterator[tuple[list[Sample], torch.Tensor]]:
    """What the network gives for every batch, in eval mode and without gradients; it is left as found."""

    def run(group: Group) -> torch.Tensor | None:
        with as_found(network), torch.no_grad():
            return None if group.batch is None else network(group.batch)

    done = 0
    for group, output in run_ahead(network, groups(network, data, size), run):
        skipped += group.skipped
        if output is not None:
            done += len(output)
            yield group.of(data.samples), output
        progress(group.done, group.total)
    if not done:
        reason = f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else f"{data.name} is empty"
        raise BadPicture(reason)


def blank(network: Network) -> torch.Tensor:
    """An empty picture as the network takes it (1,C,H,W)."""
    tensor, _ = network.prepare(Image.new("RGB", (256, 256), "gray"))
    return tensor.unsqueeze(0).to(network.device, network.dtype)


def input_of(network: Network) -> str:
    """How pictures of other proportions than the network's come in."""
    if getattr(network.transform, "whole", False):
        return "whole, in its proportions" if getattr(network.transform, "step", 0) else "whole, padded"
    return "squashed" if getattr(network.transform, "crop", 0) is None else "cropped"


def rank_of(output: torch.Tensor, labels: torch.Tensor) -> NDArray[np.int64]:
    """How many other classes score no lower than the true one: a tie is not a hit."""
    own = output.gather(1, labels.to(output.device).unsqueeze(1))
    return ((~(output < own)).sum(1) - 1).cpu().numpy()
