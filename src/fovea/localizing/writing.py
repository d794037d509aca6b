"""What was found in pictures, text and sounds, into one folder as it comes; what was done so far is never lost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fovea.heatmap import Names, write_json

if TYPE_CHECKING:
    from fovea.localizing import Step
    from fovea.localizing.sound import SoundRegions
    from fovea.localizing.text import TextRegions

SECONDS = 5.0  # between two writings of the JSON


@dataclass
class Writer:
    """Overlays, crops, .npy values, texts.html and regions.json."""

    folder: Path
    settings: dict[str, Any]
    pictures: list[dict[str, Any]] = field(default_factory=list)
    texts: list[dict[str, Any]] = field(default_factory=list)
    sounds: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    written: float = 0.0

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self.rows:  # a wrong choice found at once leaves the folder as it was
            self.finish()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [*self.pictures, *self.texts, *self.sounds]

    def add(self, step: "Step") -> None:
        """A batch of pictures."""
        from fovea.localizing.found import save

        self.pictures += [save(one, self.folder, self.names) for one in step.found]
        self.skip("picture", step.skipped)
        if time.monotonic() - self.written > SECONDS:
            self.finish()

    def add_texts(self, regions: "TextRegions") -> None:
        self.texts += [one.row() for one in regions]
        self.skip("text", regions.skipped)
        if regions.found:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "texts.html").write_text(regions.html(), encoding="utf-8")

    def add_sounds(self, regions: "SoundRegions") -> None:
        self.sounds += [one.save(self.folder, self.names) for one in regions]
        self.skip("sound", regions.skipped)

    def skip(self, what: str, skipped: Sequence[tuple[str, str]]) -> None:
        self.skipped += [{what: name, "reason": reason} for name, reason in skipped]

    def finish(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        kinds = {"pictures": self.pictures, "texts": self.texts, "sounds": self.sounds}
        found = {kind: rows for kind, rows in kinds.items() if rows or kind == "pictures"}
        write_json(self.folder / "regions.json", {**self.settings, **found, "skipped": self.skipped})
        self.written = time.monotonic()
