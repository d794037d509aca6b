"""The results pages: an overview, a page per paper with verdicts and plots, and a page of all else. Nothing is typed.

Every file of results/*.json is on exactly one page: the first page that asks for it by name, else that of the paper
whose figures it is compared with, else the last."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

from fovea.basics import BadChoice, nearest, write_text
from fovea.measures import chart_files, charts, papers
from fovea.measures.figures import Written, markdown, text_of
from fovea.measures.papers import Page, Papers
from fovea.measures.registry import titles
from fovea.measures.runs import TRAINED, cards, measured, trained
from fovea.measures.tables import Tables

MADE = ("recipe", "commit", "seed", "processor", "date")
REST = Page(
    file="more",
    title="Everything else measured",
    about="Speed, serving, bulk work, training runs and whatever is compared with no paper.",
    results=["*"],
)
HOW = """\
`fovea results` makes these pages from the files in `results/`. Each file was written by one command, which stands
below its table. Rates are fractions of one. Intervals are 95 %. Unfavorable results are drawn like favorable ones.

The papers' figures are for their data and their networks, which are mostly not those used here. So a rate is never set
beside a paper's rate. What is compared are differences (points gained or lost), ratios, shares, and plain counts such
as multiplications."""
Made = dict[str, str]


def write(folder: Path, page: Path) -> list[Path]:
    """The overview at `page`, the other pages and their plots in a folder of the same name; those that changed."""
    changed = []
    for name, text in pages(folder, page.stem).items():
        path = page.parent / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
            changed.append(path)
    for name, drawn in plots(folder).items():
        path = page.parent / page.stem / f"{name}.svg"
        changed += [path] if chart_files.write(path, drawn) else []
    return changed


def pages(folder: Path, name: str = "results") -> Made:
    """All pages, by their paths beside the overview."""
    site = Site(folder)
    made = {f"{name}/{page.file}.md": site.page(page, name) for page in site.pages}
    return {f"{name}.md": site.overview(name)} | made


def plots(folder: Path) -> dict[str, charts.Drawn]:
    """What every plot shows, by its file's name."""
    tables = Tables(folder)
    return {chart.file: charts.drawn(chart, tables) for chart in charts.read(folder)}


class Site:
    """What the pages are made from."""

    def __init__(self, folder: Path) -> None:
        self.results = measured(folder)
        self.runs = {f"{TRAINED}/{name}": run for name, run in cards(folder).items()}
        self.found = {name: result for name, result in self.results.items() if name not in self.runs}
        if not self.found:
            advice = f"'fovea measure WHAT … --json {folder}/NAME.json' writes one"
            raise BadChoice(f"no results (*.json) in {folder}; {advice}")
        self.sayings: Papers = papers.read(folder / papers.FILE, self.results)
        self.tables, self.charts = Tables(folder), charts.read(folder)
        self.pages = [*self.sayings.pages(), REST]
        self.owner = {name: self._owner(name) for name in self.results}
        files = [page.file for page in self.pages]
        for chart in self.charts:
            if chart.page not in files:
                raise BadChoice(f"{folder / charts.FILE}: no page {chart.page!r}{nearest(chart.page, files)}")
        for path, names in ((papers.FILE, files), (charts.FILE, [chart.file for chart in self.charts])):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise BadChoice(f"{folder / path}: two would be written to {twice!r}; give one another file")

    def _owner(self, name: str) -> str:
        asked = [page for page in self.pages[:-1] if any(fnmatchcase(name, pattern) for pattern in page.results)]
        compared = [page for page in self.pages if page.paper and name in self.sayings.names(page.paper)]
        return (*asked, *compared, REST)[0].file

    def overview(self, name: str) -> str:
        """The first page: how to read the others, and every verdict."""
        lines = ["# Results", "", HOW, ""]
        lines += [f"- [{page.title}]({name}/{page.file}.md): {page.about}" for page in self.pages]
        if self.sayings.item:
            lines += ["", "## What a verdict means", "", papers.RULE, ""]
            lines += ["## Verdicts at a glance", "", *self._counts(name)]
        for page in (page for page in self.pages if page.paper):
            link = f"{name}/{page.file}.md"
            rows = [
                [item.place[1], item.about, f"[{self.sayings.verdict(item, self.results)}]({link})"]
                for item in self.sayings.of_paper(page.paper)
            ]
            lines += ["", f"### {page.title}", "", *markdown(["in the paper", "what it shows", "verdict"], rows)]
        lines += ["", f"## {REST.title}", ""]
        for title, names in self._groups(REST):
            lines += [f"- [{title}]({name}/{REST.file}.md#{_anchor(title)}): {', '.join(f'`{one}`' for one in names)}"]
        return _text(lines)

    def _counts(self, name: str) -> list[str]:
        rows = []
        for page in (page for page in self.pages if page.paper):
            counts = self.sayings.counts(page.paper, self.results)
            rows.append([f"[{page.title}]({name}/{page.file}.md)", *(str(counts[one]) for one in papers.VERDICTS)])
        return markdown(["paper", *papers.VERDICTS], rows)

    def page(self, page: Page, name: str) -> str:
        """A page in the folder `name`, beside the overview of that name."""
        lines = [f"# {page.title}", "", page.about]
        if page.paper:
            lines += ["", f"[What the verdicts mean, and all papers](../{name}.md)", "", "## Verdicts", ""]
            lines += self.sayings.table(page.paper, self.results)
            if beside := self.sayings.beside(page.paper, self.results):
                lines += ["", *_folded(f"The paper's figures beside ours ({len(beside) - 2})", beside)]
        drawn = [chart for chart in self.charts if chart.page == page.file]
        lines += ["", "## Plots"] if drawn else []
        for chart in drawn:
            sources = ", ".join(f"`{source}`" for source in chart.sources)
            lines += ["", f"### {chart.title}", "", f"![{chart.title}]({chart.file}.svg)", ""]
            lines += [charts.says(chart, self.tables), "", f"*Drawn from {sources}.*"]
        lines += ["", "## All tables", "", "Each opens with a click: settings, rows, the command, and how it was made."]
        for title, names in self._groups(page):
            lines += ["", f"### {title}"]
            for result in names:
                count = len(self.found[result].rows)
                words = f"<code>{result}</code>, {count} row{'s' * (count > 1)}"
                lines += ["", *_folded(words, _section(self.found[result]))]
        lines += self._trained(page)
        return _text(lines)

    def _groups(self, page: Page) -> list[tuple[str, list[str]]]:
        """The page's results below the titles of their measures, those of time last."""
        known = titles()
        places = {what: i for i, what in enumerate(known)}
        own = [name for name in self.found if self.owner[name] == page.file]
        own.sort(key=lambda name: (places.get(self.found[name].what, 99), self.found[name].what, name))
        groups = groupby(own, key=lambda name: self.found[name].what)
        return [(known.get(what, what), list(names)) for what, names in groups]

    def _trained(self, page: Page) -> list[str]:
        rows = trained(run for name, run in self.runs.items() if self.owner[name] == page.file)
        if not rows:
            return []
        words = "From their cards, as `fovea train` wrote them: means over seeds, and Student's 95 % interval of the"
        inside = [f"{words} first score.", "", *_table(rows)]
        title = "Training runs whose weights are not kept"
        return ["", f"### {title}", "", *_folded(f"{len(rows)} recipes and settings", inside)]


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _folded(words: str, inside: Sequence[str]) -> list[str]:
    """Behind a click, on the site and where code is hosted."""
    return ['<details markdown="1">', f"<summary>{words}</summary>", "", *inside, "", "</details>"]


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -").replace(" ", "-")


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
