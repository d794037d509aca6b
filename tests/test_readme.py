"""README and docs say what the files say: everything between their markers is made, nothing is typed; and the commands
that they show are commands."""

import re
import shlex
from pathlib import Path

import pytest
import typer

import fovea
from commands import all_commands
from fovea.cli import app
from fovea.measures.tables import MARKED, Tables

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = dict(all_commands(typer.main.get_command(app)))  # now, before other tests declare measures of their own


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables(ROOT / "results")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_what_results_say(page: Path, tables: Tables) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.fill(text) == text, f"{page.name} is older than results/: run 'fovea results'"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_pages_take_what_they_are_shown_with(page: Path) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)
    lines = (line for block in blocks for line in re.split(r"\n|&& ", block.replace("\\\n", " ")))
    for _, *words in (shlex.split(line, comments=True) for line in lines if line.startswith("fovea ")):
        name = " ".join(words[:2] if words[0] in ("measure", "bench") else words[:1])
        if ":" not in name:  # a measure of the reader's own
            COMMANDS[name].make_context(name, words[len(name.split()) :])  # which refuses what it does not know


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *ROOT.glob("*.md")}), ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), target


def test_equations_stand_where_the_docs_say() -> None:
    """Rows `| number, or a name | what | `file.py` |`: the file is there, and cites an equation that has a number."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs/models").glob("*.md")]
    rows = [row for page in pages for row in re.findall(r"^\| ([^|]+) \| [^|]+ \| (.*) \|$", page, re.M)]
    files = [(first, file) for first, where in rows for file in re.findall(r"`(\S+\.py)`", where)]
    numbered = [(first, file) for first, file in files if re.fullmatch(r"[S\d., to]+", first)]
    assert len(numbered) > 15
    for first, file in files:
        assert (ROOT / "src/fovea" / file).is_file(), (first, file)
    for first, file in numbered:
        text = (ROOT / "src/fovea" / file).read_text(encoding="utf-8")
        for number in re.findall(r"S?[\d.]+", first):
            exact = rf"(?<![\w.]){re.escape(number)}(?!\w|\.\d)"
            assert re.search(rf"Eqs?\. .*{exact}|\((?:[\d.]+, )?{exact}(?:, [\d.]+)?\)", text), (number, file)


def test_every_table_is_shown_somewhere(tables: Tables) -> None:
    shown = {mark["name"] for page in PAGES for mark in MARKED.finditer(page.read_text(encoding="utf-8"))}
    assert set(tables.known) <= shown


def test_all_weights_are_in_the_table(tables: Tables) -> None:
    from fovea.networks import ours

    assert sorted(row["name"] for row in tables.known["weights"]["rows"]) == sorted(ours())


def test_all_weights_have_their_card_among_the_docs() -> None:
    from fovea.networks import ours

    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs/cards").glob("*.md")}
    assert sorted(pages) == sorted(ours())
    for name, page in pages.items():
        assert page.startswith(f"# {name}\n"), name
        assert f"<!-- card {name} -->" in page, name


def test_templates(tmp_path: Path) -> None:
    (tmp_path / "made.json").write_text(
        '{"what": "x", "settings": {}, "rows": [{"net": "a", "top1": 0.5, "macs": 2e9}, {"net": "b"}]}'
    )
    (tmp_path / "tables.toml").write_text(
        '[one]\nheader = ["", "top-1"]\nfrom = "made"\ncells = ["{net}", "{top1:.3f} ({macs:G})"]\n'
        'rows = [{ where = { net = "a" } }, { where = { net = "b" } }]\n'
        '[said]\nfrom = "made"\nwhere = { net = "a" }\ntext = "{top1:P} of all"\n'
    )
    page = "<!-- one -->x<!-- /one --> and <!-- said --><!-- /said -->."
    filled = Tables(tmp_path).fill(page)
    assert "| a | 0.500 (2.00 G) |\n| b |  |" in filled  # no figure, no cell
    assert filled.endswith("and <!-- said -->50 % of all<!-- /said -->.")
    with pytest.raises(fovea.BadChoice, match=r"says nothing of 'onne'; did you mean 'one'"):
        Tables(tmp_path).fill("<!-- onne --><!-- /onne -->")
