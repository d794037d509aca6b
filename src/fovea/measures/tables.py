"""Tables and figures of README and docs, filled in between markers from results/*.json, cards and registries.

`<!-- NAME -->` … `<!-- /NAME -->` holds what `results/tables.toml` says of NAME: a table, or a text with figures in it.
A cell is a template such as `{top1:.3f}` over the one row of a result that it names; it stays empty where the row has
no such figure. `<!-- registry KIND -->` lists what is declared: `{name}`, `{about}`, `{options}` and its traits;
`<!-- card NAME -->` tells the card of weights that come with fovea, `<!-- options NAME -->` what a model's builder
takes."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from pydantic import Field

from fovea.basics import BadChoice, Entry, FoveaError, Record, Registry, nearest, write_text
from fovea.measures import papers, runs, seeds
from fovea.measures.figures import markdown, read_toml
from fovea.measures.scale import Scale
from fovea.networks import model, our_file, ours

FILE = "tables.toml"
PAPERS = "papers"
MARKED = re.compile(r"(<!--\s(?P<name>[\w. -]+?)\s-->)(?P<inside>.*?)(<!--\s/(?P=name)\s-->)", re.S)
Row = Mapping[str, Any]
PACKAGES = {  # where each kind is declared
    "layout": ("fovea.data",),
    "loss": ("fovea.training.losses",),
    "measure": ("fovea.measures",),
    "method": ("fovea.heatmaps.methods",),
    "model": ("fovea.models",),
    "patch_source": ("fovea.patches.sources", "fovea.glimpses.source", "fovea.prototypes.source"),
}


class Cell(Record, extra="allow"):
    """A template over a row of a result."""

    text: str
    source: str | None = Field(None, alias="from")
    where: dict[str, Any] = Field(default_factory=dict)


class Line(Cell):
    """A line of a table, with cells of its own or the table's."""

    text: str = ""
    cells: list[str | Cell] = Field(default_factory=list)


class Table(Line):
    header: list[str] = Field(default_factory=list)
    rows: list[Line] = Field(default_factory=list)
    each: str | None = None


class Tables:
    """What stands between markers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known = read_toml(folder / FILE) if (folder / FILE).is_file() else {}
        for name, table in self.known.items():
            Table.read(table, f"{folder / FILE}: {name}", "write header, cells and rows, or text", BadChoice)
        self.rows = cache(self._rows)

    def fill(self, text: str) -> str:
        """A page with everything between its markers made anew."""
        return MARKED.sub(lambda mark: f"{mark[1]}{self._filled(mark['name'], mark['inside'])}{mark[4]}", text)

    def _filled(self, name: str, inside: str) -> str:
        try:
            return self._between(name, inside)
        except FoveaError:
            raise
        except (ValueError, LookupError, AttributeError, TypeError) as error:  # of templates, and of what is left out
            raise BadChoice(f"{self.folder / FILE}: {name} cannot be filled: {error!r}") from None

    def _between(self, name: str, inside: str) -> str:
        if name.startswith("registry "):
            return f"\n{self._registry(name.removeprefix('registry '))}\n"
        if name.startswith("card "):
            return f"\n{self._facts(name.removeprefix('card '))}\n"
        if name.startswith("options "):
            return f"\n{_options(name.removeprefix('options '))}\n"
        if name not in self.known:
            raise BadChoice(f"{self.folder / FILE} says nothing of {name!r}{nearest(name, self.known)}")
        table = self.known[name]
        if "text" in table:
            return self._cell(table, {})
        return "\n" + "\n".join(markdown(table["header"], self._table(table))) + "\n"

    def _registry(self, kind: str) -> str:
        if kind not in PACKAGES:
            raise BadChoice(f"no registry {kind!r}{nearest(kind, PACKAGES)}")
        table = self.known.get(f"registry {kind}", {"header": ["name", "what it is"], "cells": ["`{name}`", "{about}"]})
        entries = Registry(kind, PACKAGES[kind], lambda entry, thing: thing).entries().values()
        rows = ([self._cell({"text": cell}, _declared(entry)) for cell in table["cells"]] for entry in entries)
        return "\n".join(markdown(table["header"], rows))

    def _facts(self, name: str) -> str:
        """What is known of weights that come with fovea, by their card."""
        (card,) = self._rows(f"card {name}")
        score = ", ".join(f"{key} {value:.3f}" for key, value in card["score"].items())
        size = our_file(name).stat().st_size / 1e6
        rows = {
            "network": f"`{card['network']}`, {card['parameters']:,} parameters, {size:.1f} MB in half precision",
            "trained on": f"`{card['trained_on']}`",
            "settings chosen on": f"`{card['chosen_on']}`",
            "score": f"{score} on `{card['tested_on']}`, {card['test_pictures']:,} of them",
            "recipe": f"`{card['recipe']}`" + "".join(f", `{change}`" for change in card.get("changes", ())),
            "made": f"{card['date']}, {card['minutes']:g} minutes, {card['processor']}",
        }
        return "\n".join(markdown(["what it is", card["about"]], ([key, value] for key, value in rows.items())))

    def _table(self, table: Mapping[str, Any]) -> Iterator[list[str]]:
        """One line per row; `each` makes a row of every row of a result."""
        rows = table.get("rows", ())
        if "each" in table:
            rows = [{"row": dict(row)} for row in self.rows(table["each"])]
        for row in rows:
            common = {"from": table.get("from"), **row}
            cells = [{"text": cell} if isinstance(cell, str) else cell for cell in row.get("cells", table["cells"])]
            where = row.get("where", {})
            yield [self._cell({**cell, "where": where | cell.get("where", {})}, common) for cell in cells]

    def _cell(self, cell: Mapping[str, Any], row: Row) -> str:
        source, text = cell.get("from", row.get("from")), cell["text"]
        values: dict[str, Any] = {key: value for key, value in row.items() if key not in ("from", "where", "cells")}
        values |= row.get("row", {})
        if source is not None:
            values |= {key: value for key, value in self.one(source, cell.get("where", {})).items() if key not in row}
        numbers = _numbers(values)
        wanted = [name for _, name, _, _ in Formatter().parse(text) if name]
        return "" if any(values.get(name) is None for name in wanted) else str(text.format(**numbers))

    def sentence(self, text: str, cells: Mapping[str, tuple[str, Row]]) -> str:
        """A template over several rows: `{name[key]:.3f}` is a figure of the row that `name` stands for."""
        rows = {name: _numbers(self.one(source, where)) for name, (source, where) in cells.items()}
        try:
            return text.format(**rows)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise BadChoice(f"{text!r} cannot be filled from {list(rows)}: {error!r}") from None

    def one(self, source: str, where: Row) -> Row:
        """The first row of a result that has these values."""
        rows, where = self.rows(source), {key: value for key, value in where.items() if value is not False}
        found = next((row for row in rows if all(row.get(key) == value for key, value in where.items())), None)
        if found is None:
            raise BadChoice(f"{self.folder}: no row of {source!r} has {dict(where)}")
        return found

    def _rows(self, source: str) -> Sequence[Row]:
        """A result's rows by its name, means where it was repeated with other seeds; `card NAME` is the card of weights
        that come with fovea, `scale NAME` what follows from results for more pictures, `trained` the training runs
        whose weights are not kept, `papers` the papers' figures beside ours."""
        if source.startswith("card "):
            name = source.removeprefix("card ")
            if name not in ours():
                raise BadChoice(f"{self.folder / FILE}: no card {name!r}{nearest(name, ours())}")
            return [{**ours()[name], **ours()[name]["score"]}]
        if source.startswith("scale "):
            return Scale(self.rows).rows(source.removeprefix("scale "))
        if source == runs.TRAINED:
            return runs.trained(runs.cards(self.folder).values())
        if source == PAPERS:
            return self._papers()
        return seeds.result(self.folder, source).rows

    def _papers(self) -> list[Row]:
        """The papers' figures with ours and the verdicts."""
        measured = runs.measured(self.folder)
        figures = papers.read(self.folder / papers.FILE, measured).figure
        beside = ({"ours": figure.ours(measured), "verdict": figure.verdict(measured)} for figure in figures)
        return [figure.row | figure.model_dump() | ours for figure, ours in zip(figures, beside, strict=True)]


def refill(folder: Path, pages: Iterable[Path]) -> list[Path]:
    """Make everything between the pages' markers anew; those that changed come back."""
    tables, changed = Tables(folder), []
    for path in pages:
        text = path.read_text(encoding="utf-8")
        filled = tables.fill(text)
        if filled != text:
            write_text(path, filled)
            changed.append(path)
    return changed


class Figure(float):
    """A number in a template: `G` writes billions, `x` a ratio, `P` a share as a percentage."""

    def __format__(self, how: str) -> str:
        if how.endswith("G"):
            return f"{self / 1e9:{how[:-1] or '.2f'}} G"
        if how.endswith("P"):
            return f"{self:.0%}".replace("%", " %")
        return f"{int(self):,}" if how == "d" else super().__format__(how)


def _numbers(row: Row) -> Row:
    return {key: Figure(value) if isinstance(value, float | int) else value for key, value in row.items()}


def _options(name: str) -> str:
    """What a model's builder takes, with the defaults."""
    builder = model.get(name)
    given = inspect.signature(builder.config or builder.make).parameters
    return ", ".join(f"`{option}={given[option].default!r}`" for option in builder.options)


def _declared(entry: Entry) -> Row:
    """What a file declares, for a template: lists as words, options with their defaults."""
    name = f"{entry.name}/NAME" if "over" in entry.traits else entry.name
    options = ""
    if isinstance(entry.node, ast.FunctionDef):
        arguments = entry.node.args
        pairs = [*zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)][::-1]
        options = ", ".join(f"`{argument.arg}={ast.unparse(default)}`" for argument, default in pairs)
    lists = {key: value for key, value in entry.traits.items() if isinstance(value, tuple | list)}
    traits = {**entry.traits, **{key: ", ".join(f"`{word}`" for word in value) for key, value in lists.items()}}
    return {"holds": "pictures", "takes": "one pass", **traits, "name": name, "about": entry.about, "options": options}
