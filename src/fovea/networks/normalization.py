"""Between pixels, 0 to 255, and the numbers a network takes: one straight line a channel, the same everywhere."""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice
from fovea.networks.network import Network
from fovea.pictures import Prepare, Transform

WHITE = 255
SIDE = 256  # of the pictures sent through a transform that does not say what it does
NO_LINE = (
    "cannot tell which numbers this network's transform makes of pixels: it must normalize each channel by numbers of "
    "its own, the same for every pixel and picture (as fovea.pictures.transforms.Prepare does)"
)


@dataclass(frozen=True)
class Normalization:
    """tensors = pixels * scale + shift, a channel each."""

    scale: tuple[float, ...]
    shift: tuple[float, ...]
    size: tuple[int, int]  # height, width of what the transform gives

    def to_tensors(self, pixels: Tensor) -> Tensor:
        return pixels * self._column(self.scale, pixels) + self._column(self.shift, pixels)

    def to_pixels(self, tensors: Tensor) -> Tensor:
        return (tensors - self._column(self.shift, tensors)) / self._column(self.scale, tensors)

    def gray(self, value: float) -> Tensor:
        """The tensor of a picture of one gray (1,C,1,1)."""
        return self.to_tensors(torch.full((1, len(self.scale), 1, 1), float(value)))

    @staticmethod
    def _column(numbers: tuple[float, ...], like: Tensor) -> Tensor:
        return torch.tensor(numbers, device=like.device, dtype=like.dtype).view(-1, 1, 1)


def normalization_of(network: Network) -> Normalization:
    """As the transform says, or found by sending plain black, white, gray and colored pictures through it."""
    transform = network.transform
    if transform is None:
        raise BadChoice("this network has no transform, so its pixels are not known: fovea.wrap(module, transform=...)")
    if isinstance(transform, Prepare):
        scale = tuple(1 / (WHITE * std) for std in transform.std)
        shift = tuple(-mean / std for mean, std in zip(transform.mean, transform.std, strict=True))
        return Normalization(scale, shift, transform.size)
    return _probed(transform)


def _probed(transform: Transform) -> Normalization:
    black, white, gray = (_sent(transform, (value,) * 3) for value in (0, WHITE, 128))  # C,H,W
    span = white - black
    largest = np.abs(span).max(axis=(1, 2), keepdims=True)
    if not np.isfinite(span).all() or not largest.all():
        raise BadChoice(NO_LINE)
    shown = np.abs(span) > 0.5 * largest  # not padding, which is the same for every picture
    spans, shifts, middles = ([_level(c[own]) for c, own in zip(x, shown, strict=True)] for x in (span, black, gray))
    expected = [shift + 128 / WHITE * one for one, shift in zip(spans, shifts, strict=True)]
    if not np.allclose(middles, expected, atol=0.02 * np.abs(spans).max()):
        raise BadChoice(NO_LINE)
    if len(spans) == 3:
        _no_mixing(transform, black, white, shown)
    return Normalization(tuple(one / WHITE for one in spans), tuple(shifts), (span.shape[1], span.shape[2]))


def _no_mixing(transform: Transform, black: np.ndarray, white: np.ndarray, shown: np.ndarray) -> None:
    """Each color must end up in a channel of its own, in the order red, green, blue."""
    for channel in range(3):
        found = _sent(transform, tuple(WHITE if c == channel else 0 for c in range(3)))
        expected = np.stack([white[c] if c == channel else black[c] for c in range(3)])
        if not np.allclose(found[shown], expected[shown], atol=0.02 * np.abs(white - black).max()):
            raise BadChoice(NO_LINE)


def _level(values: np.ndarray) -> float:
    middle = float(np.median(values))
    if np.abs(values - middle).max() > 0.02 * max(np.abs(values).max(), 1e-6):
        raise BadChoice(NO_LINE)
    return middle


def _sent(transform: Transform, color: tuple[int, ...]) -> np.ndarray:
    out = transform(Image.new("RGB", (SIDE, SIDE), color))  # type: ignore[arg-type]
    if not isinstance(out, Tensor) or out.ndim != 3:
        raise BadChoice(NO_LINE)
    return out.detach().double().cpu().numpy()
