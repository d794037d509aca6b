"""The kinds of faithfulness curves: are the best pixels kept or taken away, and what stands in place of the rest."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from fovea.basics import BadChoice, nearest
from fovea.networks import Network, normalization_of

BLUR = 10 / 224  # σ as a share of the shorter side; RISE's own leaves so much to see that insertion begins at 0.3
FILLS = {
    "black": "pixel value 0",
    "mean": "0 after normalization, the mean gray",
    "blur": f"the picture blurred by a Gaussian, σ = {BLUR:.3f} of the shorter side",
}


@dataclass(frozen=True)
class Kind:
    name: str
    keeps: bool  # the best pixels, and fills the others; else the other way round
    fill: str
    reads: str  # what the curve tells

    def __str__(self) -> str:
        filled = "all but the best pixels" if self.keeps else "the best pixels"
        return f"{self.reads}; {filled} filled with {FILLS[self.fill]}"


KINDS = {
    one.name: one
    for one in (
        Kind("insertion", True, "blur", "probability"),
        Kind("deletion", False, "mean", "probability"),
        Kind("coverage", True, "black", "accuracy"),
        Kind("masking", False, "black", "accuracy"),
    )
}


def kind_of(given: str | Kind) -> Kind:
    """A kind by name (`masking`), or with a filling of one's own (`masking:mean`)."""
    if isinstance(given, Kind):
        return given
    name, _, fill = given.partition(":")
    if name not in KINDS:
        raise BadChoice(f"no kind of curve {name!r}{nearest(name, KINDS)} (there are: {', '.join(KINDS)})")
    if fill and fill not in FILLS:
        raise BadChoice(f"no filling {fill!r}{nearest(fill, FILLS)} (there are: {', '.join(FILLS)})")
    return replace(KINDS[name], fill=fill or KINDS[name].fill)


def filling(fill: str, network: Network, tensors: Tensor) -> Tensor:
    """What stands where a picture is not shown; it broadcasts to the pictures."""
    if fill == "black":
        return normalization_of(network).gray(0)
    if fill == "mean":
        return torch.zeros(1, 1, 1, 1)
    shorter = min(tensors.shape[2:])
    radius = min(math.ceil(3 * BLUR * shorter), shorter - 1)  # the border is mirrored, which reaches no further
    return gaussian_blur(tensors, 2 * radius + 1, BLUR * shorter)
