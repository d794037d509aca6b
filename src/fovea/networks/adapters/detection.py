"""Detectors of torchvision, and others built as they are: a transform of their own, a backbone, and boxes for a list of
pictures.

The transform (GeneralizedRCNNTransform: resize, normalize, pad) is the network's, so that where pixels go is known; the
detector then takes batches. It is asked without its threshold, so that a class which it hardly sees has a score too."""

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fovea.networks.adapters import Adapted, Facade, adapter, last_layer
from fovea.networks.adapters.boxes import Boxes, Candidates, best_of_classes
from fovea.pictures import Placement

OPEN = {"score_thresh": -1.0, "detections_per_img": 1_000_000}  # nothing is too doubtful
EXTRA = ("mask_roi_pool", "mask_head", "mask_predictor", "keypoint_roi_pool", "keypoint_head", "keypoint_predictor")


@adapter("detection", about="detectors of torchvision: the best box of a class, or the box nearest to a given one")
def detection(given: Adapted) -> Adapted | None:
    model: Any = given.module
    if not all(hasattr(model, part) for part in ("transform", "backbone")) or not hasattr(model.transform, "min_size"):
        return None
    if given.output is not None:
        return None
    classes = len(given.labels) if given.labels is not None else _classes(model)
    return replace(
        given,
        module=Detector(model),
        transform=Resized(model.transform),
        labels=given.labels or tuple(map(str, range(classes))),
        layer=given.layer or last_layer(model.backbone),
        output=lambda out: best_of_classes(out, classes),
        abilities=given.abilities | {"several"},
        asked=Boxes(lambda out: out),
    )


def _classes(model: nn.Module) -> int:
    counts = [
        getattr(layer, name)
        for part, name in (("cls_score", "out_features"), ("classification_head", "num_classes"), ("", "num_columns"))
        for place, layer in model.named_modules()
        if place.endswith(part) and hasattr(layer, name)
    ]
    return int(counts[0])


@dataclass(frozen=True, eq=False)
class Resized:
    """A picture as a detector's own transform makes it."""

    transform: Any

    def __call__(self, image: Image.Image) -> Tensor:
        own, pixels = self._still(), torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
        resized, _ = own.resize(own.normalize(pixels.float() / 255))
        batch: Tensor = own.batch_images([resized], size_divisible=own.size_divisible)
        return batch[0]

    def placement(self, width: int, height: int) -> Placement:
        own = self._still()
        h, w = own.resize(torch.empty(3, height, width, device="meta"))[0].shape[-2:]
        step = own.size_divisible
        padded = math.ceil(w / step) * step, math.ceil(h / step) * step
        return Placement((width, height), padded, (width / w, height / h), (0.0, 0.0))

    def _still(self) -> Any:
        """In eval mode, whatever the detector is in."""
        own = copy.copy(self.transform)
        own.training = False
        return own


@dataclass(frozen=True)
class _Images:
    """A batch as the parts of a detector take it."""

    tensors: Tensor
    image_sizes: list[tuple[int, int]]


class _Through(nn.Module):
    """In place of a detector's transform: pictures are as they should be."""

    def forward(self, images: list[Tensor], targets: Any = None) -> tuple[_Images, Any]:
        height, width = images[0].shape[-2:]
        return _Images(torch.stack(images), [(height, width)] * len(images)), targets

    def postprocess(self, result: Any, *_: Any) -> Any:
        return result


class Detector(Facade):
    """A batch to the candidates of every picture."""

    def forward(self, batch: Tensor) -> list[Candidates]:
        size = torch.tensor([batch.shape[-1], batch.shape[-2]] * 2).to(batch)
        found = _opened(self.model[0])(list(batch))
        return [Candidates.of(one["boxes"] / size, one["labels"], one["scores"]) for one in found]


def _opened(model: nn.Module) -> Any:
    """A copy that shares all layers and has no threshold, no masks and no transform."""
    own = _copy(model, {"transform": _Through()})
    heads = own._modules.get("roi_heads")
    asked = own if heads is None else _copy(heads, dict.fromkeys(EXTRA))
    for name, value in OPEN.items():
        setattr(asked, name, value)
    if heads is not None:
        own._modules["roi_heads"] = asked
    return own


def _copy(model: nn.Module, changes: dict[str, Any]) -> Any:
    own = copy.copy(model)
    own._modules = {**model._modules, **changes}
    own.training = False
    return own
