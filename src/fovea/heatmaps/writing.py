"""Maps of many pictures into a folder, as they come."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fovea.pictures.shown import about
from fovea.results.folder import Filling, told

if TYPE_CHECKING:
    from fovea.heatmaps.explain import Step


@dataclass
class Writer(Filling):
    """Overlays, .npy values and manifest.json."""

    file: ClassVar[str] = "manifest.json"

    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    blank: Counter[str] = field(default_factory=Counter)  # why maps are blank, and how many
    explained: int = 0

    def begun(self) -> bool:
        return bool(self.rows)

    def add(self, step: "Step") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        first = next(iter(step.maps.values()), None)
        for i in range(len(first) if first else 0):
            shown = first.shown[i]  # type: ignore[union-attr]
            stem = self.names.take(Path(shown.name).stem or "picture", shown.name)
            maps = [row for seen in step.maps.values() for row in seen.save_maps(self.folder, i, stem)]
            self.rows.append({**about(shown), "maps": maps})
            reasons = [row["diagnosis"] for row in maps if row["diagnosis"] is not None]
            self.blank.update(reasons)
            self.explained += len(reasons) < len(maps)
        self.skipped += step.skipped
        self.now_and_then()

    def content(self) -> dict[str, Any]:
        return {"pictures": self.rows, "skipped": told(self.skipped)}
