"""Attention rollout (Abnar & Zuidema 2020), and weighted by gradients (Chefer et al. 2021), for vision transformers."""

import torch
from torch import Tensor

from fovea.heatmaps import Aim, Finding, Look, method, score_of
from fovea.heatmaps.attention import attention_of


@method(
    "rollout",
    about="attention followed through all layers of a transformer",
    passes=3,
    on="attention",
    oblivious=True,
    paper="Abnar and Zuidema 2020",
    takes="one pass there and back",
    needs="self-attention over all patches",
)
class Rollout:
    """R = Ã_L ... Ã_2 Ã_1 with Ã_l = (mean over heads of A_l + I) / 2 (Eq. 1); the map is what the head reads of the
    patches: the class token's row, or the mean of the patches' rows. Of whatever class: attention tells what is passed
    on, not what for."""

    name = "rollout"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        attention = attention_of(look)
        rolled = _same(attention.layers[0])
        for weights in attention.layers:
            rolled = (attention.of_heads(weights).mean(1) @ rolled + rolled) / 2  # B,T,T
        shares = [attention.of_heads(weights).mean(1) for weights in attention.pooling] or [attention.read]
        return attention.finding(shares[0], rolled, f"{len(attention.layers)} layers")


@method(
    "rollout-gradient",
    about="the same, each attention weighted by its gradient for the class",
    passes=3,
    on="attention",
    paper="Chefer et al. 2021",
    takes="one pass there and back",
    needs="self-attention over all patches",
)
class GradientRollout:
    """R <- R + Ā_l R, first to last layer, from R = I, with Ā_l = mean over heads of (∇A_l ⊙ A_l)+ (Chefer et al. 2021,
    "Generic Attention-model Explainability", Eqs. 5 and 6); the map is read off R - I as in `rollout`."""

    name = "rollout-gradient"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        attention = attention_of(look)
        weighted = [
            attention.of_heads(gradient * weights).relu().mean(1)
            for weights, gradient in zip(
                [*attention.layers, *attention.pooling], attention.gradients(score_of(aim)[0]), strict=True
            )
        ]
        start = rolled = _same(attention.layers[0])
        for relevance in weighted[: len(attention.layers)]:
            rolled = rolled + relevance @ rolled  # B,T,T
        shares = weighted[len(attention.layers) :] or [attention.read]
        return attention.finding(shares[0], rolled - start, f"{len(attention.layers)} layers")


def _same(weights: Tensor) -> Tensor:
    return torch.eye(weights.shape[-1], device=weights.device, dtype=weights.dtype)
