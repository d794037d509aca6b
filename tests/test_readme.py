"""README and docs say what the files say: everything between their markers is made, nothing is typed."""

from pathlib import Path

import pytest

import fovea
from fovea.measures.tables import MARKED, Tables

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables(ROOT / "results")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_what_results_say(page: Path, tables: Tables) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.fill(text) == text, f"{page.name} is older than results/: run 'fovea results'"


def test_every_table_is_shown_somewhere(tables: Tables) -> None:
    shown = {mark["name"] for page in PAGES for mark in MARKED.finditer(page.read_text(encoding="utf-8"))}
    assert set(tables.known) <= shown


def test_all_weights_are_in_the_table(tables: Tables) -> None:
    from fovea.networks import ours

    assert sorted(row["name"] for row in tables.known["weights"]["rows"]) == sorted(ours())


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
