"""Files that are whole or not there, under names that do not clash."""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Names:
    """File names that do not clash."""

    taken: dict[str, str] = field(default_factory=dict)

    def take(self, wanted: str, owner: str) -> str:
        wanted = plain(wanted)
        name, number = wanted, 2
        while self.taken.get(name, owner) != owner:
            name, number = f"{wanted}-{number}", number + 1
        self.taken[name] = owner
        return name


def plain(name: str) -> str:
    """A name as a part of a file name: plain and not too long."""
    return re.sub(r"[^\w-]+", "_", name).strip("_").encode()[:80].decode(errors="ignore") or "_"


def finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Whole or not at all: a reader never meets half a file."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
