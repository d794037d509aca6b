"""What was found in pictures, text and sounds, into one folder as it comes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fovea.results.folder import Filling

if TYPE_CHECKING:
    from fovea.patches.localize import Step
    from fovea.patches.sound import SoundRegions
    from fovea.patches.text import TextRegions


@dataclass
class Writer(Filling):
    """Overlays, crops, .npy values, texts.html and regions.json."""

    file: ClassVar[str] = "regions.json"

    pictures: list[dict[str, Any]] = field(default_factory=list)
    texts: list[dict[str, Any]] = field(default_factory=list)
    sounds: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def begun(self) -> bool:
        return bool(self.rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [*self.pictures, *self.texts, *self.sounds]

    def add(self, step: "Step") -> None:
        """A batch of pictures."""
        from fovea.patches.found import save

        self.pictures += [save(one, self.folder, self.names) for one in step.found]
        self.skip("picture", step.skipped)
        self.now_and_then()

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

    def content(self) -> dict[str, Any]:
        kinds = {"pictures": self.pictures, "texts": self.texts, "sounds": self.sounds}
        found = {kind: rows for kind, rows in kinds.items() if rows or kind == "pictures"}
        return {**found, "skipped": self.skipped}
