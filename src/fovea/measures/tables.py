"""Tables and figures of README and docs, filled in between markers from results/*.json, cards and registries.

`<!-- NAME -->` … `<!-- /NAME -->` holds what `results/tables.toml` says of NAME: a table, or a text with figures in it.
A cell is a template such as `{top1:.3f}` over the one row of a result that it names; it stays empty where the row has
no such figure. `<!-- registry KIND -->` holds the names of a registry, each with what it is.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from fovea.basics.errors import BadChoice, nearest
from fovea.basics.registry import Registry
from fovea.networks.loading import ours

FILE = "tables.toml"
MARKED = re.compile(r"(<!-- (?P<name>[\w. -]+?) -->)(?P<inside>.*?)(<!-- /(?P=name) -->)", re.S)
Row = Mapping[str, Any]


class Tables:
    """What stands between markers. `registries` are those that pages may list, by kind."""

    def __init__(self, folder: Path, registries: Mapping[str, Registry[Any]]) -> None:
        self.folder, self.registries = folder, registries
        self.known: dict[str, Any] = tomllib.loads((folder / FILE).read_text(encoding="utf-8"))
        self.rows = cache(self._rows)

    def fill(self, text: str) -> str:
        """A page with everything between its markers made anew."""
        return MARKED.sub(lambda mark: f"{mark[1]}{self._between(mark['name'], mark['inside'])}{mark[4]}", text)

    def _between(self, name: str, inside: str) -> str:
        if name.startswith("registry "):
            return f"\n{self._registry(name.removeprefix('registry '))}\n"
        if name not in self.known:
            raise BadChoice(f"{self.folder / FILE} says nothing of {name!r}{nearest(name, self.known)}")
        table = self.known[name]
        if "text" in table:
            return self._cell(table, {})
        return "\n" + "\n".join(_lines(table["header"], self._table(table))) + "\n"

    def _registry(self, kind: str) -> str:
        if kind not in self.registries:
            raise BadChoice(f"no registry {kind!r}{nearest(kind, self.registries)}")
        entries = self.registries[kind].entries().values()
        return "\n".join(_lines(["name", "what it is"], ([f"`{one.name}`", one.about] for one in entries)))

    def _table(self, table: Mapping[str, Any]) -> Iterator[list[str]]:
        """One line per row; `each` makes a row of every row of a result."""
        rows = table.get("rows", ())
        if "each" in table:
            rows = [{"row": dict(row)} for row in self.rows(table["each"])]
        for row in rows:
            common = {"from": table.get("from"), **row}
            cells = [{"text": cell} if isinstance(cell, str) else cell for cell in row.get("cells", table["cells"])]
            yield [
                self._cell({**cell, "where": row.get("where", {}) | cell.get("where", {})}, common) for cell in cells
            ]

    def _cell(self, cell: Mapping[str, Any], row: Row) -> str:
        source, text = cell.get("from", row.get("from")), cell["text"]
        values: dict[str, Any] = {key: value for key, value in row.items() if key not in ("from", "where", "cells")}
        values |= row.get("row", {})
        if source is not None:
            values |= {key: value for key, value in self._one(source, cell.get("where", {})).items() if key not in row}
        wanted = [name for _, name, _, _ in Formatter().parse(text) if name]
        if any(values.get(name) is None for name in wanted):
            return ""
        numbers = {key: Figure(value) if isinstance(value, float | int) else value for key, value in values.items()}
        filled: str = text.format(**numbers)
        return filled

    def _one(self, source: str, where: Row) -> Row:
        rows, where = self.rows(source), {key: value for key, value in where.items() if value is not False}
        found = next((row for row in rows if all(row.get(key) == value for key, value in where.items())), None)
        if found is None:
            raise BadChoice(f"{self.folder / FILE}: no row of {source} has {dict(where)}")
        return found

    def _rows(self, source: str) -> Sequence[Row]:
        """A result's rows by its file's name; `card NAME` is the card of weights that come with fovea."""
        if source.startswith("card "):
            card = ours()[source.removeprefix("card ")]
            return [{**card, **card["score"]}]
        content = json.loads((self.folder / f"{source}.json").read_text(encoding="utf-8"))
        rows: Sequence[Row] = content["rows"]
        return rows


class Figure(float):
    """A number in a template: `G` writes billions, `x` a ratio, `P` a share as a percentage."""

    def __format__(self, how: str) -> str:
        if how.endswith("G"):
            return f"{self / 1e9:{how[:-1] or '.2f'}} G"
        if how.endswith("P"):
            return f"{self:.0%}".replace("%", " %")
        return f"{int(self):,}" if how == "d" else super().__format__(how)


def _lines(header: Sequence[str], rows: "Iterator[list[str]]") -> Iterator[str]:
    for cells in (list(header), ["---"] * len(header), *rows):
        yield "| " + " | ".join(cells) + " |" if cells[0] != "---" else "|" + "---|" * len(cells)
