"""What a two-stream network saw of one picture: the whole of it, and each patch at every step."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from fovea.basics.files import finite
from fovea.heatmaps.heatmap import HeatMaps
from fovea.pictures.shown import Shown, about

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Said:
    """The class put first, and its probability."""

    label: str
    probability: float

    def __str__(self) -> str:
        return f"{self.label} {self.probability:.2f}"

    def row(self) -> dict[str, Any]:
        return {"label": self.label, "probability": finite(self.probability)}


@dataclass(frozen=True)
class SeenStep:
    """A patch at step t: what its features phi_t alone are taken for, and where that comes from."""

    number: int  # t, from 1
    weight: float  # alpha_t
    said: Said
    map: HeatMaps  # of one picture and one class, on the user's pixels inside the patch's box


@dataclass(frozen=True)
class SeenPatch:
    box: Box  # in the user's pixels
    said: Said  # by all steps together
    steps: tuple[SeenStep, ...]


@dataclass(frozen=True)
class Looked:
    """`said` is the answer, `whole_said` and `local_said` are the two streams' own; maps are of the class `target`."""

    shown: Shown  # with the predictions of both streams together
    said: Said
    whole_said: Said
    local_said: Said
    target: str
    method: str
    whole: HeatMaps  # of the global stream
    patches: tuple[SeenPatch, ...]
    truth: str | None = None

    @property
    def name(self) -> str:
        return self.shown.name

    @property
    def label(self) -> str:
        return self.said.label

    @property
    def probability(self) -> float:
        return self.said.probability

    def crops(self) -> list[Image.Image]:
        """The patches, cut out of the user's own picture."""
        image = self.shown.image()
        return [image.crop(whole_pixels(one.box, image.size)) for one in self.patches]

    def figure(self) -> Image.Image:
        """The strip: the picture with the global stream's map, its patches, and each of their steps."""
        from fovea.streams.figure import draw

        return draw(self)

    def line(self) -> str:
        """In a line: the answer, and those of the two streams."""
        count = len(self.patches)
        patches = f"{count} patch{'' if count == 1 else 'es'}"
        return f"{self.said} (global stream: {self.whole_said}, local stream: {self.local_said}, {patches})"

    def row(self) -> dict[str, Any]:
        return {
            **about(self.shown),
            **self.said.row(),
            "truth": self.truth,
            "global": self.whole_said.row(),
            "local": self.local_said.row(),
            "target": self.target,
            "method": self.method,
            "patches": [
                {
                    "box": list(patch.box),
                    **patch.said.row(),
                    "steps": [
                        {
                            "step": step.number,
                            "weight": finite(step.weight),
                            **step.said.row(),
                            "solver": step.map.solver or None,
                            "diagnosis": step.map.diagnosis[0][0],
                        }
                        for step in patch.steps
                    ],
                }
                for patch in self.patches
            ],
        }

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        buffer = BytesIO()
        self.figure().save(buffer, "png")
        return buffer.getvalue()


@dataclass(frozen=True)
class Looks:
    """One `Looked` a picture; `skipped` are those that could not be read, and why."""

    looks: tuple[Looked, ...]
    skipped: tuple[tuple[str, str], ...] = field(default=())

    def __len__(self) -> int:
        return len(self.looks)

    def __getitem__(self, index: int) -> Looked:
        return self.looks[index]

    def __iter__(self) -> Iterator[Looked]:
        return iter(self.looks)

    def save(self, folder: str | Path) -> list[dict[str, Any]]:
        """Strips, overlays, patches, raw values (.npy) and manifest.json into a folder; the rows come back."""
        from fovea.streams.writing import Writer

        with Writer(Path(folder), {}) as writer:
            writer.add(self.looks, self.skipped)
        return writer.rows


def whole_pixels(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The nearest box of whole pixels inside the picture, with at least one pixel in it."""
    x0, y0 = (min(max(round(side), 0), length - 1) for side, length in zip(box[:2], size, strict=True))
    x1, y1 = (
        min(max(round(side), start + 1), length) for side, start, length in zip(box[2:], (x0, y0), size, strict=True)
    )
    return x0, y0, x1, y1
