"""What the papers say beside what was measured: figure by figure, and what became of each of their tables."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fovea.basics import BadChoice, Record, nearest
from fovea.measures.figures import Written, markdown, read_toml

FILE = "papers.toml"
Verdict = Literal["reproduced", "direction only", "contradicted", "not run"]
RULE = (
    "A difference of ours is *reproduced* between 2/3 and 3/2 of the paper's, a number, ratio or share within a tenth "
    "of it, and both also where they are better than what the paper claims; *direction only* between a fifth and five "
    "times it; else, or with the other sign, *contradicted*. A table is as its worst figure. Differences below a point "
    "may be chance: intervals stand with the measurements below. Diagrams of architectures are left out."
)


class Other(Record):
    """A second figure of ours: another result, row or key; what is None is as in the first."""

    result: str | None = None
    row: dict[str, Any] | None = None
    key: str | None = None


Cell = tuple[str, dict[str, Any], str]  # result, row, key


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
    bound: Literal["least", "most"] | None = None  # the claim is "at least" or "at most" this
    scale: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.less and self.over:
            raise ValueError("less is for a difference, over for a ratio: give one of them")
        if self.cells[1:] == self.cells[:1]:
            raise ValueError(f"{'less' if self.less else 'over'} is another row or another key of {self.result}")
        return self

    @property
    def cells(self) -> list[Cell]:
        """The place of our figure, and that of the second one where there are two."""
        first: Cell = (self.result, self.row, self.key)
        other = self.less or self.over
        if other is None:
            return [first]
        return [
            first,
            (other.result or self.result, self.row if other.row is None else other.row, other.key or self.key),
        ]

    @property
    def name(self) -> str:
        """Of our figure, in words."""
        several = len({result for result, _, _ in self.cells}) > 1
        told = [" ".join(map(str, [result] * several + [*row.values(), key])) for result, row, key in self.cells]
        return (" - " if self.less else " / ").join(told)

    def written(self, number: float) -> str:
        return f"{number:{'+.3g' if self.less else '.4g'}}"

    def ours(self, results: Mapping[str, Written]) -> float:
        first, *second = (_number(results, *cell) for cell in self.cells)
        if self.over and second == [0]:
            raise BadChoice(f"{self.result}: {self.key!r} is divided by {self.cells[1][1:]}, which is 0")
        return (first / second[0] if self.over else first - sum(second)) / self.scale

    def verdict(self, results: Mapping[str, Written]) -> Verdict:
        """By RULE."""
        ours = self.ours(results)
        if (self.bound == "least" and ours >= self.says) or (self.bound == "most" and ours <= self.says):
            return "reproduced"
        least, most = (2 / 3, 3 / 2) if self.less else (0.9, 1.1)
        share = ours / self.says if self.says else 0.0
        if least <= share <= most:
            return "reproduced"
        return "direction only" if 1 / 5 <= share <= 5 else "contradicted"


class Item(Record):
    """A table, figure or section of a paper: what it shows, and what was found here or why nothing was looked for."""

    item: str  # "L2-CAF, Table 1"; it has the figures whose `paper` begins so
    about: str
    found: str
    verdict: Verdict | None = None  # of what no figure says

    @property
    def place(self) -> tuple[str, str]:
        """The paper, and where in it."""
        paper, _, place = self.item.partition(", ")
        return paper, place

    def has(self, figure: Paper) -> bool:
        return figure.paper == self.item or figure.paper.startswith((f"{self.item},", f"{self.item}:"))


class Papers(Record):
    figure: list[Paper] = Field(default_factory=list)
    item: list[Item] = Field(default_factory=list)

    def of(self, item: Item) -> list[Paper]:
        return [figure for figure in self.figure if item.has(figure)]

    def overview(self, results: Mapping[str, Written]) -> list[str]:
        """What became of every table and figure, one table per paper."""
        lines = ["## The papers, table by table", "", RULE] if self.item else []
        for paper, items in groupby(self.item, key=lambda item: item.place[0]):
            rows = [_row(item, self.of(item), results) for item in items]
            lines += ["", f"### {paper}", "", *markdown(["", "shows", "here", "figures", "found"], rows)]
        return lines

    def beside(self, name: str, results: Mapping[str, Written]) -> list[str]:
        """The figures of the papers that are compared with this result."""
        rows = []
        for figure in (figure for figure in self.figure if figure.result == name):
            ours = figure.ours(results)
            cells = [figure.name, figure.written(ours), figure.written(figure.says), f"{ours - figure.says:+.3g}"]
            rows.append([*cells, figure.paper, figure.differs])
        header = ["", "ours", "the paper's", "difference", "paper", "how the set-ups differ"]
        return markdown(header, rows) if rows else []


def read(path: Path, results: Collection[str]) -> Papers:
    """The papers' own numbers, each beside the row and key of ours that it is compared with."""
    content = read_toml(path) if path.is_file() else {}
    papers = Papers.read(content, path, "write [[figure]] with result, key, paper, says, differs", BadChoice)
    for figure in papers.figure:
        for name in (cell[0] for cell in figure.cells):
            if name not in results:
                raise BadChoice(f"{path}: no result {name!r}{nearest(name, results)}")
        if papers.item and sum(item.has(figure) for item in papers.item) != 1:
            raise BadChoice(f"{path}: {figure.paper!r} is of no [[item]], or of several")
    for item in papers.item:
        if item.verdict is None and not papers.of(item):
            raise BadChoice(f"{path}: {item.item!r} has no figure, so it needs a verdict")
    return papers


def _row(item: Item, figures: Sequence[Paper], results: Mapping[str, Written]) -> list[str]:
    told = [(figure, figure.verdict(results)) for figure in figures]
    verdicts = [verdict for _, verdict in told] + ([item.verdict] if item.verdict else [])
    worst = next(
        verdict for verdict in ("contradicted", "direction only", "reproduced", "not run") if verdict in verdicts
    )
    shown = [figure for figure, verdict in told if verdict == worst][:3]
    words = [f"{one.name}: {one.written(one.ours(results))}, paper {one.written(one.says)}" for one in shown]
    counted = Counter(verdict for _, verdict in told)
    tally = ", ".join(f"{number} {verdict}" for verdict, number in counted.items()) if len(told) > len(shown) else ""
    return [item.place[1], item.about, f"**{worst}**", "; ".join(filter(None, [*words, tally])), item.found]


def _number(results: Mapping[str, Written], name: str, where: Mapping[str, Any], key: str) -> float:
    rows = [row for row in results[name].rows if all(row.get(one) == value for one, value in where.items())]
    if len(rows) != 1 or not isinstance(rows[0].get(key), (int, float)):
        raise BadChoice(f"{name}: {len(rows)} rows with {where} and a number {key!r}; one is needed")
    return float(rows[0][key])
