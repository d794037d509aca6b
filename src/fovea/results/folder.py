"""A folder that fills as results come; what was done so far is never lost."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from fovea.basics.files import Names, write_json

SECONDS = 5.0  # between two writings of the JSON


@dataclass
class Filling(ABC):
    """The JSON file of a folder: written now and then, and at the end."""

    file: ClassVar[str]

    folder: Path
    settings: dict[str, Any]
    names: Names = field(default_factory=Names, kw_only=True)
    written: float = field(default=0.0, kw_only=True)

    @abstractmethod
    def begun(self) -> bool:
        """Whether there is anything to tell yet."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """What the file says beside the settings."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self.begun():  # a wrong choice found at once leaves the folder as it was
            self.finish()

    def now_and_then(self) -> None:
        if time.monotonic() - self.written > SECONDS:
            self.finish()

    def finish(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / self.file, {**self.settings, **self.content()})
        self.written = time.monotonic()


def told(skipped: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Pictures that were left out, and why."""
    return [{"picture": name, "reason": reason} for name, reason in skipped]
