"""Two networks, a and b, read whole or by patches; m and random over areas, of which the plots take what they name."""

from pathlib import Path
from typing import Any

import pytest
from made_results import FIGURE, add
from scipy.stats import norm

from checks import refused
from fovea.measures import charts
from fovea.measures.charts import Drawn
from fovea.measures.tables import Tables

PLOT = '[[plot]]\nfile = "f"\npage = "more"\ntitle = "T"\nsays = "S"\n'
PANEL = '[[plot.panel]]\nx = "top-1"\n'
GROUPS = """\
groups = [
  { label = "A", from = "one", where = { net = "a" } },
  { label = "B", from = "one", where = { net = "b" } },
]
"""
CURVES = [("random", 0.5, 0.25), ("m", 0.5, 0.75), ("random", 0.25, 0.125), ("m", 0.25, 0.5)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    first = {"net": "a", "kind": "whole", "top1": 0.75, "low": 0.7, "high": 0.8, "images": 4}
    rows = [
        first,
        {"net": "a", "kind": "patches", "top1": 0.5, "images": 4},
        {"net": "b", "kind": "whole", "top1": 0.25},
    ]
    add(tmp_path, "one", *rows)
    add(tmp_path, "one-sure", {"net": "a", "kind": "patches", "top1": 0.625})
    add(tmp_path, "curves", *({"method": name, "area": area, "share": share} for name, area, share in CURVES))
    add(tmp_path, "steps", *({"readout": f"sum:{i}", "top1": i / 16, "net": "b"} for i in (10, 2, 3)))
    add(tmp_path, "cost", {"net": "b", "macs": 3e9})
    return tmp_path


def panel(folder: Path, text: str) -> Drawn:
    """The one panel of a plot."""
    (folder / charts.FILE).write_text(PLOT + PANEL + text)
    (chart,) = charts.read(folder)
    found = charts.drawn(chart, Tables(folder))
    assert (found["title"], len(found["panels"])) == ("T", 1)
    return found["panels"][0]


def bar(folder: Path, words: str, groups: str = GROUPS) -> dict[str, Any]:
    return panel(folder, f"{groups}bars = [{{ {words} }}]")["bars"][0]


def lines(folder: Path, words: str) -> list[dict[str, Any]]:
    return panel(folder, f"lines = [{{ {words} }}]")["lines"]


def says(folder: Path, text: str, cells: str = 'cells.b = { from = "one", where = { net = "b" } }') -> str:
    (folder / charts.FILE).write_text(PLOT.replace('"S"', f'"{text}"') + cells + "\n" + PANEL)
    (chart,) = charts.read(folder)
    return charts.says(chart, Tables(folder))


def test_a_bar_of_each_group(folder: Path) -> None:
    bars = 'bars = [{ label = "whole", where = { kind = "whole" }, key = "top1", low = "low", high = "high" }]'
    found = panel(folder, "digits = 2\ndots = true\n" + GROUPS + bars)
    whole = {"label": "whole", "dashed": False, "value": [0.75, 0.25], "low": [0.7, None], "high": [0.8, None]}
    assert found.pop("bars") == [whole]
    assert found == {
        "title": "", "x": "top-1", "y": "", "log": False, "digits": 2, "dots": True, "groups": ["A", "B"]
    }  # fmt: skip


def test_what_a_bar_does_not_say_its_group_does(folder: Path) -> None:
    groups = GROUPS.replace('"one"', '"cost"').replace('{ label = "A"', '{ key = "images", label = "A"')
    assert bar(folder, 'from = "one", key = "top1"', groups)["value"] == [0.75, 0.25]
    assert bar(folder, 'from = "one"', groups.replace('label = "B"', 'key = "top1"'))["value"] == [4, 0.25]
    assert bar(folder, 'key = "top1", where = { net = "b" }')["value"] == [0.25, 0.25]


def test_a_bar_adds_to_the_name_of_its_groups_result_and_a_group_may_lack_its_row(folder: Path) -> None:
    sure = 'suffix = "-sure", where = { kind = "patches" }, key = "top1", dashed = true'
    found = bar(folder, sure + ", optional = true")
    assert (found["value"], found["dashed"]) == ([0.625, None], True)
    refused("plots.toml: no row of 'one-sure' has {'net': 'b', 'kind': 'patches'} and 'top1'", bar, folder, sure)


def test_a_line_for_every_value_with_the_control_dashed(folder: Path) -> None:
    words = 'from = "curves", by = "method", control = "random", x = "area", key = "share"'
    control, line = lines(folder, words)
    assert (control["label"], control["dashed"]) == ("random", True)
    assert (control["x"], control["value"]) == ([0.25, 0.5], [0.125, 0.25])  # in the order of x
    assert (line["label"], line["dashed"], line["value"]) == ("m", False, [0.5, 0.75])
    told = lines(folder, words + ', label = "of {method}", labels = { m = "Ours" }')
    assert [line["label"] for line in told] == ["of random", "Ours"]


def test_a_line_may_be_of_rows_that_fit_a_pattern_along_the_number_of_a_key(folder: Path) -> None:
    (line,) = lines(folder, 'label = "sum", from = "steps", where = { readout = "sum:*" }, x = "readout", key = "top1"')
    assert (line["x"], line["value"]) == ([2, 3, 10], [0.125, 0.1875, 0.625])
    (line,) = lines(
        folder, 'label = "sum", from = "steps", where = { readout = "sum:1?" }, x = "readout", key = "top1"'
    )
    assert line["x"] == [10]


def test_a_line_without_x_is_a_level(folder: Path) -> None:
    (line,) = lines(folder, 'label = "b", from = "one", where = { net = "b" }, key = "top1"')
    assert line == {"label": "b", "dashed": False, "value": [0.25], "low": [None], "high": [None]}


def test_x_may_be_another_results(folder: Path) -> None:
    at = 'at = { from = "cost", where = { net = "b" } }, x = "macs", x_scale = 1e9'
    (line,) = lines(folder, f'label = "b", from = "one", where = {{ net = "b" }}, key = "top1", {at}')
    assert (line["x"], line["value"]) == ([3], [0.25])


def test_notes_stand_beside_their_points(folder: Path) -> None:
    (line,) = lines(folder, 'label = "b", from = "steps", x = "top1", key = "top1", note = "readout"')
    assert line["note"] == ["sum:2", "sum:3", "sum:10"]


def test_the_interval_of_a_share_is_wilsons(folder: Path) -> None:
    """Of 2 of 4 it is 1/2 within z sqrt(1/16 + z²/64) / (1 + z²/4), where z is 1.96."""
    z = norm.ppf(0.975)
    half = z * (1 / 16 + z**2 / 64) ** 0.5 / (1 + z**2 / 4)
    found = bar(folder, 'where = { net = "a", kind = "patches" }, key = "top1", images = "images"')
    assert found["low"] == pytest.approx([0.5 - half] * 2, abs=1e-5)
    assert found["high"] == pytest.approx([0.5 + half] * 2, abs=1e-5)


def test_an_interval_that_a_row_has_goes_before(folder: Path) -> None:
    words = 'where = { net = "a" }, key = "top1", low = "low", high = "high", images = "images"'
    assert bar(folder, words)["low"] == [0.7, 0.7]


def test_a_negative_scale_swaps_the_ends(folder: Path) -> None:
    found = bar(folder, 'where = { net = "a" }, key = "top1", low = "low", high = "high", scale = -0.5')
    assert (found["value"], found["low"], found["high"]) == ([-1.5, -1.5], [-1.6, -1.6], [-1.4, -1.4])


def test_figures_have_five_digits(folder: Path) -> None:
    assert bar(folder, 'key = "top1", scale = 3')["value"] == [0.25, 0.083333]


def test_a_plot_names_each_of_its_results_once(folder: Path) -> None:
    bars = 'bars = [{ key = "top1" }, { key = "top1", suffix = "-sure" }, { from = "cost", key = "macs" }]\n'
    line = 'lines = [{ label = "b", from = "steps", at = { from = "cost" }, x = "macs", key = "top1" }]'
    (folder / charts.FILE).write_text(PLOT + PANEL + GROUPS + bars + PANEL + line)
    assert charts.read(folder)[0].sources == ["one", "one-sure", "cost", "steps"]


def test_no_plots_are_needed(tmp_path: Path) -> None:
    assert charts.read(tmp_path) == []


def test_a_sentence_has_figures_of_several_rows(folder: Path) -> None:
    (folder / "papers.toml").write_text(FIGURE)  # of b, of which there is one row
    cells = 'cells.a = { from = "one", where = { net = "a", kind = "whole" } }\n'
    cells += 'cells.c = { from = "cost" }\ncells.p = { from = "papers", where = { net = "b" } }\n'
    text = "{a[top1]:.2f} of {a[images]} for {c[macs]:G}; {p[says]:P} there, {p[ours]:P} here"
    assert says(folder, text, cells) == "0.75 of 4.0 for 3.00 G; 60 % there, 25 % here"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{c[top1]}", "cannot be filled from .*'b'.*KeyError.*'c'"),
        ("{b[top9]}", "KeyError.*'top9'"),
        ("{b[net]:.3f}", "'{b.net.:.3f}' cannot be filled"),
        ("{}", "'{}' cannot be filled"),
        ("{b.top1}", "'{b.top1}' cannot be filled"),
        ("{b[top1", "cannot be filled"),
    ],
)
def test_a_sentence_that_cannot_be_filled_is_refused(folder: Path, text: str, words: str) -> None:
    refused(words, says, folder, text)


def test_a_sentence_of_a_row_that_is_not_there_is_refused(folder: Path) -> None:
    refused("no row of 'one' has {'net': 'c'}", says, folder, "", 'cells.c = { from = "one", where = { net = "c" } }')
    refused("no result .*two.json", says, folder, "", 'cells.c = { from = "two" }')


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ('key = "top9"', "plots.toml: no row of 'one' has {'net': 'a'} and 'top9'"),
        ('where = { kind = "none" }, key = "top1"', "plots.toml: no row of 'one' has .*'none'"),
        ('from = "won", key = "top1"', "no result .*won.json"),
        ('key = "net"', "plots.toml: f cannot be drawn"),
        ('key = "top1", low = "high", high = "low"', "f cannot be drawn: .*0.75 is not within 0.8 to 0.7"),
        ('key = "top1", scale = 0', "plots.toml: f cannot be drawn: ZeroDivisionError"),
        ('where = { kind = "whole" }, key = "top1", images = "pictures"', "f cannot be drawn: KeyError.*'pictures'"),
    ],
)
def test_a_bar_of_nothing_is_refused(folder: Path, words: str, refusal: str) -> None:
    refused(refusal, bar, folder, words)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ('label = "l", key = "top1", where = { net = "c" }', "plots.toml: no row of 'one' has {'net': 'c'} and 'top1'"),
        ('label = "l", key = "top9"', "plots.toml: no row of 'one' has {} and 'top9'"),
        ('label = "l", key = "top1", x = "area"', "plots.toml: f cannot be drawn: KeyError.*'area'"),
        ('label = "l", key = "top1", x = "net"', "plots.toml: f cannot be drawn: .*convert string"),
        (
            'label = "l", key = "top1", x = "macs", at = { from = "cost", where = { net = "c" } }',
            "no row of 'cost' has",
        ),
        ('label = "{method}", key = "top1"', "plots.toml: f cannot be drawn: KeyError.*'method'"),
        ('key = "top1"', "plots.toml: f cannot be drawn"),  # nothing names it
    ],
)
def test_a_line_of_nothing_is_refused(folder: Path, words: str, refusal: str) -> None:
    refused(refusal, lines, folder, f'from = "one", {words}')


@pytest.mark.parametrize(
    "text",
    [
        "?", "plot = 5", "plot = [5]", "more = 1", PLOT, PLOT + "panel = []", PLOT + '[[plot.panel]]\ny = "no x"',
        PLOT + PANEL + "bars = [5]", PLOT + PANEL + "lines = [{ no = 1 }]", PLOT + PANEL + "lines = [{ scale = nan }]",
        PLOT.replace("file", "name") + PANEL, "a = " + "[" * 100_000,
    ],
    ids=lambda text: text[-30:],
)  # fmt: skip
def test_plots_that_are_none_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / charts.FILE).write_text(text)
    refused("plots.toml is (not TOML|damaged, or not fovea's)", charts.read, tmp_path)
