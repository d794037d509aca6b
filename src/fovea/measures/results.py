"""results/*.json as one page: what was measured, beside what the papers say. Nothing on the page is typed by hand."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fovea.basics import BadChoice, Record, nearest, student
from fovea.measures import seeds
from fovea.measures.figures import Written, markdown, read_toml, text_of
from fovea.measures.registry import titles

PAPERS, TRAINED = "papers.toml", "trained"
MADE = ("recipe", "commit", "seed", "processor", "date")


class Other(Record):
    """A second figure of ours: another row, another key, or both; what is None is as in the first."""

    row: dict[str, Any] | None = None
    key: str | None = None


class Paper(Record):
    """A figure of a paper, and what it is compared with: a figure of ours, or the difference or ratio of two."""

    result: str
    key: str
    paper: str
    says: float
    differs: str
    row: dict[str, Any] = Field(default_factory=dict)
    less: Other | None = None  # ours minus this one; `says` is the paper's difference
    over: Other | None = None  # ours divided by this one; `says` is the paper's ratio
    scale: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.less and self.over:
            raise ValueError("less is for a difference, over for a ratio: give one of them")
        if self.cells[1:] == self.cells[:1]:
            raise ValueError(f"{'less' if self.less else 'over'} is another row or another key of {self.result}")
        return self

    @property
    def cells(self) -> list[tuple[dict[str, Any], str]]:
        """The row and key of our figure, and those of the second one where there are two."""
        other = self.less or self.over
        second = [(self.row if other.row is None else other.row, other.key or self.key)] if other else []
        return [(self.row, self.key), *second]


class Papers(Record):
    figure: list[Paper] = Field(default_factory=list)


class Card(Record, extra="allow"):
    """A training run, as `fovea train` wrote it."""

    name: str
    tested_on: str | None
    chosen_on: str | None = None  # the pictures by which its settings were chosen
    changes: list[str]
    score: dict[str, float]
    minutes: float
    processor: str | None
    commit: str | None


def page(folder: Path) -> str:
    """The whole page, by the names of the measures, those of time last."""
    found = {name: seeds.result(folder, name) for name in seeds.results(folder)}
    if not found:
        raise BadChoice(f"no results (*.json) in {folder}; 'fovea measure WHAT … --json {folder}/NAME.json' writes one")
    papers = figures_of_papers(folder / PAPERS, found)
    known = titles()
    places = {what: i for i, what in enumerate(known)}
    lines = [
        "# Results",
        "",
        "Made by `fovea results` from the files in `results/`, each of which one command wrote; rates are fractions",
        "of one. The papers' figures are theirs, for their set-ups; the last column says what differs here. Rates from",
        "other data or networks are compared as differences (points lost or gained) or ratios, never directly.",
    ]
    for name, result in sorted(found.items(), key=lambda one: (places.get(one[1].what, 99), one[0])):
        lines += ["", f"## {known.get(result.what, result.what)}: {name}", "", *_section(result)]
        ours = [paper for paper in papers if paper.result == name]
        if ours:
            lines += ["", *_beside(ours, result)]
    runs = trained(cards(folder))
    if runs:
        lines += ["", "## Training runs whose weights are not kept", "", *_table(runs)]
        told = "means, and Student's 95 % interval of the first score over seeds"
        lines += ["", f"From their cards, as `fovea train` wrote them; {told}."]
    return "\n".join(lines) + "\n"


def cards(folder: Path) -> list[dict[str, Any]]:
    """Of the training runs whose weights are not kept."""
    paths = sorted((folder / TRAINED).glob("*.json"))
    return [Card.read(path.read_bytes(), path, "train it anew, or move it elsewhere").model_dump() for path in paths]


def trained(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each recipe and what was set otherwise, over its seeds."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for card in cards:
        set_otherwise = [one for one in card["changes"] if not one.startswith(("seed=", "network.weights="))]
        groups.setdefault((card["name"], card["tested_on"], *set_otherwise), []).append(card)
    rows = []
    for (name, data, *changes), own in groups.items():
        shared = [key for key in own[0]["score"] if all(key in card["score"] for card in own)]
        scores = {key: [float(card["score"][key]) for card in own] for key in shared}
        row: dict[str, Any] = {"recipe": name, "changes": ", ".join(changes), "tested_on": data}
        row |= {"chosen_on": own[0].get("chosen_on"), "seeds": len(own)}
        row |= {key: sum(values) / len(values) for key, values in scores.items()}
        if len(own) > 1 and scores:
            row["low"], row["high"] = student(next(iter(scores.values())))
        rows.append(row | {"minutes": own[0]["minutes"], "processor": own[0]["processor"], "commit": own[0]["commit"]})
    return rows


def figures_of_papers(path: Path, results: Collection[str]) -> list[Paper]:
    """The papers' own numbers, each beside the row and key of ours that it is compared with."""
    content = read_toml(path) if path.is_file() else {}
    figures = Papers.read(content, path, "write [[figure]] with result, key, paper, says, differs", BadChoice).figure
    for figure in figures:
        if figure.result not in results:
            raise BadChoice(f"{path}: no result {figure.result!r}{nearest(figure.result, results)}")
    return figures


def _section(result: Written) -> list[str]:
    more = result.model_extra or {}
    settings = "; ".join(f"{key}: {text_of(value)}" for key, value in result.settings.items() if value is not None)
    made = ", ".join(f"{key} {more[key]}" for key in MADE if more.get(key) is not None)
    rows = [row for row in result.rows if "area" not in row]  # points of curves are for the picture
    lines = [f"{settings}.", "", *_table(rows)]
    lines += ["", f"`{result.command}`"] if result.command else []
    return [*lines, "", f"*{made}.*"] if made else lines


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(key for row in rows for key in row))
    return markdown(names, ([text_of(row.get(name)) for name in names] for row in rows))


def _beside(papers: Sequence[Paper], result: Written) -> list[str]:
    lines = ["| | ours | the paper's | difference | paper | how the set-ups differ |", "|---|---|---|---|---|---|"]
    for paper in papers:
        names = [" ".join(map(str, [*row.values(), key])) for row, key in paper.cells]
        ours, form = _ours(paper, result), "+.3g" if paper.less else ".4g"
        cells = [(" - " if paper.less else " / ").join(names), f"{ours:{form}}", f"{paper.says:{form}}"]
        lines.append("| " + " | ".join([*cells, f"{ours - paper.says:+.3g}", paper.paper, paper.differs]) + " |")
    return lines


def _ours(paper: Paper, result: Written) -> float:
    first, *second = (_number(paper.result, result, row, key) for row, key in paper.cells)
    if paper.over and second == [0]:
        raise BadChoice(f"{paper.result}: {paper.key!r} is divided by {paper.cells[1]}, which is 0")
    return (first / second[0] if paper.over else first - sum(second)) / paper.scale


def _number(name: str, result: Written, where: Mapping[str, Any], key: str) -> float:
    rows = [row for row in result.rows if all(row.get(one) == value for one, value in where.items())]
    if len(rows) != 1 or not isinstance(rows[0].get(key), (int, float)):
        raise BadChoice(f"{name}: {len(rows)} rows with {where} and a number {key!r}; one is needed")
    return float(rows[0][key])
