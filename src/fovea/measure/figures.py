"""The one form in which figures are written: what was measured, with what settings, and flat rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fovea.heatmap import write_json


def write(path: Path, what: str, settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"what": what, "settings": dict(settings), "rows": [dict(row) for row in rows]})


def show(rows: Sequence[Mapping[str, Any]], title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(
            name, justify="right" if any(isinstance(row.get(name), (int, float)) for row in rows) else "left"
        )
    for row in rows:
        table.add_row(*(_text(row.get(name)) for name in names))
    if not console.is_terminal:
        console.width = max(console.width, 200)  # a file or a pipe has room for every column
    console.print(table)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
