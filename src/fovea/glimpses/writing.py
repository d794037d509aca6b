"""Answers into a folder as they come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fovea.glimpses.answer import Answer
from fovea.results.folder import Filling, told


@dataclass
class Writer(Filling):
    """NAME.zoom.png a picture, and zoom.json."""

    file: ClassVar[str] = "zoom.json"

    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def begun(self) -> bool:
        return bool(self.rows)

    def add(self, answers: Sequence[Answer], skipped: Sequence[tuple[str, str]] = ()) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for one in answers:
            stem = self.names.take(Path(one.name).stem or "picture", one.name)
            one.figure().save(self.folder / f"{stem}.zoom.png")
            self.rows.append({**one.row(), "files": {"figure": f"{stem}.zoom.png"}})
        self.skipped += skipped
        self.now_and_then()

    def content(self) -> dict[str, Any]:
        return {"pictures": self.rows, "skipped": told(self.skipped)}
