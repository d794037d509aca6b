"""The one form in which figures are written: what was measured, with which settings, flat rows, and how it was made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fovea.basics.files import write_json
from fovea.basics.provenance import provenance


@dataclass(frozen=True)
class Figures:
    """What a measurement gives. `skipped` names the pictures left out, with the reasons."""

    what: str
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    skipped: Sequence[tuple[str, str]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)  # what does not fit flat rows

    def write(self, path: Path, seed: int | None = None, recipe: str | None = None, command: str | None = None) -> None:
        content = {"what": self.what, "settings": dict(self.settings), "rows": [dict(row) for row in self.rows]}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            path,
            content | dict(self.details) | {"command": command} | provenance(seed, recipe, self.settings.get("device")),
        )

    def show(self, title: str, console: Console) -> None:
        table = Table(title=title, title_justify="left")
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        for name in names:
            number = any(isinstance(row.get(name), (int, float)) for row in self.rows)
            table.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*(text_of(row.get(name)) for name in names))
        if not console.is_terminal:
            console.width = max(console.width, 200)  # a file or a pipe has room for every column
        console.print(table)


def text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
