"""What localising a picture gives: its patches with their evidence, as crops, an overlay, JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics.errors import BadChoice
from fovea.basics.files import Names, finite, write_json
from fovea.pictures.placement import Placement, by_centres, middles
from fovea.pictures.shown import Shown, about
from fovea.results import drawing


@dataclass(frozen=True)
class Patch:
    """A box in the user's pixels, x0 y0 x1 y1, and what speaks for the class in it."""

    box: tuple[float, float, float, float]
    evidence: float
    cell: tuple[int, int]  # row, column


@dataclass(frozen=True)
class Answer:
    """What one branch alone says of a picture."""

    side: int
    label: str
    probability: float
    best: Patch  # for its own label


@dataclass(frozen=True)
class Found:
    """One picture: what it was taken for, and the patches that speak for it, best first."""

    shown: Shown
    label: str
    probability: float
    side: int  # of a patch, in the pixels of the network's input
    patches: tuple[Patch, ...]
    heatmap: NDArray[np.float32]  # h,w: the evidence of every cell
    branches: tuple[Answer, ...] = ()
    attention: tuple[NDArray[np.float32], ...] = ()  # h,w a branch, Eq. 10
    note: str = ""

    def crops(self) -> list[Image.Image]:
        """The patches, cut out of the user's own picture."""
        image = self.shown.image()
        return [image.crop(whole(one.box, image.size)) for one in self.patches]

    def overlay(self) -> Image.Image:
        """The patches on the picture, with what they say above it."""
        says = f"{self.label} {self.probability:.2f}"
        size = f"{len(self.patches)} patch{'es' if len(self.patches) != 1 else ''} of {self.side} x {self.side}"
        return drawing.titled(self.picture(), says, f"{size} · {self.note}" if self.note else size)

    def picture(self) -> Image.Image:
        """The patches on the picture, numbered; what no patch shows is pale."""
        image = self.shown.image()
        drawn, zoom = drawing.enlarged(image)
        boxes = [tuple(side * zoom for side in one.box) for one in self.patches]
        drawn = drawing.dimmed(drawn, boxes)
        for number, box in reversed(list(enumerate(boxes, 1))):
            drawing.draw_box(drawn, box, str(number))
        return drawn

    def attentions(self) -> Image.Image:
        """Where each branch attends to (Fig. 11), with what it alone takes the picture for."""
        if not self.attention:
            raise BadChoice("this network has no branches that attend")
        image, placement = self.shown.image(), self.shown.placement
        parts = []
        for one, values in zip(self.branches, self.attention, strict=True):
            place = placement or Placement.identity(*image.size)
            seen = middles(values.shape, one.side, place)  # beyond it no patch has its middle
            drawn = drawing.blend(image, by_centres(values, one.side, place), seen)
            says = f"{one.label} {one.probability:.2f}"
            parts.append(drawing.titled(drawn, says, f"attention of the branch of {one.side} x {one.side}"))
        return drawing.grid([parts])

    def row(self) -> dict[str, Any]:
        return {
            **about(self.shown),
            "label": self.label,
            "probability": finite(self.probability),
            "side": self.side,
            "patches": [_row(one) for one in self.patches],
            "branches": [
                {
                    "side": one.side,
                    "label": one.label,
                    "probability": finite(one.probability),
                    "best": _row(one.best),
                }
                for one in self.branches
            ],
            "note": self.note or None,
        }

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        buffer = BytesIO()
        self.overlay().save(buffer, "png")
        return buffer.getvalue()


@dataclass(frozen=True)
class Regions:
    """What was found in every picture; `skipped` are those that could not be read, and why."""

    found: tuple[Found, ...]
    skipped: tuple[tuple[str, str], ...] = field(default=())

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: int) -> Found:
        return self.found[index]

    def __iter__(self) -> Iterator[Found]:
        return iter(self.found)

    def save(self, folder: str | Path) -> list[dict[str, Any]]:
        """Overlays, crops and regions.json into a folder; the JSON's rows come back."""
        folder, names = Path(folder), Names()
        rows = [save(one, folder, names) for one in self.found]
        finish(folder, rows, self.skipped)
        return rows


def save(found: Found, folder: Path, names: Names) -> dict[str, Any]:
    """One picture's files, and the row about it."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = names.take(Path(found.shown.name).stem or "picture", found.shown.name)
    found.overlay().save(folder / f"{stem}.patches.png")
    crops = []
    for number, crop in enumerate(found.crops(), 1):
        crops.append(f"{stem}.patch{number}.png")
        crop.save(folder / crops[-1])
    np.save(folder / f"{stem}.evidence.npy", found.heatmap)
    files: dict[str, Any] = {"overlay": f"{stem}.patches.png", "crops": crops, "evidence": f"{stem}.evidence.npy"}
    if found.attention:
        found.attentions().save(folder / f"{stem}.attention.png")
        files["attention"] = f"{stem}.attention.png"
    return {**found.row(), "files": files}


def finish(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    skipped: Sequence[tuple[str, str]],
    settings: dict[str, Any] | None = None,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    left = [{"picture": name, "reason": reason} for name, reason in skipped]
    write_json(folder / "regions.json", {**(settings or {}), "pictures": list(rows), "skipped": left})


def whole(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in whole pixels of a picture, never empty."""
    width, height = size
    x0, y0 = min(max(round(box[0]), 0), width - 1), min(max(round(box[1]), 0), height - 1)
    return x0, y0, min(max(round(box[2]), x0 + 1), width), min(max(round(box[3]), y0 + 1), height)


def _row(patch: Patch) -> dict[str, Any]:
    return {"box": [round(side, 2) for side in patch.box], "evidence": finite(patch.evidence), "cell": list(patch.cell)}
