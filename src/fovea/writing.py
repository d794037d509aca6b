"""Maps of many pictures into a folder, as they come; what was done so far is never lost."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fovea.heatmap import Names, about, write_json

if TYPE_CHECKING:
    from fovea.explaining import Step

SECONDS = 5.0  # between two writings of the manifest


@dataclass
class Writer:
    """Overlays, .npy values and manifest.json."""

    folder: Path
    settings: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    blank: int = 0
    explained: int = 0
    names: Names = field(default_factory=Names)
    written: float = 0.0

    def add(self, step: "Step") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        first = next(iter(step.maps.values()), None)
        for i in range(len(first) if first else 0):
            shown = first.shown[i]  # type: ignore[union-attr]
            stem = self.names.take(Path(shown.name).stem or "picture", shown.name)
            maps = [row for seen in step.maps.values() for row in seen.save_maps(self.folder, i, stem)]
            self.rows.append({**about(shown), "maps": maps})
            empty = sum(row["diagnosis"] is not None for row in maps)
            self.blank += empty
            self.explained += empty < len(maps)
        self.skip(step.skipped)
        if time.monotonic() - self.written > SECONDS:
            self.finish()

    def skip(self, skipped: list[tuple[str, str]]) -> None:
        self.skipped += skipped

    def finish(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        skipped = [{"picture": name, "reason": reason} for name, reason in self.skipped]
        write_json(self.folder / "manifest.json", {**self.settings, "pictures": self.rows, "skipped": skipped})
        self.written = time.monotonic()
