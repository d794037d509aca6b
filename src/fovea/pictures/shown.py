"""One picture, or clip, as it was explained."""

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice, finite
from fovea.pictures.gathering import Picture
from fovea.pictures.placement import Placement

PHOTOGRAPH = 480, 480  # pixels at most, as pages show it


def smaller(image: Image.Image, room: tuple[int, int] = PHOTOGRAPH) -> Image.Image:
    """Shrunk to fit where it does not."""
    shrink = min(1.0, room[0] / image.width, room[1] / image.height)
    size = max(round(image.width * shrink), 1), max(round(image.height * shrink), 1)
    return image if shrink == 1 else image.resize(size, Image.Resampling.HAMMING, reducing_gap=1.0)


class Windows(Protocol):
    """A picture that windows are read from: one in memory, or a file too large to load."""

    @property
    def size(self) -> tuple[int, int]: ...  # width, height

    def read(
        self, box: tuple[int, int, int, int], size: tuple[int, int], resample: Image.Resampling = ...
    ) -> Image.Image: ...


@dataclass(frozen=True)
class Decoded:
    """A picture in memory, upright and RGB."""

    image: Image.Image

    @property
    def size(self) -> tuple[int, int]:
        return self.image.size

    def read(
        self,
        box: tuple[int, int, int, int],
        size: tuple[int, int],
        resample: Image.Resampling = Image.Resampling.BILINEAR,
    ) -> Image.Image:
        part = self.image if box == (0, 0, *self.size) else self.image.crop(box)  # no copy of all of it
        return part.resize(size, resample)


class Moving(Protocol):
    """What has a picture a frame, as a clip has."""

    def image(self, frame: int) -> Image.Image: ...


@dataclass(frozen=True)
class Shown:
    """One picture, or clip, as it was explained."""

    name: str
    placement: Placement | None  # None when the input has no pixels to go back to (1-D and 3-D inputs)
    picture: Picture | Tensor | Moving
    predictions: tuple[tuple[str, float], ...] = ()  # label, probability; the best first

    def image(self, frame: int = 0) -> Image.Image:
        if isinstance(self.picture, Picture):
            kept = self.picture.again()
            if kept is not None and self.placement is not None and kept.size == self.placement.picture:
                return kept.copy()
            return self.picture.read(sys.maxsize)  # its size was accepted when it was explained
        if not isinstance(self.picture, Tensor):
            return self.picture.image(frame)
        pixels = self.picture.detach().float().cpu()
        pixels = pixels[frame] if pixels.ndim == 4 else pixels  # T,C,H,W
        if pixels.ndim != 3 or pixels.shape[0] not in (1, 3):
            raise BadChoice(f"a tensor of shape {tuple(pixels.shape)} cannot be shown as a picture; use .values")
        low, high = pixels.amin(), pixels.amax()  # the user's own normalization is not known
        gray = ((pixels - low) / (high - low).clamp(min=1e-9) * 255).round().byte().permute(1, 2, 0).numpy()
        return Image.fromarray(gray.squeeze()).convert("RGB")

    def photograph(self, frame: int = 0) -> Image.Image:
        """As a page shows it."""
        kept = self.picture.again() if isinstance(self.picture, Picture) else None
        return smaller(self.image(frame)) if kept is None else kept


def about(shown: Shown) -> dict[str, Any]:
    return {"picture": shown.name, **facts(shown)}


def facts(shown: Shown) -> dict[str, Any]:
    """Its size, the box of it that the network was shown, and what it is taken for."""
    return {
        "size": list(shown.placement.picture) if shown.placement else None,
        "seen": [round(side, 2) for side in shown.placement.window] if shown.placement else None,
        "predictions": [{"label": label, "probability": finite(share)} for label, share in shown.predictions],
    }
