"""What a filter may be: the paper's unit L2 norm, and the alternatives of its ablation (4.4). One function each."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Constraint = Callable[[Tensor, Sequence[int]], Tensor]  # free numbers N,F and the grid, to a filter N,P


def l2(v: Tensor, grid: Sequence[int]) -> Tensor:
    """f = v / |v|."""
    length: Tensor = v.norm(dim=1, keepdim=True)
    return v / length


def l1(v: Tensor, grid: Sequence[int]) -> Tensor:
    """f = v / sum |v|."""
    return v / v.abs().sum(1, keepdim=True)


def softmax(v: Tensor, grid: Sequence[int]) -> Tensor:
    """f = exp v / sum exp v: sparse."""
    return v.softmax(1)


def gaussian(v: Tensor, grid: Sequence[int]) -> Tensor:
    """f(p) = exp(-|p - mu|^2 / 2) over its sum: the mean is free, the covariance is one cell. A single mode."""
    axes = [torch.arange(length, device=v.device, dtype=v.dtype) for length in grid]
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)  # P,dims
    return (-(places - v.unsqueeze(1)).square().sum(2) / 2).softmax(1)


CONSTRAINTS: dict[str, Constraint] = {"l2": l2, "l1": l1, "softmax": softmax, "gaussian": gaussian}


def start(name: str, wanted: Tensor, grid: Sequence[int]) -> Tensor:
    """Free numbers to start from, near a filter that is wanted (N,P)."""
    if name == "gaussian":
        best = wanted.argmax(1)
        return torch.stack([index.to(wanted) for index in torch.unravel_index(best, tuple(grid))], dim=1)
    if name == "softmax":
        return torch.zeros_like(wanted)
    return wanted.clone()
