"""Ablation-CAM (Desai and Ramaswamy 2020): no gradients; every channel is taken away once."""

import torch
from torch import Tensor

from fovea.heatmaps import method
from fovea.heatmaps.exact import rounding, tolerance
from fovea.heatmaps.look import Finding, Look, score_of, whole_output
from fovea.heatmaps.targets import Aim, Score

MOST_ROWS = 64  # of features without a channel that pass the head at once


@method(
    "ablationcam",
    about="channels weighted by what the score loses without them",
    costly=True,
    paper="Desai and Ramaswamy 2020",
    takes="one pass of the layers after the cut per channel; none where these are affine",
    through="head",
    instead="gradcam",
)
class AblationCAM:
    """M = ReLU(sum_k w_k A_k), with w_k = (y - y_k) / |y|, Eq. 4: y_k is the score with channel k at zero. Only the
    layers after the cut run. Where the score is affine in the channels, as after average pooling and a linear layer, y
    - y_k = sum_p g_kp A_kp with g = dy/dA, and nothing runs: proved for every batch by random channels' sizes, put
    through the head. The paper divides by y; by |y|, a score below zero does not turn the map around."""

    name = "ablationcam"

    def passes(self, look: Look) -> int:
        return 1 if _follows(look, whole_output, _shares(look, whole_output, "sum")) else look.cells.shape[1]

    def __call__(self, look: Look, aim: Aim) -> Finding:
        score, key = score_of(aim)
        lost = _shares(look, score, key)  # B,k: y - y_k, as the tangent has it
        if not _follows(look, score, lost):
            lost = look.join([_ablated(look, score, step) for step in look.each_step()])
        output = look.output if look.differentiable else look.output.detach()
        whole = look.join([score(output).abs()] * look.steps).unsqueeze(1)  # B,1
        return look.weigh(lost / whole.where(whole != 0, 1.0))


def _shares(look: Look, score: Score, key: object) -> Tensor:
    return (look.gradient(score, key) * look.cells).sum(2)  # B,k


def _follows(look: Look, score: Score, shares: Tensor) -> bool:
    """Is the score affine in the channels: does it follow its tangent to channels of random size and sign?"""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randn(1, 1, shares.shape[1], generator=generator).to(shares)
    with torch.no_grad():
        here = score(look.output)
        for step in look.each_step():
            own = look.at_step(shares, step)  # N,k
            there = _scores(look, score, sizes, step)[0]
            error = (there - here - own @ (sizes[0, 0] - 1)).abs()
            scale = own.abs() @ (1 + sizes[0, 0].abs())
            if not bool((error <= tolerance(there) * scale + rounding(here, there)).all()):
                return False
    return True


def _ablated(look: Look, score: Score, step: int) -> Tensor:
    """y - y_k by taking channel after channel away, as many at a time as fit: N,k."""
    channels, lost = look.cells.shape[1], list[Tensor]()
    at_once = max(MOST_ROWS // len(look.opened.features), 1) if look.opened.free else 1
    with torch.set_grad_enabled(look.differentiable):
        kept = 1 - torch.eye(channels, dtype=look.cells.dtype, device=look.cells.device).unsqueeze(1)  # k,1,k
        for some in torch.split(kept, at_once):
            lost += list(score(look.output) - _scores(look, score, some, step))
            look.tell(len(lost), channels)
    return torch.stack(lost, dim=1)


def _scores(look: Look, score: Score, sizes: Tensor, step: int) -> Tensor:
    """The score with one frame's channels multiplied: sizes M,1,k to M,N."""
    opened = look.opened
    features = opened.features if look.differentiable else opened.features.detach()
    pictures = len(look.output)
    every = sizes.new_ones(len(sizes), pictures, look.steps, sizes.shape[2])  # M,N,T,k
    every = torch.select_scatter(every, sizes.expand(-1, pictures, -1), 2, step).flatten(0, 2)
    many = features.repeat(len(sizes), *[1] * (features.ndim - 1))  # MB,...
    outputs = opened.head(opened.layout.times_channels(many, every))
    return torch.stack([score(output) for output in outputs.view(len(sizes), pictures, *outputs.shape[1:])])
