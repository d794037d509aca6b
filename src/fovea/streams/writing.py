"""What was seen into a folder, as it comes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fovea.results.folder import Filling, told
from fovea.streams.looked import Looked


@dataclass
class Writer(Filling):
    """NAME.strip.png a picture, its parts (global map, patches, .npy values of every step), and manifest.json."""

    file: ClassVar[str] = "manifest.json"

    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    blank: Counter[str] = field(default_factory=Counter)  # why maps are blank, and how many

    def begun(self) -> bool:
        return bool(self.rows)

    @property
    def explained(self) -> int:
        return len(self.rows)

    def add(self, looks: Sequence[Looked], skipped: Sequence[tuple[str, str]] = ()) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for one in looks:
            self.rows.append(self._written(one))
            every = [one.whole, *(step.map for patch in one.patches for step in patch.steps)]
            self.blank.update(reason for seen in every if (reason := seen.diagnosis[0][0]) is not None)
        self.skipped += skipped
        self.now_and_then()

    def _written(self, one: Looked) -> dict[str, Any]:
        stem = self.names.take(Path(one.name).stem or "picture", one.name)
        row = one.row()
        row["files"] = {"strip": f"{stem}.strip.png", "global": f"{stem}.global.png", "values": f"{stem}.global.npy"}
        one.figure().save(self.folder / row["files"]["strip"])
        one.whole[0].draw(box=False).save(self.folder / row["files"]["global"])
        np.save(self.folder / row["files"]["values"], one.whole.map())
        for number, (patch, crop, own) in enumerate(zip(one.patches, one.crops(), row["patches"], strict=True), 1):
            own["files"] = {"patch": f"{stem}.patch{number}.png"}
            crop.save(self.folder / own["files"]["patch"])
            for step, told_of in zip(patch.steps, own["steps"], strict=True):
                told_of["files"] = {"values": f"{stem}.patch{number}.step{step.number}.npy"}
                np.save(self.folder / told_of["files"]["values"], step.map.map())
        return row

    def content(self) -> dict[str, Any]:
        return {"pictures": self.rows, "skipped": told(self.skipped)}
