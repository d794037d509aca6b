"""Score-CAM (Wang et al. 2020): no gradients; every channel shows the network its part of the picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import Bound, DoesNotApply
from fovea.heatmaps import Aim, Finding, Look, method

MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


@method(
    "scorecam",
    about="channels weighted by the score of the picture seen through them",
    costly=True,
    paper="Wang et al. 2020",
    takes="one pass per channel, or per so many channels",
    needs="an input to mask",
    instead="gradcam",
)
@dataclass(frozen=True)
class ScoreCAM:
    """M = ReLU(sum_k alpha_k A_k), Eq. 5, with alpha the softmax over k of the channels' increase of confidence.

    C(A_k) = f(X o H_k) - f(X_b), Eqs. 3 and 4: the score of the picture under the mask H_k = s(Up(A_k)), the channel
    upsampled to the picture and brought to 0..1, over that of a baseline. The softmax does not know the baseline, which
    is the same for every channel. Masks are made some at a time and never all at once. A frame is masked alone, the
    others pass as they are. With a number of `channels`, those alone that vary most over the cells are tried."""

    channels: Annotated[int, Bound(0, 1_000_000)] = 0  # 0: all

    name = "scorecam"

    def passes(self, look: Look) -> int:
        return min(self.channels or look.cells.shape[1], look.cells.shape[1])

    def __call__(self, look: Look, aim: Aim) -> Finding:
        lead = 2 if look.opened.frames is None else 3
        if look.input.ndim - lead != len(look.opened.layout.grid) or not look.input.is_floating_point():
            raise DoesNotApply(
                f"scorecam lays a layer's channels over the input, which is {tuple(look.input.shape)}; this layer's "
                f"cells are {look.opened.layout.grid}: use ablationcam or gradcam"
            )
        weights = []
        for step in look.each_step():
            cells = look.at_step(look.cells, step)  # N,k,P
            tried = cells.var(2, correction=0).topk(self.passes(look)).indices  # N,m
            scores = look.scores(self._masked(look, step, tried), aim, total=self.passes(look))  # m,N
            weights.append(cells.new_zeros(cells.shape[:2]).scatter(1, tried, scores.softmax(0).T.to(cells)))
        return look.weigh(look.join(weights))  # B,k

    def _masked(self, look: Look, step: int, tried: Tensor) -> Iterator[Tensor]:
        """The batch under each of the channels tried, N,m, of one frame: parts of m,N,..."""
        grid = look.opened.layout.grid
        size = look.input.shape[-len(grid) :]
        cells = look.at_step(look.cells, step).take_along_dim(tried.unsqueeze(2), 1)  # N,m,P
        for some in torch.split(cells.transpose(0, 1), look.at_once):  # m,N,P
            mask = F.interpolate(some.reshape(*some.shape[:2], *grid), size, mode=MODES[len(size)])  # m,N,H,W
            flat = mask.flatten(2)
            low, high = flat.amin(2, keepdim=True), flat.amax(2, keepdim=True)
            mask = ((flat - low) / (high - low).where(high > low, 1.0)).view_as(mask).unsqueeze(2)  # m,N,1,H,W
            if look.opened.frames is None:
                yield mask * look.input
            else:
                clips = look.input.expand(len(mask), *look.input.shape)  # m,N,T,C,H,W
                yield torch.select_scatter(clips, mask * look.input[:, step], 2, step)
