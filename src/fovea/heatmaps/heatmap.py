"""Heatmaps: a value per cell, and the geometry that puts cells on the user's pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice, Later, Names, finite, plain
from fovea.basics import boxes as regions
from fovea.heatmaps import sheet
from fovea.pictures import DRAWN, FINE, BigFacts, Shown, box_on_pixels, facts, on_pixels, regions_on
from fovea.results import (
    Beside,
    Overlay,
    Panel,
    Result,
    Results,
    Shows,
    View,
    drawing,
    marks,
    view_of_big,
    write_picture,
    write_raster,
    write_regions,
    write_values,
)

T = TypeVar("T")
Box = tuple[float, float, float, float]
FRAMES = 12  # of a clip given as a tensor, on a page


def _on_host(values: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = values.detach().float().cpu().numpy()
    return found


@dataclass(frozen=True, eq=False, repr=False)
class HeatMaps(Results["HeatMap"]):
    """One HeatMap per picture. `.values` is N,K,*grid (N,T,K,*grid for frames): pictures, targets, cells; `.cells` is
    the same, or one tensor per picture where their grids differ."""

    cells: Tensor | tuple[Tensor, ...]
    shown: Sequence[Shown]  # N
    targets: Sequence[tuple[str, ...]]  # N of K
    method: str
    layer: str
    solver: str = ""
    loss: Tensor | None = None  # N,K or N,T,K
    iterations: int = 0
    note: str = ""
    diagnosis: Sequence[tuple[str | None, ...]] = ()  # N of K: why a map is blank, in words
    classes: Sequence[tuple[int | None, ...]] = ()  # N of K: the index of a target that is a class
    frames: bool = False
    skipped: tuple[tuple[str, str], ...] = ()  # pictures not explained, and why
    what: str = "explain"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def items(self) -> tuple["HeatMap", ...]:
        return tuple(HeatMap(self, place) for place in range(len(self.shown)))

    def __len__(self) -> int:
        return len(self.shown)

    @overload
    def __getitem__(self, index: int) -> "HeatMap": ...

    @overload
    def __getitem__(self, index: slice) -> "HeatMaps": ...

    def __getitem__(self, index: int | slice) -> "HeatMap | HeatMaps":
        """The maps of one picture, or of some."""
        if not isinstance(index, slice):
            return HeatMap(self, range(len(self))[index])
        return replace(
            self,
            cells=self.cells[index],
            shown=self.shown[index],
            targets=self.targets[index],
            loss=None if self.loss is None else self.loss[index],
            diagnosis=self.diagnosis[index],
            classes=self.classes[index],
            skipped=(),
        )

    @property
    def values(self) -> Tensor:
        if isinstance(self.cells, Tensor):
            return self.cells
        if len({cells.shape for cells in self.cells}) == 1:
            return torch.stack(self.cells)
        grids = sorted({" x ".join(map(str, heatmap.grid)) for heatmap in self})
        why = "which are no one tensor: take each picture's (maps[0].values), or explain with fit='squash'"
        raise BadChoice(f"the pictures have maps of different sizes ({', '.join(grids)} cells), {why}")

    @property
    def grid(self) -> tuple[int, ...]:
        """Rows and columns of the cells; of the first picture where they differ."""
        return tuple(self.cells[0].shape[2 if self.frames else 1 :])

    def numpy(self) -> NDArray[np.float32]:
        return _on_host(self.values)

    @cached_property
    def _read(self) -> Any:
        """The cells on the host, brought there once for all pictures."""
        return _on_host(self.cells) if isinstance(self.cells, Tensor) else [_on_host(cells) for cells in self.cells]

    @cached_property
    def _losses(self) -> NDArray[np.float32] | None:
        return None if self.loss is None else _on_host(self.loss)

    def map(self, picture: int = 0, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """One map, a value per cell."""
        place = (frame, target) if self.frames else (target,)
        values: NDArray[np.float32] = self._read[picture][place]
        return values

    def pixels(self, picture: int = 0, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """One map on the user's own pixels, bilinear; 0 where the transform cropped the picture away."""
        return self._placed(self.map(picture, target, frame), picture)

    def evidence(self, picture: int = 0, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """The part of a map that speaks for the target, on the user's pixels: what boxes are drawn around."""
        return self._placed(self.smoothed(picture, target, frame), picture)

    def smoothed(self, picture: int = 0, target: int = 0, frame: int = 0, clip: bool = True) -> NDArray[np.float32]:
        """The part of a map that speaks for the target, cell by cell, or all of it, from its least value on; one of
        pixels is blurred (regions.BLUR)."""
        values = self.map(picture, target, frame)
        values = values.clip(0) if clip else values - values.min()
        return regions.blurred(values) if self.shown[picture].big is None else values

    def _placed(self, cells: NDArray[np.float32], picture: int) -> NDArray[np.float32]:
        placement = self.shown[picture].placement
        return cells if placement is None or cells.ndim != 2 else on_pixels(cells, placement)

    @property
    def boxes(self) -> NDArray[np.int64]:
        """The box of every map in the user's pixels, N,K,4 (N,T,K,4): regions.THRESHOLD_RULE. All zeros where the map
        is blank."""
        return self.boxes_at()

    def boxes_at(self, threshold: float = regions.THRESHOLD) -> NDArray[np.int64]:
        """The boxes at another share of each map's range."""
        return np.stack([heatmap.boxes_at(threshold) for heatmap in self])

    def box(
        self, picture: int = 0, target: int = 0, frame: int = 0, threshold: float = regions.THRESHOLD
    ) -> NDArray[np.int64]:
        """That of one map."""
        cells, placement = self.smoothed(picture, target, frame), self.shown[picture].placement
        if placement is None or cells.ndim != 2:
            return regions.box_of(cells, threshold)
        most = FINE if self.shown[picture].big is None else DRAWN
        return box_on_pixels(cells, placement, lambda values: regions.box_of(values, threshold), most)

    def title(self, picture: int = 0, target: int = 0) -> str:
        name = self.targets[picture][target]
        if name == "output":
            return "whole output"
        share = dict(self.shown[picture].predictions).get(name)
        return f"{name} {share:.2f}" if share is not None else name


@dataclass(frozen=True, eq=False, repr=False)
class HeatMap(Shows):
    """The maps of one picture: `.values` is K,*grid (T,K,*grid for frames)."""

    maps: HeatMaps = field(repr=False)  # of all the pictures that were explained with it
    place: int

    def alone(self) -> HeatMaps:
        """Of this picture only."""
        return self.maps[self.place : self.place + 1]

    @property
    def shown(self) -> Shown:
        return self.maps.shown[self.place]

    @property
    def name(self) -> str:
        return self.shown.name

    @property
    def label(self) -> str:
        """The class that the picture is taken for; of a network without classes, what was explained."""
        return self.shown.predictions[0][0] if self.shown.predictions else self.targets[0]

    @property
    def probability(self) -> float | None:
        return self.shown.predictions[0][1] if self.shown.predictions else None

    @property
    def values(self) -> Tensor:
        return self.maps.cells[self.place]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.values.shape[2 if self.maps.frames else 1 :])

    @property
    def targets(self) -> tuple[str, ...]:
        return self.maps.targets[self.place]

    @property
    def classes(self) -> tuple[int | None, ...]:
        return self.maps.classes[self.place]

    @property
    def diagnosis(self) -> tuple[str | None, ...]:
        return self.maps.diagnosis[self.place] if self.maps.diagnosis else (None,) * len(self.targets)

    @property
    def note(self) -> str | None:
        """Why a map is blank, where one is; of a file too large to load, whether it is that of the whole."""
        whole = self.shown.big is None or self.shown.big.stitched
        return next(filter(None, self.diagnosis), None) or (None if whole else self.maps.note)

    @property
    def loss(self) -> Tensor | None:
        return None if self.maps.loss is None else self.maps.loss[self.place]

    @property
    def method(self) -> str:
        return self.maps.method

    @property
    def layer(self) -> str:
        return self.maps.layer

    @property
    def solver(self) -> str:
        return self.maps.solver

    @property
    def frames(self) -> int | None:
        return self.values.shape[0] if self.maps.frames else None

    @property
    def boxes(self) -> NDArray[np.int64]:
        """The box of every map in the user's pixels, K,4 (T,K,4); all zeros where it is blank."""
        return self._boxes.copy()

    @cached_property
    def _boxes(self) -> NDArray[np.int64]:
        return self.boxes_at()

    def boxes_at(self, threshold: float = regions.THRESHOLD) -> NDArray[np.int64]:
        leading = self.values.shape[: 2 if self.maps.frames else 1]
        places = [(i[-1], i[0] if self.maps.frames else 0) for i in np.ndindex(*leading)]
        boxes = [self.maps.box(self.place, target, frame, threshold) for target, frame in places]
        return np.array(boxes).reshape(*leading, -1)

    def map(self, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """One map, a value per cell."""
        return self.maps.map(self.place, target, frame)

    def pixels(self, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """One map on the user's own pixels, bilinear; 0 where the transform cropped the picture away."""
        return self.maps.pixels(self.place, target, frame)

    def evidence(self, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """The part of a map that speaks for the target, on the user's pixels: what boxes are drawn around."""
        return self.maps.evidence(self.place, target, frame)

    def seen(self, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """The evidence as fine as it is drawn, which is coarser than a very large picture."""
        placement = self.shown.placement
        if placement is None or placement.to_draw is placement:
            return self.evidence(target, frame)
        return on_pixels(self.maps.smoothed(self.place, target, frame), placement.to_draw)

    def title(self, target: int = 0) -> str:
        return self.maps.title(self.place, target)

    @property
    def crops(self) -> bool:
        """Whether there is more in the picture than the network was shown."""
        placement = self.shown.placement
        if placement is None or self.shown.big is not None:  # of a big one, cells may begin after its first pixel
            return False
        return drawing.crops(placement.window, placement.picture)

    def over(self, target: int = 0, frame: int = 0, box: bool = True, size: drawing.Size = None) -> Image.Image:
        """The map over the picture, with its box, and nothing else.

        `size`: the longer side in pixels, or "full" for the picture's own; else one that is good to look at."""
        sides = self.maps.box(self.place, target, frame) if box else np.zeros(4)
        image, placement = self.shown.image(frame), self.shown.placement
        window = placement.window if placement and self.crops else None
        drawn = drawing.blend(image, self.seen(target, frame), window, size)
        if sides.any():
            marks.draw_box(drawn, sides.tolist(), placement.picture if placement else image.size)
        return drawn

    def draw(self, target: int = 0, frame: int = 0, box: bool = True, size: drawing.Size = None) -> Image.Image:
        """The same under the label and its probability, with a color bar."""
        drawn = drawing.with_bar(self.over(target, frame, box, size), self.seen(target, frame))
        below = " · ".join([self.diagnosis[target] or self.method] + [drawing.UNSEEN] * self.crops)
        return drawing.titled(drawn, drawing.spaced(self.title(target)), below, drawing.scale_of(drawn))

    def to_dict(self) -> dict[str, Any]:
        share = None if self.probability is None else finite(self.probability)
        return {"label": self.label, "probability": share, **facts(self.shown), "maps": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        """What there is to say of every map, frame by frame."""
        boxes = self._boxes
        losses = None if self.maps._losses is None else self.maps._losses[self.place]
        return [
            {
                "target": self.targets[place[-1]],
                "class": self.classes[place[-1]],
                "method": self.method,
                **({"frame": place[0]} if self.maps.frames else {}),
                "layer": self.layer,
                "solver": self.solver,
                "loss": None if losses is None else finite(float(losses[place])),
                "iterations": self.maps.iterations,
                "boxes": [boxes[place].tolist()] if boxes[place].any() else [],
                "diagnosis": self.diagnosis[place[-1]],
                "note": self.maps.note or None,
            }
            for place in np.ndindex(*boxes.shape[:-1])
        ]

    def view(self) -> View:
        """The photograph with the maps over it; of frames, so many as a page can show."""
        placement = self.shown.placement
        if placement is None or len(self.maps.grid) != 2:
            return View(predictions=self.shown.predictions)
        count = self.frames or 1
        frames = sorted({round(place) for place in np.linspace(0, count - 1, min(count, FRAMES))})
        panels = [Panel(partial(self.shown.photograph, frame), f"frame {frame}" * self.maps.frames) for frame in frames]
        boxes = self._boxes.reshape(count, len(self.targets), 4)
        overlays = [
            Overlay(
                self.method,
                self.title(target),
                self.maps.smoothed(self.place, target, frame),
                placement,
                boxes[frame, target].tolist() if boxes[frame, target].any() else (),
                self.diagnosis[target] or "",
                panel,
            )
            for target in range(len(self.targets))
            for panel, frame in enumerate(frames)
        ]
        big = self.shown.big
        if big is None:
            return View(tuple(panels), tuple(overlays), self.shown.predictions)
        view = view_of_big(self.shown, big)
        return replace(view, overlays=tuple(overlays), predictions=self.shown.predictions, beside=self._beside(big))

    def _beside(self, big: BigFacts) -> tuple[Beside, ...]:
        """The maps and their regions as files with coordinates."""
        placement, names, called = self.shown.placement, Names(), plain(self.method)
        assert placement is not None  # of a picture that was read window by window
        extent = placement.extent

        def raster(target: int, path: Path) -> None:
            values = self.map(target)
            ends = {"minimum": f"{values.min():g}", "maximum": f"{values.max():g}"}
            write_raster(path, values, extent, big, {"method": self.method, "target": self.targets[target], **ends})

        rasters = (
            Beside("heatmaps", f"{called}.{names.take(name, str(target))}.tif", partial(raster, target))
            for target, name in enumerate(self.targets)
        )
        return *rasters, Beside("regions", f"{called}.geojson", lambda path: write_regions(path, big, self.regions()))

    def regions(self) -> list[tuple[Box, dict[str, Any]]]:
        """The boxes of each target's segments, those with most of its evidence first, and what to say of each."""
        found, shares = list[tuple[Box, dict[str, Any]]](), dict(self.shown.predictions)
        for target, name in enumerate(self.targets):
            about = {"label": name, "probability": shares.get(name), "method": self.method}
            placement = self.shown.placement
            boxes = [] if placement is None else regions_on(self.maps.smoothed(self.place, target), placement)
            found += [(box, {**about, "evidence": share}) for box, share in boxes]
        return found

    def files(self, folder: Path, stem: str, size: drawing.Size = None) -> dict[str, Any]:
        """The values and the picture of every map, in the order of `rows`."""
        names, written = Names(), []
        for place in np.ndindex(*self.values.shape[: 2 if self.maps.frames else 1]):
            frame, target = (place[0] if self.maps.frames else 0), place[-1]
            tail = f".frame{frame}" if self.maps.frames else ""
            base = f"{stem}.{plain(self.method)}.{names.take(self.targets[target], str(target))}{tail}"
            written.append({"values": f"{base}.npy"})
            if len(self.grid) == 2:
                drawn = self.draw(target, frame, size=size)  # first: its file may be gone
                write_picture(folder / f"{base}.png", drawn)
                written[-1]["overlay"] = f"{base}.png"
            write_values(folder / f"{base}.npy", self.map(target, frame))
        return {"maps": written}


@dataclass(frozen=True, eq=False, repr=False)
class Explained(Shows):
    """One picture, or clip, and its maps by one method or several."""

    parts: tuple[Result, ...]  # one per method

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def label(self) -> str:
        return self.parts[0].label

    @property
    def probability(self) -> float | None:
        return self.parts[0].probability

    @property
    def boxes(self) -> list[Any]:
        """Those of every method."""
        return [part.boxes for part in self.parts]

    @property
    def note(self) -> str | None:
        """Why a map is blank, where one is."""
        return next(filter(None, (getattr(part, "note", None) for part in self.parts)), None)

    def draw(self) -> Image.Image:
        """Of one map its picture; of more the sheet, methods by targets; of a clip its strips."""
        maps = [part for part in self.parts if isinstance(part, HeatMap)]
        if not maps or len(maps) == len(maps[0].targets) == 1:
            return drawing.grid([[part.draw()] for part in self.parts])
        return sheet.draw(maps)

    def to_dict(self) -> dict[str, Any]:
        rows = [part.to_dict() for part in self.parts]
        return rows[0] | {"maps": [maps for row in rows for maps in row["maps"]]}

    def view(self) -> View:
        """All maps over the same photograph; of a clip, a figure per method."""
        views = [part.view() for part in self.parts]
        if views[0].overlays:
            overlays, beside = (chain(*(getattr(view, name) for view in views)) for name in ("overlays", "beside"))
            return replace(views[0], overlays=tuple(overlays), beside=tuple(beside))
        return replace(views[0], panels=tuple(chain(*(view.panels for view in views))))

    def files(self, folder: Path, stem: str, size: drawing.Size = None) -> dict[str, Any]:
        return {"maps": [names for part in self.parts for names in part.files(folder, stem, size)["maps"]]}


def concat(parts: Sequence[HeatMaps], places: Sequence[int] = ()) -> HeatMaps:
    """The maps of several batches as one; in the order of their `places`, where these are given."""
    order = sorted(range(len(places)), key=places.__getitem__)
    if order == list(range(len(order))):
        order = []
    if len(parts) == 1 and not order:
        return parts[0]

    def joined(rows: Sequence[Sequence[T]]) -> Later[T]:
        def made() -> Sequence[T]:
            every = list(chain(*rows))
            return [every[i] for i in order] if order else every

        return Later(sum(map(len, rows)), made)

    whole = [part.cells for part in parts if isinstance(part.cells, Tensor)]
    cells: Tensor | tuple[Tensor, ...]
    if len(whole) == len(parts) and len({part.shape[1:] for part in whole}) == 1:
        cells = torch.cat(whole)[order] if order else torch.cat(whole)
    else:
        cells = tuple(joined([tuple(part.cells) for part in parts]))
    losses = [part.loss for part in parts if part.loss is not None]
    loss = torch.cat(losses) if len(losses) == len(parts) else None
    return replace(
        parts[0],
        cells=cells,
        shown=joined([part.shown for part in parts]),
        targets=joined([part.targets for part in parts]),
        diagnosis=joined([part.diagnosis for part in parts]),
        classes=joined([part.classes for part in parts]),
        loss=loss[order] if order and loss is not None else loss,
        iterations=max(part.iterations for part in parts),
        solver="+".join(dict.fromkeys(part.solver for part in parts)),
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )
