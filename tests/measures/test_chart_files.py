import copy
import datetime
import re
from pathlib import Path

import pytest

from fovea.measures import chart_files
from fovea.measures.charts import Drawn
from fovea.measures.plots import GRAY

WORDS = {"title": "", "x": "share", "y": "", "log": False}
BARS = {"groups": ["Group A", "Group B"], "digits": 3, "dots": False}
WHOLE = {"label": "whole", "dashed": False, "value": [0.75, -0.5], "low": [0.7, None], "high": [0.8, None]}
PATCHES = {"label": "patches", "dashed": True, "value": [0.625, None], "low": [None, None], "high": [None, None]}
LINE = {"label": "m", "dashed": False, "x": [0.25, 0.5], "value": [0.5, 0.75], "low": [0.4, None], "high": [0.6, None]}
LEVEL = {"label": "level", "dashed": False, "value": [0.3], "low": [None], "high": [None]}


@pytest.fixture
def drawn() -> Drawn:
    bars = WORDS | BARS | {"bars": [WHOLE, PATCHES]}
    lines = WORDS | {"title": "along x", "y": "accuracy", "lines": [LINE | {"note": ["sum:2", 0.5]}, LEVEL]}
    return copy.deepcopy({"title": 'Both & <"more"> – é', "panels": [bars, lines]})


def texts(path: Path) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def test_a_file_holds_the_numbers_that_it_shows(tmp_path: Path, drawn: Drawn) -> None:
    assert chart_files.held(tmp_path / "new/both.svg") is None
    assert chart_files.write(tmp_path / "new/both.svg", drawn)
    assert chart_files.held(tmp_path / "new/both.svg") == drawn


def test_a_file_is_made_anew_only_when_its_numbers_change(tmp_path: Path, drawn: Drawn) -> None:
    path = tmp_path / "both.svg"
    chart_files.write(path, drawn)
    older = path.read_text(encoding="utf-8") + "<!-- of another matplotlib -->"
    path.write_text(older, encoding="utf-8")
    assert not chart_files.write(path, drawn)
    assert path.read_text(encoding="utf-8") == older
    drawn["panels"][0]["bars"][0]["value"][0] = 0.775
    assert chart_files.write(path, drawn)
    assert "0.775" in texts(path)
    assert chart_files.held(path) == drawn


def test_a_file_that_holds_nothing_is_made_anew(tmp_path: Path, drawn: Drawn) -> None:
    (tmp_path / "both.svg").write_text("<svg/>")
    assert chart_files.write(tmp_path / "both.svg", drawn)


def test_both_kinds_of_panel_are_drawn_with_their_words(tmp_path: Path, drawn: Drawn) -> None:
    chart_files.write(tmp_path / "both.svg", drawn)
    shown = texts(tmp_path / "both.svg")
    assert {"Group A", "Group B", "whole", "patches", "0.750", "-0.500", "0.625", "share"} <= {*map(plain, shown)}
    assert {"along x", "accuracy", "m", "level", "sum:2", "0.5"} <= set(shown)
    assert not any("nan" in text.lower() for text in shown)  # a bar without a figure is none


def plain(text: str) -> str:
    return text.replace("\N{MINUS SIGN}", "-")


def test_controls_are_gray(tmp_path: Path, drawn: Drawn) -> None:
    def grays(name: str) -> int:
        chart_files.write(tmp_path / name, drawn)
        return (tmp_path / name).read_text(encoding="utf-8").lower().count(GRAY)

    before = grays("before.svg")
    drawn["panels"][1]["lines"][0]["dashed"] = True
    assert grays("after.svg") > before > 0


def test_a_name_that_is_in_several_panels_is_told_once(tmp_path: Path, drawn: Drawn) -> None:
    drawn["panels"][1]["lines"][0]["label"] = "whole"
    chart_files.write(tmp_path / "both.svg", drawn)
    assert texts(tmp_path / "both.svg").count("whole") == 1


@pytest.mark.parametrize("dots", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_bars_dots_and_logarithms(tmp_path: Path, drawn: Drawn, dots: bool, log: bool) -> None:
    panel = drawn["panels"][0] | {
        "dots": dots,
        "log": log,
        "bars": [WHOLE | {"value": [1000, 10], "low": [900, 9], "high": [1100, 11]}],
    }
    chart_files.write(tmp_path / "bars.svg", drawn | {"panels": [panel]})
    assert {"1,000.000", "10.000"} <= set(texts(tmp_path / "bars.svg"))
    assert ("100" in texts(tmp_path / "bars.svg")) == log  # powers of ten in plain digits, else steps of 200


def test_the_same_numbers_are_the_same_bytes_on_any_day(tmp_path: Path, drawn: Drawn) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    chart_files.write(first, drawn)
    chart_files.write(second, drawn)
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text(encoding="utf-8")
    assert "<dc:date>" not in text
    assert str(datetime.date.today().year) not in re.sub(r"\d*\.\d+|\bhttp\S+", "", text)
    assert text.endswith("</svg>\n")
    assert not re.search(r"[ \t]+$", text, re.M)
