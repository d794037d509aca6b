from pathlib import Path

import pytest
from made_results import FIGURE, small

from checks import refused
from fovea.basics import BadChoice
from fovea.measures.tables import Tables, refill
from fovea.networks import model


def filled(folder: Path, name: str) -> str:
    """What comes between the markers of this name."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    return Tables(folder).fill(f"{opening}{closing}").removeprefix(opening).removesuffix(closing)


def test_options_of_a_model_with_their_defaults(tmp_path: Path) -> None:
    assert filled(tmp_path, "options smallnet") == "\n`side=128`, `widths=(8, 16, 32, 64)`\n"
    refused("no model 'smalnet'; did you mean 'smallnet'", filled, tmp_path, "options smalnet")


@pytest.mark.parametrize("name", [name for name, entry in model.entries().items() if entry.module.startswith("fovea.")])
def test_options_of_every_model_can_be_shown(name: str, tmp_path: Path) -> None:
    shown = filled(tmp_path, f"options {name}")
    assert shown.count("`") == 2 * len(model.get(name).options)
    assert "<" not in shown  # every default is a literal


def test_figures_of_the_papers_beside_ours(tmp_path: Path) -> None:
    second = FIGURE.replace("0.6", "0.25").replace('"P"', '"P, Table 2"') + 'less = { key = "zero" }'
    (small(tmp_path) / "papers.toml").write_text(FIGURE + second)
    (tmp_path / "tables.toml").write_text(
        "[t]\nfrom = 'papers'\nheader = ['', 'ours', 'theirs', '']\n"
        "cells = ['{result}: {net} {key}', '{ours:.2f}', '{says:.2f}', '{verdict}']\n"
        "rows = [{ where = { paper = 'P' } }, { where = { paper = 'P, Table 2', net = 'b' } }]\n"
    )
    assert filled(tmp_path, "t").splitlines()[3:] == [
        "| one: b top1 | 0.50 | 0.60 | direction only |",
        "| one: b top1 | 0.50 | 0.25 | direction only |",
    ]


def test_only_pages_that_change_are_written(tmp_path: Path) -> None:
    (small(tmp_path) / "tables.toml").write_text("[t]\nfrom = 'one'\nwhere = { net = 'a' }\ntext = '{top1:.2f}'")
    old, without = tmp_path / "old.md", tmp_path / "without.md"
    old.write_text("<!-- t -->0.70<!-- /t -->")
    without.write_text("0.70")
    assert refill(tmp_path, [old, without]) == [old]
    assert old.read_text() == "<!-- t -->0.75<!-- /t -->"
    assert refill(tmp_path, [old, without]) == []


@pytest.mark.parametrize(
    "text",
    [
        "?", "t = 5", "t = [5]", "[t]\nheader = 5", "[t]\nheader = ['a']\ncells = [5]",
        "[t]\nheader = ['a']\nrows = [5]",
        "[t]", "[t]\nheader = []\ncells = []\nrows = [{}]", "[t]\nheader = ['a']\nrows = [{}]",
        "[t]\ntext = 5", "[t]\nfrom = 5\ntext = ''", "[t]\nfrom = 'one'\ntext = '{top1:q}'",
        "[t]\nfrom = 'one'\ntext = '{top1'", "[t]\nfrom = 'no'\ntext = '{a}'",
        "[t]\nfrom = 'card no'\ntext = '{a}'", "[t]\nfrom = 'one'\nwhere = 5\ntext = '{a}'",
        "[t]\nfrom = 'one'\ntext = '{net:.3f}'", "[t]\nheader = ['a']\ncells = [{ where = {} }]\nrows = [{}]",
    ],
    ids=lambda text: text[-40:],
)  # fmt: skip
def test_tables_that_are_none_are_named(text: str, tmp_path: Path) -> None:
    (small(tmp_path) / "tables.toml").write_text(text)
    with pytest.raises(BadChoice, match=r"tables.toml|no result .*no\.json"):
        Tables(tmp_path).fill("<!-- t --><!-- /t -->")
