"""What the papers say beside what was measured: figure by figure, and what became of each of their tables."""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fovea.basics import BadChoice, Record, nearest
from fovea.measures.figures import Written, markdown, read_toml

FILE = "papers.toml"
Verdict = Literal["reproduced", "direction only", "contradicted", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "direction only", "contradicted", "not run")
WORST: tuple[Verdict, ...] = ("contradicted", "direction only", "reproduced", "not run")
RULE = """\
- **reproduced**: our difference is between 2/3 and 3/2 of the paper's; or our number, ratio or share is within a tenth
  of the paper's; or ours is better than what the paper claims.
- **direction only**: the sign is the paper's, and ours is between a fifth and five times the paper's.
- **contradicted**: anything else that was measured.
- **not run**: nothing was measured, and the page says why.

A table or figure has the verdict of its worst number. Where no number can be compared, as for pictures, the verdict is
ours, and the page says what was looked at. Differences below a point may be chance: see the intervals. Diagrams of
architectures are left out."""


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
    def place(self) -> tuple[str, str]:
        """The paper, and where in it."""
        return _place(self.paper)

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
        return _place(self.item)

    def has(self, figure: Paper) -> bool:
        return figure.paper == self.item or figure.paper.startswith((f"{self.item},", f"{self.item}:"))


class Page(Record):
    """A page of results: of a paper, or of none."""

    file: str
    title: str
    about: str
    paper: str | None = None  # as its items begin
    results: list[str] = Field(default_factory=list)  # names and patterns, beside those that its figures name


class Papers(Record):
    figure: list[Paper] = Field(default_factory=list)
    item: list[Item] = Field(default_factory=list)
    page: list[Page] = Field(default_factory=list)

    def of(self, item: Item) -> list[Paper]:
        return [figure for figure in self.figure if item.has(figure)]

    def pages(self) -> list[Page]:
        """One per paper, and one more for a paper that none is declared for."""
        named = [page.paper for page in self.page]
        papers = dict.fromkeys([item.place[0] for item in self.item] + [figure.place[0] for figure in self.figure])
        others = (name for name in papers if name not in named)
        return [*self.page, *(Page(file=_slug(name), title=name, about="", paper=name) for name in others)]

    def of_paper(self, paper: str | None) -> list[Item]:
        return [item for item in self.item if item.place[0] == paper]

    def names(self, paper: str) -> set[str]:
        """The results that are compared with a paper."""
        own = (figure for figure in self.figure if figure.place[0] == paper)
        return {cell[0] for figure in own for cell in figure.cells}

    def verdict(self, item: Item, results: Mapping[str, Written]) -> Verdict:
        """The worst of its figures."""
        found = [figure.verdict(results) for figure in self.of(item)] + ([item.verdict] if item.verdict else [])
        return next(verdict for verdict in WORST if verdict in found)

    def counts(self, paper: str | None, results: Mapping[str, Written]) -> Counter[Verdict]:
        return Counter(self.verdict(item, results) for item in self.of_paper(paper))

    def table(self, paper: str, results: Mapping[str, Written]) -> list[str]:
        """What became of every table and figure of a paper."""
        rows = []
        for item in self.of_paper(paper):
            counted = Counter(figure.verdict(results) for figure in self.of(item))
            tally = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
            several = f" ({tally})" if len(counted) > 1 else ""
            rows.append([item.place[1], item.about, f"**{self.verdict(item, results)}**{several}", item.found])
        return markdown(["in the paper", "what it shows", "verdict", "what was found here"], rows)

    def beside(self, paper: str, results: Mapping[str, Written]) -> list[str]:
        """Every figure of a paper beside ours."""
        rows = []
        own = [figure for figure in self.figure if figure.place[0] == paper]
        for figure in sorted(own, key=lambda figure: [item.has(figure) for item in self.item], reverse=True):
            ours = figure.ours(results)
            numbers = [figure.written(ours), figure.written(figure.says), f"{ours - figure.says:+.3g}"]
            words = [figure.place[1], f"`{figure.result}`: {figure.name}"]
            rows.append([*words, *numbers, figure.verdict(results), figure.differs])
        header = ["in the paper", "what is compared", "ours", "the paper's", "difference", "verdict", "other set-up"]
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


def _place(words: str) -> tuple[str, str]:
    paper, _, place = words.partition(", ")
    return paper, place


def _slug(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _number(results: Mapping[str, Written], name: str, where: Mapping[str, Any], key: str) -> float:
    rows = [row for row in results[name].rows if all(row.get(one) == value for one, value in where.items())]
    if len(rows) != 1 or not isinstance(rows[0].get(key), (int, float)):
        raise BadChoice(f"{name}: {len(rows)} rows with {where} and a number {key!r}; one is needed")
    return float(rows[0][key])
