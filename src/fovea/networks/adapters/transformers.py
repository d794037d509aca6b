"""Models of transformers that take pictures: classifiers, segmentation, detection by queries, and plain encoders."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fovea.networks.adapters import Adapted, adapter, last_layer
from fovea.networks.adapters.boxes import Boxes, Candidates, best_of_classes
from fovea.networks.adapters.processors import from_config


@adapter("transformers", about="models of transformers that take pixel_values, their classes by config.id2label")
def transformers(given: Adapted) -> Adapted | None:
    """The transform is the processor's, or the usual one for the config."""
    model: Any = given.module
    config = getattr(model, "config", None)
    if config is None or getattr(model, "main_input_name", "") != "pixel_values":
        return None
    given = replace(given, transform=given.transform or from_config(model))
    if given.output is not None:
        return given
    if model.base_model is model:  # an encoder alone
        return replace(given, output=pooled, abilities=given.abilities | {"embedding"})
    names = getattr(config, "id2label", None) or {}
    labels = given.labels or tuple(str(names[i]) for i in sorted(names)) or None
    if hasattr(config, "num_queries") and labels is not None:
        return _detector(replace(given, labels=labels), len(labels))
    several = {"several"} if getattr(config, "problem_type", None) == "multi_label_classification" else set()
    pixels = {"pixels"} if "Segmentation" in type(model).__name__ else set()
    return replace(given, labels=labels, output=class_means, abilities=given.abilities | several | pixels)


def pooled(out: Any) -> Tensor:
    """The vector that an encoder gives a picture: its pooled output, or its first token."""
    vector: Tensor | None = getattr(out, "pooler_output", None)
    return out.last_hidden_state[:, 0] if vector is None else vector.flatten(1)


def _detector(given: Adapted, classes: int) -> Adapted:
    """A detector by queries, as DETR: every query has a box and a score per class."""
    layers: Any = [layer for name, layer in given.module.named_modules() if name.endswith("encoder.layers")]
    return replace(
        given,
        layer=given.layer or (layers[0][-1] if layers else None),
        output=lambda out: best_of_classes(by_queries(out, classes), classes),
        abilities=given.abilities | {"several"},
        asked=Boxes(lambda out: by_queries(out, classes)),
    )


def by_queries(out: Any, classes: int) -> list[Candidates]:
    """Logits N,Q,C, with one more for "no object" or without, and boxes N,Q,4 (middle, width and height)."""
    scores = out.logits.softmax(-1)[..., :classes] if out.logits.shape[-1] > classes else out.logits.sigmoid()  # N,Q,C
    middle, half = out.pred_boxes[..., :2], out.pred_boxes[..., 2:] / 2
    boxes = torch.cat([middle - half, middle + half], -1)
    labels = torch.arange(classes, device=boxes.device).repeat(scores.shape[1])
    each = zip(boxes, scores, strict=True)
    return [Candidates.of(own.repeat_interleave(classes, 0), labels, score.flatten()) for own, score in each]


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
