"""The attention of a transformer as it runs, whatever library wrote it, and the tokens that its head reads.

torch shows every attention that this thread computes; no layer is touched."""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fovea.basics import DoesNotApply
from fovea.heatmaps.look import Finding, Look
from fovea.heatmaps.pixels import pixels_of
from fovea.heatmaps.targets import Score
from fovea.networks import Layout, Network, layout_of

NEEDS = "attention is rolled out through layers of self-attention over all patches of a picture"
SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}


@dataclass(frozen=True)
class Attention:
    """The weights of every layer, first to last, in the graph of the output, and the tokens that its head reads."""

    layers: list[Tensor]  # B,heads,T,T or B*heads,T,T
    pooling: list[Tensor]  # B,heads,1,T: those by which the head pools the tokens, where it does so by attention
    output: Tensor
    rows: int  # B
    layout: Layout  # of the T tokens

    def of_heads(self, weights: Tensor) -> Tensor:
        """B,heads,T,T."""
        return weights.view(self.rows, -1, *weights.shape[-2:])

    def gradients(self, score: Score) -> list[Tensor]:
        """Those of a score of the output: of the layers', then of the pooling's weights."""
        wanted = [*self.layers, *self.pooling]
        found = torch.autograd.grad(score(self.output).sum(), wanted, retain_graph=True, allow_unused=True)
        pairs = zip(wanted, found, strict=True)
        return [torch.zeros_like(weights) if gradient is None else gradient for weights, gradient in pairs]

    @property
    def read(self) -> Tensor:
        """In which shares the head reads the tokens, 1,1,T: equal ones of those whose weights in the last layer count
        for the output, as the class token's, or those of all patches."""
        generator = torch.Generator().manual_seed(0)
        mix = torch.randn(self.output.shape[1:], generator=generator).to(self.output)  # in which nothing cancels out
        gradient = self.gradients(lambda out: (out * mix).flatten(1).sum(1))[len(self.layers) - 1]
        counts = self.of_heads(gradient).abs().sum((0, 1, 3))  # T
        read = counts > 1e-6 * counts.amax()
        if not bool(read.any()):  # of an output that is the same for everything
            read[: 1 if self.layout.prefix else None] = True
        return (read / read.sum()).view(1, 1, -1)

    def finding(self, shares: Tensor, rolled: Tensor, solver: str) -> Finding:
        """How much of every patch is in what the head reads: by its shares of the tokens, B,1,T, and by the shares of
        tokens before the first layer in those after the last, B,T,T."""
        raw = (shares @ rolled).squeeze(1)[:, self.layout.prefix :].detach()
        return Finding(raw, raw, solver=solver, grid=self.layout.grid)


class _Listening(TorchFunctionMode):
    """Keeps every matrix of attention. A fused attention is computed step by step, as none would be there otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = list[Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._fused(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            all_heads = {**kwargs, "need_weights": True, "average_attn_weights": False}
            out, weights = cast(tuple[Tensor, Tensor], func(*args, **all_heads))
            self.kept.append(weights if weights._base is None else weights._base)  # in the output's graph
            return out, weights.mean(1) if kwargs.get("need_weights", True) else None
        out = func(*args, **kwargs)
        if func in SOFTMAX and out.ndim in (3, 4):
            self.kept.append(out)
        return out

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **more: Any,
    ) -> Tensor:
        """What F.scaled_dot_product_attention gives in eval mode; `more` may hold its `scale` and `enable_gqa`."""
        scale = more.get("scale")
        if more.get("enable_gqa"):
            key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
        logits = query @ key.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
        if is_causal:
            attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=query.device).tril()
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            logits = logits.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            logits = logits + attn_mask
        self.kept.append(logits.softmax(-1))
        return self.kept[-1] @ value


def attention_of(look: Look) -> Attention:
    """That of the batch, from one more pass."""
    rows, listening = len(pixels_of(look)), _Listening()
    with listening:
        output = cast(Network, look.network)(look.input.detach().clone().requires_grad_())
    layers = [kept for kept in listening.kept if kept.shape[-1] == kept.shape[-2] > 1]
    if not layers:
        raise DoesNotApply(f"{NEEDS}, and this network computes none: use gradcam or l2caf")
    tokens = layers[-1].shape[-1]
    layout = layout_of(layers[-1].new_empty(rows, tokens, 1), look.input)
    alike = all(kept.shape[-1] == tokens and (len(kept) == rows or kept.ndim == 3) for kept in layers)
    if not alike or layout is None:
        shapes = ", ".join(dict.fromkeys(f"{len(kept) // rows} x {kept.shape[-1]}" for kept in layers))
        raise DoesNotApply(f"{NEEDS}; this network's is within windows, or of other tokens ({shapes}): use gradcam")
    pooling = [kept for kept in listening.kept if kept.shape[-2:] == (1, tokens)]
    return Attention(layers, pooling[-1:], output, rows, layout)
