"""The plots of the results pages: declared in results/plots.toml, filled from results/*.json.

A plot has panels side by side. A panel holds bars (in groups, with intervals) or lines; each names a result, the rows
of it and the keys that are drawn. Sentences take their figures from results too: `{name[key]:.3f}`, where `cells` say
which row `name` is. `drawn` gives plain numbers; `chart_files` draws them."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import Field
from scipy import stats

from fovea.basics import BadChoice, FoveaError, Record
from fovea.measures.figures import read_toml
from fovea.measures.tables import Tables

FILE = "plots.toml"
Row = Mapping[str, Any]
Drawn = dict[str, Any]  # words and numbers, as JSON has them


class Place(Record):
    """Rows of a result."""

    source: str | None = Field(None, alias="from")
    where: dict[str, Any] = Field(default_factory=dict)


class Shown(Place):
    """What is drawn of a row. Without low and high, the interval of a share of `images` pictures is Wilson's."""

    label: str = ""
    key: str | None = None
    low: str | None = None
    high: str | None = None
    images: str | None = None
    scale: float = 1.0  # figures are divided by it
    dashed: bool = False  # a control or a reference
    suffix: str = ""  # of a bar: what it adds to the name of its group's result
    optional: bool = False  # of a bar: groups may lack its row


class Line(Shown):
    """Rows along x; `where` may have patterns, as sum:*; of an x like sum:3 the number counts. Without x: a level."""

    x: str | None = None
    at: Place | None = None  # the one row that x is of, where that is another result's
    x_scale: float = 1.0
    by: str | None = None  # a line for every value of this key
    labels: dict[str, str] = Field(default_factory=dict)  # of those values; else `label`, a template over a row
    control: str | None = None  # the one of those values that is drawn dashed
    note: str | None = None  # a key that is written beside each point


class Panel(Record):
    title: str = ""
    x: str
    y: str = ""
    log: bool = False
    digits: int = 3  # of the figures beside bars
    dots: bool = False  # for bars whose differences are small: dots, on an axis that need not begin at 0
    groups: list[Shown] = Field(default_factory=list)
    bars: list[Shown] = Field(default_factory=list)
    lines: list[Line] = Field(default_factory=list)


class Chart(Record):
    file: str
    page: str
    title: str
    says: str
    cells: dict[str, Place] = Field(default_factory=dict)
    panel: list[Panel] = Field(min_length=1)

    @property
    def sources(self) -> list[str]:
        """The results that it shows."""
        names = [
            f"{group.source}{bar.suffix}"
            for panel in self.panel
            for bar in panel.bars
            for group in (panel.groups if bar.source is None else [bar])
        ]
        lines = [line for panel in self.panel for line in panel.lines]
        names += [str(place.source) for line in lines for place in (line, line.at) if place]
        return list(dict.fromkeys(names))


class Charts(Record):
    plot: list[Chart] = Field(default_factory=list)


def read(folder: Path) -> list[Chart]:
    path = folder / FILE
    found = read_toml(path) if path.is_file() else {}
    return Charts.read(found, path, "write [[plot]] with file, page, title, says and panel", BadChoice).plot


def says(chart: Chart, tables: Tables) -> str:
    """The sentence below a plot."""
    cells = {name: (place.source or "", place.where) for name, place in chart.cells.items()}
    return tables.sentence(chart.says, cells)


def drawn(chart: Chart, tables: Tables) -> Drawn:
    """All that is drawn, in numbers of five digits."""
    try:
        return {"title": chart.title, "panels": [_panel(panel, tables) for panel in chart.panel]}
    except FoveaError:
        raise
    except (ValueError, LookupError, ArithmeticError, TypeError) as error:  # of figures that are none, and of labels
        raise BadChoice(f"{tables.folder / FILE}: {chart.file} cannot be drawn: {error!r}") from None


def _panel(panel: Panel, tables: Tables) -> Drawn:
    words = {"title": panel.title, "x": panel.x, "y": panel.y, "log": panel.log}
    if panel.lines:
        return words | {"lines": [drawn for line in panel.lines for drawn in _lines(line, tables)]}
    groups = [group.label for group in panel.groups]
    bars = [_bars(bar, panel.groups, tables) for bar in panel.bars]
    return words | {"dots": panel.dots, "digits": panel.digits, "groups": groups, "bars": bars}


def _bars(bar: Shown, groups: Sequence[Shown], tables: Tables) -> Drawn:
    """A bar of each group: what the bar does not say, the group does."""
    points = []
    for group in groups:
        said = {name: getattr(group, name) for name in group.model_fields_set - bar.model_fields_set}
        shown = bar.model_copy(update={**said, "where": group.where | bar.where})
        points.append(_point(shown, next(iter(_rows(shown, tables)), {})))
    return {"label": bar.label, "dashed": bar.dashed, **_columns(points, ("value", "low", "high"))}


def _rows(shown: Shown, tables: Tables) -> list[Row]:
    """Those that have what is drawn; none at all only where that is allowed."""
    name = f"{shown.source}{shown.suffix}"
    rows = [row for row in tables.rows(name) if _fits(row, shown.where) and row.get(shown.key or "") is not None]
    if not rows and not shown.optional:
        raise BadChoice(f"{tables.folder / FILE}: no row of {name!r} has {shown.where} and {shown.key!r}")
    return rows


def _lines(line: Line, tables: Tables) -> list[Drawn]:
    rows = _rows(line, tables)
    values = dict.fromkeys(row.get(line.by) for row in rows) if line.by else {None: None}
    found = []
    for value in values:
        own = [row for row in rows if not line.by or row.get(line.by) == value]
        points = [{"x": _x(line, row, tables), "note": row.get(line.note or ""), **_point(line, row)} for row in own]
        points.sort(key=lambda point: point["x"] or 0)
        names = ("value", "low", "high", *(["x"] if line.x else []), *(["note"] if line.note else []))
        label = line.labels.get(str(value)) or (line.label or f"{{{line.by}}}").format(**own[0])
        dashed = line.dashed or (line.by is not None and value == line.control)
        found.append({"label": label, "dashed": dashed, **_columns(points, names)})
    return found


def _x(line: Line, row: Row, tables: Tables) -> float | None:
    at = tables.one(str(line.at.source), line.at.where) if line.at else row
    value = at[line.x] if line.x else None
    return _short(float(value.rpartition(":")[2]) if isinstance(value, str) else value, line.x_scale)


def _fits(row: Row, where: Row) -> bool:
    return all(
        fnmatchcase(str(row.get(key)), value) if isinstance(value, str) else row.get(key) == value
        for key, value in where.items()
    )


def _point(shown: Shown, row: Row) -> dict[str, Any]:
    value = row.get(shown.key or "")
    ends = [row.get(end) if end else None for end in (shown.low, shown.high)]
    if shown.images and value is not None and ends[0] is None:
        count = int(row[shown.images])
        ends = [*stats.binomtest(round(value * count), count).proportion_ci(method="wilson")]
    if shown.scale < 0:
        ends.reverse()
    value, low, high = (_short(one, shown.scale) for one in (value, *ends))
    if value is not None and not (value if low is None else low) <= value <= (value if high is None else high):
        raise ValueError(f"{value} is not within {low} to {high}")
    return {"value": value, "low": low, "high": high}


def _columns(points: Sequence[Row], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [point[name] for point in points] for name in names}


def _short(value: Any, scale: float) -> float | None:
    return None if value is None else float(f"{value / scale:.5g}")
