"""What localizing gives; in a picture: its patches with their evidence, as crops, a picture, JSON."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadChoice, FoveaError, finite
from fovea.pictures import Placement, Shown, about, by_centers, middles, on_pixels
from fovea.results import (
    Beside,
    Overlay,
    Panel,
    Results,
    ShowsBoxes,
    Step,
    T,
    View,
    drawing,
    marks,
    view_of_big,
    write_picture,
    write_raster,
    write_regions,
    write_values,
)

Box = tuple[float, float, float, float]  # x0 y0 x1 y1, half open, in the user's own pixels


@dataclass(frozen=True)
class Patch:
    """A box in the user's pixels, and what speaks for the class in it."""

    box: Box
    evidence: float
    cell: tuple[int, int]  # row, column

    def to_dict(self) -> dict[str, Any]:
        box = [round(side, 2) for side in self.box]
        return {"box": box, "evidence": finite(self.evidence), "cell": list(self.cell)}


@dataclass(frozen=True)
class BranchAnswer:
    """What one branch alone says of a picture."""

    side: int
    label: str
    probability: float
    best: Patch  # for its own label

    def to_dict(self) -> dict[str, Any]:
        share = finite(self.probability)
        return {"side": self.side, "label": self.label, "probability": share, "best": self.best.to_dict()}


@dataclass(frozen=True, repr=False)
class LocalizedPicture(ShowsBoxes):
    """One picture: what it was taken for, and the patches that speak for it, best first."""

    shown: Shown
    label: str
    probability: float
    side: int  # of a patch, in the pixels of the network's input
    patches: tuple[Patch, ...]
    heatmap: NDArray[np.float32]  # h,w: the evidence of every cell
    branches: tuple[BranchAnswer, ...] = ()
    attention: tuple[NDArray[np.float32], ...] = ()  # h,w per branch, Eq. 10
    note: str = ""

    @property
    def boxes(self) -> list[Box]:
        return [patch.box for patch in self.patches]

    def draw(self, titled: bool = True, size: drawing.Size = None) -> Image.Image:
        """The best patches on the picture, numbered, with what they say above it; what no patch shows is paler.

        `size`: the longer side in pixels, or "full" for the picture's own; else one that is good to look at.
        """
        image, evidence, boxes = self.shown.image(), [patch.evidence for patch in self.patches], self.boxes
        if self.shown.big is not None and self.shown.placement is not None:  # shown smaller, with the map over it
            boxes = [marks.scaled(box, self.shown.big.size, image.size) for box in boxes]
            drawn = drawing.blend(image, on_pixels(self.heatmap, self.shown.placement.to_draw), size=size)
            marks.number(drawn, boxes, image.size, evidence)
        else:
            drawn = marks.with_boxes(image, boxes, evidence, size)
        if not titled:
            return drawn
        words = [marks.counted(len(self.patches), self.side)]
        words += ["thicker: more evidence"] if len(self.patches) > 1 else []
        words += [self.note.rpartition(": ")[2]] if self.note else []
        title = f"{drawing.spaced(self.label)} {self.probability:.2f}"
        return drawing.titled(drawn, title, " · ".join(words), drawing.scale_of(drawn))

    def attentions(self) -> Image.Image:
        """Where each branch attends to (Fig. 11), with what it alone takes the picture for."""
        if not self.attention:
            raise BadChoice("this network has no branches that attend")
        image = self.shown.image()
        place = self.shown.placement or Placement.identity(*image.size)
        parts = []
        for branch, values in zip(self.branches, self.attention, strict=True):
            window = middles(values.shape, branch.side, place)  # beyond it no patch has its middle
            drawn = drawing.blend(image, by_centers(values, branch.side, place.to_draw), window)
            title = f"{branch.label} {branch.probability:.2f}"
            parts.append(drawing.titled(drawn, title, f"attention of the branch of {branch.side} x {branch.side}"))
        return drawing.grid([parts])

    def view(self) -> View:
        count = len(self.patches)
        words = f"{marks.counted(count, self.side, count)} of the network's pixels"
        big, placement = self.shown.big, self.shown.placement
        if big is None or placement is None:
            return View((Panel(self.draw),), words=words)
        title = f"{self.label} {self.probability:.2f}"
        maps = (Overlay("evidence", title, self.heatmap, placement, note=self.note),)
        raster = partial(
            write_raster, values=self.heatmap, extent=placement.extent, big=big, tags={"target": self.label}
        )
        regions = partial(write_regions, big=big, regions=self._regions())
        beside = Beside("heatmaps", "evidence.tif", raster), Beside("regions", "patches.geojson", regions)
        near = [(patch.box, (self.side, self.side)) for patch in self.patches]
        said = [f"patch {number}, evidence {patch.evidence:.3g}" for number, patch in enumerate(self.patches, 1)]
        view = view_of_big(self.shown, big, near, said)
        words = f"{words}; {view.words}"
        return replace(view, overlays=maps, words=words, beside=beside)

    def _regions(self) -> list[tuple[Box, dict[str, Any]]]:
        """The patches, and what there is to say of each."""
        about = {"label": self.label, "probability": self.probability}
        return [(patch.box, {**about, "evidence": patch.evidence}) for patch in self.patches]

    def to_dict(self) -> dict[str, Any]:
        return {
            **about(self.shown),
            "label": self.label,
            "probability": finite(self.probability),
            "side": self.side,
            "patches": [patch.to_dict() for patch in self.patches],
            "branches": [branch.to_dict() for branch in self.branches],
            "note": self.note or None,
        }

    def files(self, folder: Path, stem: str, size: drawing.Size = None) -> dict[str, Any]:
        names: dict[str, Any] = {"overlay": f"{stem}.patches.png", "evidence": f"{stem}.evidence.npy"}
        write_picture(folder / names["overlay"], self.draw(size=size))
        write_values(folder / names["evidence"], self.heatmap)
        names["crops"] = [f"{stem}.patch{number}.png" for number in range(1, len(self.patches) + 1)]
        for name, crop in zip(names["crops"], self.shown.parts(self.boxes), strict=True):
            write_picture(folder / name, crop)
        if self.attention:
            names["attention"] = f"{stem}.attention.png"
            write_picture(folder / names["attention"], self.attentions())
        return names


def on_picture(box: Sequence[float], shown: Shown) -> Box:
    """A box in the pixels of the network's input, in those of the user's own picture."""
    x0, y0, x1, y1 = box
    if shown.placement is None:
        return x0, y0, x1, y1
    (sx, sy), (ox, oy) = shown.placement.scale, shown.placement.offset
    return x0 * sx + ox, y0 * sy + oy, x1 * sx + ox, y1 * sy + oy


def collected(steps: Iterable[Step[T]], kind: str, bad: type[FoveaError], settings: Mapping[str, Any]) -> Results[T]:
    """One result per text or sound; what cannot be read is warned about, and refused where there is nothing else."""
    done = list(steps)
    skipped = [pair for step in done for pair in step.skipped]
    found = [result for step in done for result in step.results]
    if not found:
        raise bad(skipped[0][1] if skipped else f"no {kind} was given")
    if skipped:
        warnings.warn(f"{len(skipped)} {kind}(s) skipped: {skipped[0][1]}", stacklevel=4)
    return Results(found, skipped, "localize", settings)
