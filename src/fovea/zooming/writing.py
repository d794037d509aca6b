"""Answers into a folder as they come; what was done so far is never lost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fovea.heatmap import Names, write_json
from fovea.zooming.answer import Answer

SECONDS = 5.0  # between two writings of the JSON


@dataclass
class Writer:
    """NAME.zoom.png a picture, and zoom.json."""

    folder: Path
    settings: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    written: float = 0.0

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self.rows:  # a wrong choice found at once leaves the folder as it was
            self.finish()

    def add(self, answers: Sequence[Answer], skipped: Sequence[tuple[str, str]] = ()) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for one in answers:
            stem = self.names.take(Path(one.name).stem or "picture", one.name)
            one.figure().save(self.folder / f"{stem}.zoom.png")
            self.rows.append({**one.row(), "files": {"figure": f"{stem}.zoom.png"}})
        self.skipped += skipped
        if time.monotonic() - self.written > SECONDS:
            self.finish()

    def finish(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        skipped = [{"picture": name, "reason": reason} for name, reason in self.skipped]
        write_json(self.folder / "zoom.json", {**self.settings, "pictures": self.rows, "skipped": skipped})
        self.written = time.monotonic()
