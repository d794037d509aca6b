"""The one form in which figures are written: what was measured, with which settings, flat rows, and how it was made."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fovea.basics import BadChoice, Record, Text, left_out, write_json
from fovea.basics.provenance import provenance

Row = Mapping[str, Any]
SHORT = {"recall_at_": "R@", "ms_per_picture": "ms"}  # how long keys head their columns


class Written(Record, extra="allow"):
    """A file of figures: flat rows, and beside them how they were made."""

    what: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    command: Text | None = None


def read(path: Path) -> Written:
    """A file that Figures.write wrote."""
    if not path.is_file():
        raise BadChoice(f"no result {path}; 'fovea measure WHAT … --json {path}' writes one")
    return Written.read(path.read_bytes(), path, "measure it anew, or move it elsewhere")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadChoice(f"{path} is not TOML: {error}") from None


@dataclass(frozen=True)
class Figures:
    """What a measurement gives. `skipped` names the pictures left out, with the reasons. `tables` are printed by their
    titles after the rows' declared columns, or alone where none are declared; `notes` and `warnings` end what is
    printed. `extra` is for whoever draws them, where rows do not hold it."""

    what: str
    settings: Mapping[str, Any]
    rows: Sequence[Row]
    skipped: Sequence[tuple[str, str]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)  # what does not fit flat rows
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict, kw_only=True, repr=False)
    notes: Sequence[str] = field(default=(), kw_only=True, repr=False)
    warnings: Sequence[str] = field(default=(), kw_only=True, repr=False)
    extra: Any = field(default=None, kw_only=True, repr=False)

    def write(self, path: Path, seed: int | None = None, recipe: str | None = None, command: str | None = None) -> None:
        content = {"what": self.what, "settings": dict(self.settings), "rows": [dict(row) for row in self.rows]}
        if self.skipped:
            content["skipped"] = [left_out(name, reason) for name, reason in self.skipped]
        path.parent.mkdir(parents=True, exist_ok=True)
        made_by = {"command": command} | provenance(seed, recipe, self.settings.get("device"))
        write_json(path, content | dict(self.details) | made_by)

    def show(self, title: str, console: Console, columns: Sequence[str] = (), interval: str = "") -> None:
        for words, table in self.told(title, columns, interval).items():
            _print(words, table, console)

    def told(self, title: str, columns: Sequence[str] = (), interval: str = "") -> dict[str, Sequence[Row]]:
        """The tables, or the declared columns of the rows; a key that no row has a value for is left out."""
        rows = {title: printed(self.rows, columns, interval)} if columns or not self.tables else {}
        return {**rows, **self.tables}


def _print(title: str, rows: Sequence[Row], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    names = _keys(rows)
    for name in names:
        is_number = any(isinstance(row.get(name), (int, float)) for row in rows)
        table.add_column(name, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(text_of(row.get(name)) for name in names))
    if not console.is_terminal:
        console.width = max(console.width, 400)  # a file or a pipe has room for every column
    console.print(table)


def _keys(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of a page."""
    if not header:
        raise ValueError("a table has at least one column")
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def printed(rows: Sequence[Row], columns: Sequence[str] = (), interval: str = "") -> list[dict[str, Any]]:
    """Rows as people read them: the columns that have a value anywhere, intervals behind their figures."""
    known = [key for key in _keys(rows) if any(row.get(key) is not None for row in rows)]
    keys = [key for column in columns or known for key in known if fnmatchcase(key, column)]
    return [{_heading(key): cell(row, key, interval) for key in dict.fromkeys(keys)} for row in rows]


def _heading(key: str) -> str:
    for long, short in SHORT.items():
        key = key.replace(long, short)
    return key


def cell(row: Row, key: str, interval: str = "") -> Any:
    """A value, with its interval where the row has one: KEY_low and KEY_high, or low and high of the `interval` key."""
    value = row.get(key)
    low, high = (row.get(f"{key}_{end}", row.get(end) if key == interval else None) for end in ("low", "high"))
    if isinstance(value, int) and key in ("macs", "params"):
        return giga(value)
    if not isinstance(value, float) or (low is None and not key.endswith("change")):
        return value
    return spread(value, low, high, "+" if key.endswith("change") else "")


def spread(value: float, low: float | None, high: float | None, sign: str = "") -> str:
    """A figure with its interval, as 0.512 (0.480 to 0.544)."""
    ends = "" if low is None or high is None else f" ({low:{sign}.3f} to {high:{sign}.3f})"
    return f"{value:{sign}.3f}{ends}"


def giga(number: int) -> str:
    """As papers write it: 492,015,256 as 0.492 G, 25,557,032 as 25.56 M."""
    if 1e8 <= number < 1e9:
        return f"{number / 1e9:.3f} G"
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.2f} {unit}"
    return f"{number} "


def text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
