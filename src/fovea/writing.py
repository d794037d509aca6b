"""Maps of many pictures into a folder, as they come; what was done so far is never lost."""

import time
from collections import Counter
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
    blank: Counter[str] = field(default_factory=Counter)  # why maps are blank, and how many
    explained: int = 0
    names: Names = field(default_factory=Names)
    written: float = 0.0

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self.rows:  # a wrong choice found at once leaves the folder as it was
            self.finish()

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
        if time.monotonic() - self.written > SECONDS:
            self.finish()

    def finish(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        skipped = [{"picture": name, "reason": reason} for name, reason in self.skipped]
        write_json(self.folder / "manifest.json", {**self.settings, "pictures": self.rows, "skipped": skipped})
        self.written = time.monotonic()
