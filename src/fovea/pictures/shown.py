"""One picture, or clip, as it was explained."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice, finite, whole_pixels
from fovea.pictures.big import BigFacts
from fovea.pictures.gathering import Decoded, Picture, Windows
from fovea.pictures.placement import Placement

PHOTOGRAPH = 480, 480  # pixels at most, as pages show it


def smaller(image: Image.Image, room: tuple[int, int] = PHOTOGRAPH) -> Image.Image:
    """Shrunk to fit where it does not."""
    size = fitting(image.size, room)
    return image if size == image.size else image.resize(size, Image.Resampling.HAMMING, reducing_gap=1.0)


def fitting(size: tuple[int, int], room: tuple[int, int]) -> tuple[int, int]:
    """Of a picture of a size, where it is shrunk to fit."""
    shrink = min(1.0, room[0] / size[0], room[1] / size[1])
    return max(round(size[0] * shrink), 1), max(round(size[1] * shrink), 1)


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
    big: BigFacts | None = None  # of one that was read window by window

    def image(self, frame: int = 0) -> Image.Image:
        """All of it; of a big file, which is not loaded, a smaller copy."""
        if isinstance(self.picture, Picture):
            kept = self.picture.again()
            if kept is not None and self.placement is not None and kept.size == self.placement.picture:
                return kept.copy()
            with self.windows() as source:
                return source.image if isinstance(source, Decoded) else _within(source, (0, 0, *source.size))
        if not isinstance(self.picture, Tensor):
            return self.picture.image(frame)
        pixels = self.picture.detach().float().cpu()
        pixels = pixels[frame] if pixels.ndim == 4 else pixels  # T,C,H,W
        if pixels.ndim != 3 or pixels.shape[0] not in (1, 3):
            raise BadChoice(f"a tensor of shape {tuple(pixels.shape)} cannot be shown as a picture; use .values")
        low, high = pixels.amin(), pixels.amax()  # the user's own normalization is not known
        gray = ((pixels - low) / (high - low).clamp(min=1e-9) * 255).round().byte().permute(1, 2, 0).numpy()
        return Image.fromarray(gray.squeeze()).convert("RGB")

    @contextmanager
    def windows(self) -> Iterator[Windows]:
        """The picture to read windows from, at any size: a big file is not loaded for it."""
        if not isinstance(self.picture, Picture):
            yield Decoded(self.image())
            return
        with self.picture.windows(sys.maxsize) as source:  # its size was accepted when it was explained
            yield source

    def parts(self, boxes: Iterable[Sequence[float]]) -> list[Image.Image]:
        """Boxes, cut out of the user's own picture; those of a big file shrunk where they are large."""
        with self.windows() as source:
            return [_within(source, whole_pixels(box, source.size)) for box in boxes]

    def photograph(self, frame: int = 0) -> Image.Image:
        """As a page shows it."""
        kept = self.picture.again() if isinstance(self.picture, Picture) else None
        return smaller(self.image(frame)) if kept is None else kept


def _within(source: Windows, box: tuple[int, int, int, int]) -> Image.Image:
    """A part of a picture at its own size; of a big file, at as many pixels as are drawn."""
    if isinstance(source, Decoded):
        return source.image.crop(box)
    width, height = box[2] - box[0], box[3] - box[1]
    return source.read(box, Placement.identity(width, height).to_draw.picture)


def about(shown: Shown) -> dict[str, Any]:
    return {"picture": shown.name, **facts(shown)}


def facts(shown: Shown) -> dict[str, Any]:
    """Its size, the box of it that the network was shown, and what it is taken for."""
    return {
        "size": list(shown.placement.picture) if shown.placement else None,
        "seen": [round(side, 2) for side in shown.placement.window] if shown.placement else None,
        "predictions": [{"label": label, "probability": finite(share)} for label, share in shown.predictions],
        **(shown.big.to_dict() if shown.big is not None else {}),
    }
