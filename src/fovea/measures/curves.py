"""What a network makes of pictures of which only a part is shown: the curves behind every figure of faithfulness.

Their kinds say whether the best pixels are kept or taken away, and what stands in place of the rest."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice, nearest
from fovea.networks import FILLS, Network, as_found, normalization_of, rank_of

Pair = tuple[Tensor, Tensor]


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
    "insertion": Kind("insertion", True, "blur", "probability"),
    "deletion": Kind("deletion", False, "mean", "probability"),
    "coverage": Kind("coverage", True, "black", "accuracy"),
    "masking": Kind("masking", False, "black", "accuracy"),
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


@dataclass(frozen=True)
class Curve:
    """N pictures, each under S masks."""

    shown: NDArray[np.float64]  # N,S: the share of the pixels that is shown
    probability: NDArray[np.float64]  # N,S: of the class that is followed
    right: NDArray[np.bool_]  # N,S: the label comes first; a tie does not


def curve(
    network: Network,
    tensors: Tensor,
    labels: Tensor,
    masks: Tensor,
    fill: Tensor | None = None,
    followed: Tensor | None = None,
    batch: int = 16,
) -> Curve:
    """The network's answers to every picture under every mask. `masks` (N,S,H,W; from a heatmap, from boxes, from
    anything) is true where a picture is shown. Elsewhere `fill` is: a tensor that broadcasts to the pictures, or black,
    which is the paper's "set the pixels to 0" (AnchorNet, Fig. 12). `followed` are the classes whose probability is
    told: the labels, if not given."""
    count, _, height, width = tensors.shape
    if masks.ndim != 4 or masks.dtype != torch.bool or masks.shape[0] != count or masks.shape[2:] != (height, width):
        got = tuple(masks.shape)
        raise BadChoice(f"masks are N,S,H,W of bools, here {count},S,{height},{width}; got {got} of {masks.dtype}")
    steps = masks.shape[1]
    fill = normalization_of(network).gray(0) if fill is None else fill
    classes = labels if followed is None else followed
    probabilities, right = [], []
    for output, own in under_masks(network, tensors, masks.to(tensors.device), fill, batch):
        share = output.float().softmax(1).gather(1, classes[own].to(output.device).unsqueeze(1))
        probabilities.append(share.squeeze(1).cpu().double().numpy())
        right.append(rank_of(output, labels[own]) < 1)
    told = (np.concatenate(each).reshape(count, steps) for each in (probabilities, right))
    return Curve(masks.sum((2, 3)).cpu().numpy() / (height * width), *told)


def under_masks(network: Network, tensors: Tensor, masks: Tensor, fill: Tensor, batch: int) -> Iterator[Pair]:
    """The outputs for every picture under every mask (N,S,H,W), a batch at a time, with which picture each is of."""
    (count, steps), fill = masks.shape[:2], fill.to(tensors).expand_as(tensors)
    flat = masks.flatten(0, 1).unsqueeze(1)  # N*S,1,H,W
    for start in range(0, count * steps, batch):
        own = torch.arange(start, min(start + batch, count * steps)) // steps
        with as_found(network), torch.no_grad():
            output = network(torch.where(flat[start : start + batch], tensors[own], fill[own]))
        yield output, own


def places(maps: Tensor, height: int, width: int) -> Tensor:
    """Every pixel's place (N,H,W) when maps of cells (N,h,w) are sorted, best first; equals in reading order."""
    # a map's own smallest value is taken off, so that a constant one stays constant when it is interpolated
    cells = (maps - maps.amin((1, 2), keepdim=True)).float().unsqueeze(1)
    pixels = F.interpolate(cells, (height, width), mode="bilinear", align_corners=False).flatten(1)  # N,H*W
    order = pixels.argsort(dim=1, descending=True, stable=True)
    index = torch.arange(height * width, device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, index).view(-1, height, width)


def best(places: Tensor, shares: NDArray[np.float64]) -> Tensor:
    """Masks (N,S,H,W) of each picture's best pixels, S shares of them."""
    counts = np.rint(shares * places[0].numel())
    limits = torch.from_numpy(counts).to(places.device).view(-1, 1, 1)
    return places.unsqueeze(1) < limits


def joined(curves: list[Curve], axis: int) -> Curve:
    """Curves of more pictures (axis 0), or of more masks (axis 1), as one."""
    columns = ([getattr(one, name) for one in curves] for name in ("shown", "probability", "right"))
    return Curve(*(np.concatenate(column, axis) for column in columns))


def area_under(values: NDArray[np.floating], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """By the trapezoid rule, along the last axis."""
    return ((values[..., 1:] + values[..., :-1]) / 2 * np.diff(at)).sum(-1)
