"""Segmentation: a class's score is its mean logit over the picture."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from fovea.networks.adapters import Adapted, adapter, last_layer


@adapter("segmentation", about="segmentation networks of torchvision: the mean logit of a class over the picture")
def segmentation(given: Adapted) -> Adapted | None:
    model: Any = given.module
    if given.output is not None or not (hasattr(model, "backbone") and hasattr(model, "classifier")):
        return None
    layer = given.layer or last_layer(model.backbone)
    return replace(given, output=class_means, layer=layer, abilities=given.abilities | {"pixels"})


def class_means(out: Any) -> Tensor:
    """N,C,H,W of logits, alone or as `out` or `logits` of what a network returns, to N,C; other tensors as they are."""
    out = out.get("out", out) if isinstance(out, Mapping) else out
    logits: Tensor = getattr(out, "logits", out)
    return logits.mean((2, 3)) if isinstance(logits, Tensor) and logits.ndim == 4 else logits
