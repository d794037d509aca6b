import json
import re
from pathlib import Path

import pytest
from made_results import CARD, small

from checks import raises
from fovea.basics import Damaged
from fovea.measures.results import pages
from fovea.measures.runs import measured, trained

ROOT = Path(__file__).parents[2]


def card(seed: int, top1: float, size: int) -> dict[str, object]:
    return {**CARD, "changes": [f"seed={seed}", f"network.size={size}"], "score": {"top1": top1}}


def test_runs_that_differ_in_their_seed_are_one_row() -> None:
    lower, larger = trained([card(0, 0.5, 224), card(1, 0.7, 224), card(0, 0.9, 448)])
    assert (lower["changes"], lower["seeds"], lower["top1"]) == ("network.size=224", 2, pytest.approx(0.6))
    assert 0 <= lower["low"] < 0.5 < 0.7 < lower["high"] <= 1  # two say little
    assert (larger["top1"], "low" in larger) == (0.9, False)


def test_a_run_is_a_result_by_its_files_name(tmp_path: Path) -> None:
    (small(tmp_path) / "trained").mkdir()
    (tmp_path / "trained/run.json").write_text(json.dumps(card(0, 0.25, 224)))
    assert list(measured(tmp_path)) == ["one", "trained/run"]
    assert measured(tmp_path)["trained/run"].rows == [{"top1": 0.25}]


def test_runs_of_a_page_are_one_table_of_it(tmp_path: Path) -> None:
    (small(tmp_path) / "trained").mkdir()
    for seed, top1 in enumerate((0.5, 0.75)):
        (tmp_path / f"trained/run-{seed}.json").write_text(json.dumps(card(seed, top1, 224)))
    text = pages(tmp_path)["results/more.md"]
    assert "### Training runs whose weights are not kept" in text
    assert "| n | network.size=224 | d |  |  | 2 | 0.625 |" in text
    assert "run-0" not in text


@pytest.mark.parametrize("path", sorted((ROOT / "results/trained").glob("*.json")), ids=lambda path: path.stem)
def test_runs_say_how_they_were_made_and_no_more(path: Path) -> None:
    card = json.loads(path.read_text(encoding="utf-8"))
    assert card["commit"]
    assert not card["commit"].endswith("+")
    assert not re.search(r"(^|[\s=,:\"])(/\w|~)", path.read_text(encoding="utf-8")), "a path"


def test_a_card_that_is_none_is_named(tmp_path: Path) -> None:
    (small(tmp_path) / "trained").mkdir()
    for content in ("?", "[]", '{"name": "a"}', '{"name": "a", "score": {"top1": "x"}}', "[" * 100_000):
        (tmp_path / "trained/one.json").write_text(content)
        raises(Damaged, r"one.json is damaged, or not fovea's .*move it elsewhere", pages, tmp_path)
