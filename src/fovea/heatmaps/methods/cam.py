"""Class activation maps (Zhou et al. 2016), for every head that is affine in the features."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fovea.basics import DoesNotApply
from fovea.heatmaps import Aim, Finding, Look, method, score_of
from fovea.heatmaps.exact import is_affine


@method(
    "cam",
    about="each cell's share of the class's logit",
    passes=1,
    paper="Zhou et al. 2016",
    needs="pooling and one linear layer after the cut",
)
@dataclass(frozen=True)
class CAM:
    """CAM_c(p) = sum_k w_ck A_k(p): what each cell adds to the class's logit, times the number of cells. With pooling
    and one linear layer, w_ck is P dy_c/dA_k(p), so no weights need to be found by name."""

    name = "cam"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        score, key = score_of(aim)
        slope = self.tangent(look, aim)
        if not is_affine(look, {key: (score, slope)}) and look.holds(torch.isfinite, slope):
            why = "this one is not: use gradcam or l2caf, or cut at a later layer"
            raise DoesNotApply(f"cam needs a head that is pooling and one linear layer after the cut; {why}")
        return self.of_tangent(slope)

    additive = True

    def tangent(self, look: Look, aim: Aim) -> Tensor:
        """d y / d f at f = 1, B,P."""
        return look.slope(*score_of(aim))

    def of_tangent(self, slope: Tensor) -> Finding:
        raw = slope * slope.shape[1]
        return Finding(raw, raw)
