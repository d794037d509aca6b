"""What stands where a picture is hidden."""

import math

import torch
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from fovea.networks.network import Network
from fovea.networks.normalization import normalization_of

BLUR = 10 / 224  # σ as a share of the shorter side; RISE's own leaves so much to see that insertion begins at 0.3
FILLS = {
    "black": "pixel value 0",
    "mean": "0 after normalization, the mean gray",
    "blur": f"the picture blurred by a Gaussian, σ = {BLUR:.3f} of the shorter side",
}


def filling(fill: str, network: Network, tensors: Tensor) -> Tensor:
    """What stands where a picture is not shown; it broadcasts to the pictures."""
    if fill == "black":
        return normalization_of(network).gray(0)
    if fill == "mean":
        return torch.zeros(1, 1, 1, 1)
    shorter = min(tensors.shape[2:])
    radius = min(math.ceil(3 * BLUR * shorter), shorter - 1)  # the border is mirrored, which reaches no further
    for size in ([2 * radius + 1, 1], [1, 2 * radius + 1]):  # one side after the other, which takes a tenth of the time
        tensors = gaussian_blur(tensors, size, BLUR * shorter)
    return tensors
