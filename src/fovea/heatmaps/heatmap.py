"""A heatmap: a value per cell, and the geometry that puts cells on the user's pixels."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics import boxes as regions
from fovea.basics.errors import BadChoice
from fovea.basics.files import Names, finite, write_json
from fovea.pictures.placement import on_pixels
from fovea.pictures.shown import Shown, about


@dataclass(frozen=True)
class HeatMap:
    """`.values` is N,K,*grid (N,T,K,*grid for frames): pictures, targets, cells. Boxes are in the user's pixels."""

    values: Tensor
    shown: tuple[Shown, ...]  # N
    targets: tuple[tuple[str, ...], ...]  # N of K
    method: str
    layer: str
    solver: str = ""
    loss: Tensor | None = None  # N,K or N,T,K
    iterations: int = 0
    note: str = ""
    diagnosis: tuple[tuple[str | None, ...], ...] = ()  # N of K: why a map is blank, in words
    classes: tuple[tuple[int | None, ...], ...] = ()  # N of K: the index of a target that is a class
    frames: bool = False
    skipped: tuple[tuple[str, str], ...] = field(default=())  # pictures not explained, and why

    def __len__(self) -> int:
        return len(self.shown)

    def __getitem__(self, index: int) -> "HeatMap":
        """The maps of one picture."""
        one = range(len(self))[index]
        own = slice(one, one + 1)
        return replace(
            self,
            values=self.values[own],
            shown=self.shown[own],
            targets=self.targets[own],
            loss=None if self.loss is None else self.loss[own],
            diagnosis=self.diagnosis[own],
            classes=self.classes[own],
            skipped=(),
        )

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.values.shape[3 if self.frames else 2 :])

    def numpy(self) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.values.detach().float().cpu().numpy()
        return found

    def map(self, picture: int = 0, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """One map, a value per cell."""
        values = self.numpy()
        one: NDArray[np.float32] = values[picture, frame, target] if self.frames else values[picture, target]
        return one

    def pixels(self, picture: int = 0, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """One map on the user's own pixels, bilinear; 0 where the transform cropped the picture away."""
        return self._placed(self.map(picture, target, frame), picture)

    def evidence(self, picture: int = 0, target: int = 0, frame: int = 0) -> NDArray[np.float32]:
        """The part of a map that speaks for the target, on the user's pixels: what boxes are drawn around."""
        return self._placed(self.map(picture, target, frame).clip(0), picture)

    def _placed(self, cells: NDArray[np.float32], picture: int) -> NDArray[np.float32]:
        placement = self.shown[picture].placement
        return cells if placement is None or cells.ndim != 2 else on_pixels(cells, placement)

    def boxes(self, threshold: float = regions.THRESHOLD) -> NDArray[np.int64]:
        """The box of every map, N,K,4 (N,T,K,4): regions.THRESHOLD_RULE. All zeros where the map is blank."""
        leading = self.values.shape[: 3 if self.frames else 2]
        found = [
            regions.box_of(self.evidence(i[0], i[-1], i[1] if self.frames else 0), threshold)
            for i in np.ndindex(*leading)
        ]
        return np.array(found).reshape(*leading, -1)

    def overlay(self, picture: int = 0, target: int = 0, frame: int = 0, box: bool = True) -> Image.Image:
        """The map over the picture, with the label, its probability, a colour bar and the box."""
        from fovea.heatmaps import figure

        return figure.overlay(self, picture, target, frame, box)

    def title(self, picture: int = 0, target: int = 0) -> str:
        name = self.targets[picture][target]
        share = dict(self.shown[picture].predictions).get(name)
        return f"{name} {share:.2f}" if share is not None else name

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        buffer = BytesIO()
        self.overlay().save(buffer, "png")
        return buffer.getvalue()

    def save(self, folder: str | Path) -> list[dict[str, Any]]:
        """Overlays, raw values (.npy) and manifest.json into a folder; the manifest's rows come back."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = Names()
        rows = [self.save_picture(folder, i, names) for i in range(len(self))]
        skipped = [{"picture": name, "reason": reason} for name, reason in self.skipped]
        write_json(folder / "manifest.json", {"layer": self.layer, "pictures": rows, "skipped": skipped})
        return rows

    def save_picture(self, folder: Path, index: int, names: "Names") -> dict[str, Any]:
        shown = self.shown[index]
        stem = names.take(Path(shown.name).stem or "picture", shown.name)
        return {**about(shown), "maps": self.save_maps(folder, index, stem)}

    def save_maps(self, folder: Path, index: int, stem: str) -> list[dict[str, Any]]:
        """Files of every map of one picture, and a row about each."""
        rows = []
        names, boxes = Names(), self[index].boxes()[0]
        losses = None if self.loss is None else self.loss[index].detach().float().cpu().numpy()
        for place in np.ndindex(*boxes.shape[:-1]):
            frame, target = (place[0], place[-1]) if self.frames else (0, place[-1])
            tail = f".frame{frame}" if self.frames else ""
            base = f"{stem}.{self.method}.{names.take(self.targets[index][target], str(target))}{tail}"
            np.save(folder / f"{base}.npy", self.map(index, target, frame))
            files = {"values": f"{base}.npy"}
            if len(self.grid) == 2:
                self.overlay(index, target, frame).save(folder / f"{base}.png")
                files["overlay"] = f"{base}.png"
            rows.append(
                {
                    "target": self.targets[index][target],
                    "class": self.classes[index][target],
                    "method": self.method,
                    **({"frame": frame} if self.frames else {}),
                    "layer": self.layer,
                    "solver": self.solver,
                    "loss": None if losses is None else finite(float(losses[place])),
                    "iterations": self.iterations,
                    "boxes": [boxes[place].tolist()] if boxes[place].any() else [],
                    "diagnosis": self.diagnosis[index][target],
                    "note": self.note or None,
                    "files": files,
                }
            )
        return rows


def concat(maps: Sequence[HeatMap]) -> HeatMap:
    """The maps of several batches as one."""
    grids = {one.grid for one in maps}
    if len(grids) > 1:
        raise BadChoice(
            f"the pictures give maps of different sizes ({', '.join(map(str, sorted(grids)))}): "
            "explain them one by one, or use a transform with a fixed size"
        )
    losses = [one.loss for one in maps]
    return replace(
        maps[0],
        values=torch.cat([one.values for one in maps]),
        shown=tuple(shown for one in maps for shown in one.shown),
        targets=tuple(names for one in maps for names in one.targets),
        diagnosis=tuple(words for one in maps for words in one.diagnosis),
        classes=tuple(row for one in maps for row in one.classes),
        loss=None if any(loss is None for loss in losses) else torch.cat([x for x in losses if x is not None]),
        iterations=max(one.iterations for one in maps),
        solver="+".join(dict.fromkeys(one.solver for one in maps)),
        note="; ".join(dict.fromkeys(one.note for one in maps if one.note)),
    )
