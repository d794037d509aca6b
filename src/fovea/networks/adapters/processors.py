"""How pictures come in, as other libraries say it: an image processor of transformers, torchvision's weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, nn

from fovea.pictures import Prepare, Transform

NEAR = 0.1  # in values of the input; resizing by another library differs by less


@dataclass(frozen=True)
class Processed:
    """A picture by an image processor, which cannot be said as `Prepare`."""

    processor: Any

    def __call__(self, image: Image.Image) -> Tensor:
        pixels: Tensor = self.processor(images=image, return_tensors="pt")["pixel_values"]
        return pixels[0]


def transform_of(given: Any) -> tuple[Transform | None, tuple[str, ...] | None]:
    """What prepares a picture, and the classes, where they are said with it."""
    if callable(getattr(given, "transforms", None)) and hasattr(given, "meta"):  # torchvision's weights
        return preset(given.transforms()), tuple(given.meta.get("categories", ())) or None
    given = getattr(given, "image_processor", given)
    if not hasattr(given, "image_mean") or not hasattr(given, "preprocess"):
        return given, None
    own = Processed(given)
    prepare = _prepare(given)
    return (prepare if prepare is not None and _same(prepare, own) else own), None


def preset(transform: Any) -> Transform:
    """torchvision's preset of a classifier."""
    if not hasattr(transform, "crop_size"):
        return transform
    crop, resize = transform.crop_size[0], transform.resize_size[0]
    mean, std = tuple(transform.mean), tuple(transform.std)
    return Prepare((crop, crop), mean, std, crop / resize, transform.interpolation.value)


def from_config(module: nn.Module) -> Transform | None:
    """The image processor that goes with a model of transformers, for the size in its config."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING as usual_for

    config: Any = module.config
    configs = config, getattr(config, "vision_config", config)
    known: Any = next((usual_for[type(part)] for part in configs if type(part) in usual_for), None)
    kinds = known.values() if isinstance(known, dict) else known if isinstance(known, tuple) else [known]
    kind = next((kind for kind in kinds if kind is not None), None)
    if kind is None:
        return None
    usual, side = kind(), getattr(configs[1], "image_size", None)
    sides = (side, side) if isinstance(side, int) else tuple(side or ())
    if len(sides) != 2:
        return transform_of(usual)[0]
    mean, std = tuple(usual.image_mean), tuple(usual.image_std)
    return Prepare(sides, mean, std, 1.0 if _get(usual, "do_center_crop") else None, _resampling(usual))


def _get(processor: Any, name: str) -> Any:
    return getattr(processor, name, None)


def _resampling(processor: Any) -> Any:
    return Image.Resampling(int(_get(processor, "resample") or 2)).name.lower()


def _prepare(processor: Any) -> Prepare | None:
    size, crop = (_sides(_get(processor, name)) for name in ("size", "crop_size"))
    mean, std = tuple(processor.image_mean or ()), tuple(processor.image_std or ())
    if _get(processor, "do_normalize") is False:
        mean, std = (0.0,) * 3, (1.0,) * 3
    try:
        if _get(processor, "do_center_crop") and isinstance(crop, tuple) and isinstance(size, int):
            return Prepare(crop, mean, std, min(crop) / size, _resampling(processor))
        if isinstance(size, int) and _get(processor, "crop_pct") and size < 384:  # ConvNeXt's
            return Prepare((size, size), mean, std, float(processor.crop_pct), _resampling(processor))
        if isinstance(size, int) and _get(processor, "crop_pct"):
            return Prepare((size, size), mean, std, None, _resampling(processor))
        return Prepare(size, mean, std, None, _resampling(processor)) if isinstance(size, tuple) else None
    except (ValueError, TypeError):
        return None


def _sides(size: Any) -> tuple[int, int] | int | None:
    """Height and width, or the short side."""
    names = "height", "width", "shortest_edge", "longest_edge"
    sides: list[Any] = [size.get(name) if isinstance(size, dict) else getattr(size, name, None) for name in names]
    if sides[0] and sides[1]:
        return int(sides[0]), int(sides[1])
    return int(sides[2]) if sides[2] and not sides[3] else None


def _same(prepare: Prepare, processed: Processed) -> bool:
    """Whether both make the same of a picture."""
    x, y = np.meshgrid(np.linspace(0, 3, 301), np.linspace(0, 2, 227))
    image = Image.fromarray(np.uint8(127 + 120 * np.stack([np.sin(x), np.cos(y), np.sin(x * y)], -1)))
    try:
        ours, theirs = prepare(image), processed(image)
    except Exception:  # of a processor that wants more than pictures
        return False
    return ours.shape == theirs.shape and bool((ours - theirs).abs().max() < NEAR)
