"""From the user's picture to the network's input, and the way back for coordinates."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice
from fovea.pictures.placement import Placement
from fovea.pictures.windows import constant

Transform = Callable[[Image.Image], Tensor]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
LONGEST = 2.0  # how many times as long as the network's own a side of the input becomes at most
TRIES = 24  # of a transform that draws random numbers, to see whether they change anything
CANNOT_FOLLOW = (
    "cannot follow where this transform puts pixels (it turns, warps or recolors them); "
    "give one that only crops, pads, flips, resizes and normalizes, or pass tensors"
)


@runtime_checkable
class Placing(Protocol):
    """A transform that knows where it puts pixels."""

    def placement(self, width: int, height: int) -> Placement: ...


@dataclass(frozen=True)
class Prepare:
    """Resize the middle (`crop`: the share of the short side kept), or squash the whole picture in (`crop=None`);
    `whole` keeps its proportions then, and pads it with the mean color, or, with a `step`, makes the input's sides
    differ by whole steps of so many pixels, to the picture's proportions at about as many pixels."""

    size: tuple[int, int]  # height, width
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    crop: float | None = 0.875
    interpolation: Interpolation = "bicubic"
    whole: bool = False
    step: int = 0  # 0: all inputs have one size

    @property
    def resampling(self) -> Image.Resampling:
        return Image.Resampling[self.interpolation.upper()]

    def __call__(self, image: Image.Image) -> Tensor:
        return self.normalize(self.pixels(image))

    def pixels(self, image: Image.Image) -> Tensor:
        """What is left to do is the same for every pixel, so this may be kept, in a byte a value (C,H,W)."""
        if self.step:
            return self.sized(*image.size).pixels(image)
        height, width = self.size
        if self.whole:
            inner, corner = self._inside(*image.size)
            mean = tuple(round(255 * share) for share in self.mean * (3 // len(self.mean)))
            small = Image.new("RGB", (width, height), mean)
            small.paste(image.resize(inner, self.resampling), corner)
        else:
            small = image.resize((width, height), self.resampling, box=self.placement(*image.size).window)
        if len(self.mean) == 1:
            small = small.convert("L")
        return torch.from_numpy(np.array(small)).reshape(height, width, -1).permute(2, 0, 1)

    def normalize(self, pixels: Tensor) -> Tensor:
        """From 0 to 255 to the values that the network was trained on, for one picture or a batch."""
        mean, std = (constant(row, pixels.device).view(-1, 1, 1) for row in (self.mean, self.std))
        return (pixels.float() / 255).sub_(mean).div_(std)

    def placement(self, width: int, height: int) -> Placement:
        if self.step:
            return self.sized(width, height).placement(width, height)
        h, w = self.size
        if self.whole:
            inner, corner = self._inside(width, height)
            x, y = width / inner[0], height / inner[1]
            return Placement((width, height), (w, h), (x, y), (-x * corner[0], -y * corner[1]))
        if self.crop is None:
            return Placement((width, height), (w, h), (width / w, height / h), (0.0, 0.0))
        scale = self.crop * min(width / w, height / h)
        return Placement((width, height), (w, h), (scale, scale), ((width - scale * w) / 2, (height - scale * h) / 2))

    def sized(self, width: int, height: int) -> "Prepare":
        """With the size that a picture of this one has as an input: whole steps from the network's own, which squashes
        it by less than a step; one that is very long is padded as well."""
        if not self.step:
            return self
        h, w = self.size
        stretch = math.sqrt(width / height * h / w)
        bounded = min(max(stretch, 1 / LONGEST), LONGEST)
        wanted = ((h, h / bounded), (w, w * bounded))
        high, wide = (max(side + self.step * round((to - side) / self.step), self.step) for side, to in wanted)
        return replace(self, size=(high, wide), whole=bounded != stretch, step=0)

    def _inside(self, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The whole picture in its proportions: its size in the input, and where it begins there."""
        h, w = self.size
        shrink = max(width / w, height / h)
        inner = max(round(width / shrink), 1), max(round(height / shrink), 1)
        return inner, ((w - inner[0]) // 2, (h - inner[1]) // 2)


def placement_of(transform: Transform, width: int, height: int) -> Placement:
    """Where any transform puts the pixels of a picture of this size: asked, or found by sending ramps through it."""
    if isinstance(transform, Placing):
        return transform.placement(width, height)
    return probe(transform, width, height)


def probe(transform: Transform, width: int, height: int) -> Placement:
    """Send a horizontal and a vertical ramp through the transform: their values name the pixels they came from.

    Black and white pictures tell what normalization did to values and which pixels are padding."""
    size, before = (width, height), _random_numbers()
    black, white = (_sent(transform, Image.new("RGB", size, color)) for color in ("black", "white"))
    across, down = _sent(transform, _ramp(size, 0)), _sent(transform, _ramp(size, 1))
    draws = _random_numbers() != before  # some that draw always do the same, as a flip with p=1
    for _ in range(TRIES if draws else 1):
        again = _sent(transform, _ramp(size, 0))
        if across.shape != again.shape or not np.allclose(across, again, atol=1e-4, equal_nan=True):
            raise BadChoice("the transform is random: give the one used for evaluation, so that maps can be placed")
    span = white - black
    if black.shape != across.shape or not np.abs(span).max() > 0:
        raise BadChoice(CANNOT_FOLLOW)
    shown = np.abs(span) > 0.5 * np.abs(span).max()
    safe = np.where(shown, span, 1)
    (sx, ox), (sy, oy) = (
        _line((across - black) / safe, shown, width, axis=1),
        _line((down - black) / safe, shown, height, axis=0),
    )
    return Placement((width, height), (black.shape[1], black.shape[0]), (sx, sy), (ox, oy))


def _ramp(size: tuple[int, int], axis: int) -> Image.Image:
    """From black to white along an axis, in the middles of its pixels."""
    line = np.rint((np.arange(size[axis]) + 0.5) / size[axis] * 255).astype(np.uint8)
    image = Image.fromarray(line.reshape((1, -1) if axis == 0 else (-1, 1)))
    return image.convert("RGB").resize(size, Image.Resampling.NEAREST)


def _random_numbers() -> tuple[object, ...]:
    """Where the generators stand that a transform may draw from."""
    numpy: Any = np.random.get_state()
    return random.getstate(), numpy[1].tobytes(), numpy[2], torch.get_rng_state().numpy().tobytes()


def _sent(transform: Transform, image: Image.Image) -> np.ndarray:
    out = transform(image)
    if not isinstance(out, Tensor) or out.ndim != 3:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise BadChoice(f"a transform takes a PIL picture and returns a C,H,W tensor; this one returned {got}")
    return out[0].detach().double().cpu().numpy()


def _line(share: np.ndarray, shown: np.ndarray, length: int, axis: int) -> tuple[float, float]:
    """Fit user coordinate = input coordinate * scale + offset along one axis, on the inner part of what is shown."""
    index = np.broadcast_to(np.expand_dims(np.arange(share.shape[axis]) + 0.5, 1 - axis), share.shape)
    inner = shown & (share > 0.04) & (share < 0.96)
    if inner.sum() < 4:
        inner = shown
    scale, offset = np.polyfit(index[inner], share[inner] * length, 1)
    error = np.abs(index[inner] * scale + offset - share[inner] * length).max()
    if error > max(0.03 * length, 2.0):
        raise BadChoice(CANNOT_FOLLOW)
    return float(scale), float(offset)
