"""Our figures beside the papers', and the verdicts that follow: ours is b's top-1 of 0.5, beside a's of 0.75."""

import json
from pathlib import Path

import pytest
from made_results import CARD, FIGURE, ITEM, add, small

from checks import refused
from fovea.measures.papers import read
from fovea.measures.results import pages
from fovea.measures.runs import measured

ROOT = Path(__file__).parents[2]


def told(folder: Path, text: str) -> str:
    """The page of P."""
    (folder / "papers.toml").write_text(text)
    return pages(folder)["results/p.md"]


def test_our_figure_the_papers_and_the_difference(tmp_path: Path) -> None:
    text = told(small(tmp_path), FIGURE.replace('"P"', '"P, Table 1"').replace('"d"', '"smaller"'))
    assert "| Table 1 | `one`: b top1 | 0.5 | 0.6 | -0.1 | direction only | smaller |" in text


@pytest.mark.parametrize(
    ("second", "line"),
    [
        ('less = { row = { net = "a" } }', "b top1 - a top1 | -0.25 | +0.6 | -0.85 | contradicted"),
        ('over = { row = { net = "a" } }', "b top1 / a top1 | 0.6667 | 0.6 | +0.0667 | direction only"),
        ('less = { key = "top5" }', "b top1 - b top5 | -0.375 | +0.6 | -0.975 | contradicted"),
        (
            'less = { row = { net = "a" }, key = "top5" }\nscale = 0.5',
            "b top1 - a top5 | -0.75 | +0.6 | -1.35 | contradicted",
        ),
    ],
)
def test_a_difference_or_a_ratio_of_two_of_ours(tmp_path: Path, second: str, line: str) -> None:
    assert f"|  | `one`: {line} | d |" in told(small(tmp_path), FIGURE + second)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("less = {}", "less is another row or another key of one"),
        ('over = { row = { net = "b" } }', "over is another row or another key of one"),
        ('less = { key = "top5" }\nover = { key = "top5" }', "give one of them"),
        ('less = { row = { net = "c" } }', "0 rows with .*'c'.*one is needed"),
        ('over = { key = "zero" }', "'top1' is divided by .*'zero'.*which is 0"),
        ('less = { net = "a" }', "figure.0.less.net: Extra inputs"),
    ],
)
def test_a_second_figure_that_is_none_is_refused(tmp_path: Path, second: str, words: str) -> None:
    refused(words, told, small(tmp_path), FIGURE + second)


def test_rates_of_other_data_are_compared_as_differences_or_ratios() -> None:
    folder = ROOT / "results"
    alone = {figure.key for figure in read(folder / "papers.toml", measured(folder)).figure if len(figure.cells) == 1}
    assert alone <= {"macs", "params", "buffers_params", "macs_ratio", "x_time", "x_memory", "seconds", "share", "read"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("one", "won"), "no result 'won'; did you mean 'one'"),
        (('"b"', '"c"'), "0 rows with"),
        (("top1", "top9"), "'top9'; one is needed"),
        (('paper = "P"', ""), "figure.0.paper: Field required"),
    ],
)
def test_a_paper_beside_nothing_is_refused(tmp_path: Path, changed: tuple[str, str], words: str) -> None:
    refused(words, told, small(tmp_path), FIGURE.replace(*changed))


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        ("-0.25", "reproduced"),
        ("-0.17", "reproduced"),  # 3/2
        ("-0.16", "direction only"),
        ("-1.2", "direction only"),
        ("-1.3", "contradicted"),  # less than a fifth
        ("0.25", "contradicted"),
        ("0", "contradicted"),
        ('-1.3\nbound = "least"', "reproduced"),  # better than claimed
        ('0.25\nbound = "most"', "reproduced"),
        ('0.25\nbound = "least"', "contradicted"),
    ],
)
def test_a_verdict_follows_from_the_figures(tmp_path: Path, says: str, verdict: str) -> None:
    figure = FIGURE.replace('"P"', '"P, Table 1, of b"').replace("0.6", says) + 'less = { row = { net = "a" } }\n'
    text = told(small(tmp_path), figure + ITEM)
    assert f"| Table 1 | a and b | **{verdict}** | as it is |" in text.split("## Verdicts\n")[1]
    theirs = float(says.split()[0])
    numbers = f"-0.25 | {theirs:+.3g} | {-0.25 - theirs:+.3g}"
    assert f"| Table 1, of b | `one`: b top1 - a top1 | {numbers} | {verdict} | d |" in text


def test_a_table_is_as_its_worst_figure_and_says_how_many(tmp_path: Path) -> None:
    figure = FIGURE.replace('"P"', '"P, Table 1: b"')
    ours = (figure.replace("0.6", says) for says in ("0.5", "0.51", "0.9", "5"))  # our 0.5
    text = told(small(tmp_path), "".join(ours) + ITEM)
    assert "| **contradicted** (2 reproduced, 1 direction only, 1 contradicted) | as it is |" in text
    assert "| `one`: b top1 | 0.5 | 5 | -4.5 | contradicted |" in text


def test_a_verdict_of_our_own_is_one_more(tmp_path: Path) -> None:
    figure = FIGURE.replace('"P"', '"P, Table 1"').replace("0.6", "0.5")
    assert "| **reproduced** | as it is |" in told(small(tmp_path), figure + ITEM + 'verdict = "reproduced"')
    assert "| **contradicted** | as it is |" in told(tmp_path, figure + ITEM + 'verdict = "contradicted"')
    assert "| **not run** | as it is |" in told(tmp_path, ITEM + 'verdict = "not run"')


def test_figures_stand_in_the_order_of_the_papers_tables(tmp_path: Path) -> None:
    places = [f"P, Table {number}" for number in (2, 1, 2)]
    figures = [FIGURE.replace('"P"', f'"{place}, {i}"') for i, place in enumerate(places)]
    items = [ITEM, ITEM.replace("Table 1", "Table 2")]
    text = told(small(tmp_path), "".join(figures + items))
    assert text.index("| Table 1, 1 |") < text.index("| Table 2, 0 |") < text.index("| Table 2, 2 |")


def test_a_paper_has_the_page_that_is_declared_for_it_or_one_by_its_name(tmp_path: Path) -> None:
    page = '[[page]]\nfile = "first"\ntitle = "The first"\nabout = "of two"\npaper = "P"\n'
    (small(tmp_path) / "papers.toml").write_text(FIGURE + FIGURE.replace('"P"', '"Q R, Table 1"') + page)
    made = pages(tmp_path)
    assert list(made) == ["results.md", "results/first.md", "results/qr.md", "results/more.md"]
    assert made["results/first.md"].startswith("# The first\n\nof two\n")
    assert made["results/qr.md"].startswith("# Q R\n")


def test_a_training_run_is_a_result_of_one_row(tmp_path: Path) -> None:
    (small(tmp_path) / "trained").mkdir()
    (tmp_path / "trained/run.json").write_text(json.dumps(CARD | {"score": {"top1": 0.25}}))
    text = told(tmp_path, FIGURE + 'less = { result = "trained/run", row = {} }')
    assert "`one`: one b top1 - trained/run top1 | +0.25 | +0.6 |" in text
    assert "| n |  | d |" in text  # its card, on the page of the paper that it is compared with


def test_figures_of_seeds_are_compared_as_their_mean(tmp_path: Path) -> None:
    for seed, top1 in enumerate((0.25, 0.75)):
        add(tmp_path, f"one-seed{seed}", {"net": "b", "top1": top1})
    assert "`one`: b top1 | 0.5 | 0.6 | -0.1 |" in told(tmp_path, FIGURE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ITEM, "'P, Table 1' has no figure, so it needs a verdict"),
        (ITEM + 'verdict = "maybe"', "item.0.verdict"),
        (FIGURE + ITEM + 'verdict = "not run"', "'P' is of no"),
        (FIGURE.replace('"P"', '"P, Table 12"') + ITEM + 'verdict = "not run"', "'P, Table 12' is of no"),
    ],
)
def test_a_table_without_a_verdict_and_a_figure_without_a_table_are_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    refused(words, told, small(tmp_path), text)


@pytest.mark.parametrize(
    "text",
    [
        "?", "figure = 5", "figure = [5]", FIGURE.replace("0.6", '"x"'), "a = " + "[" * 100_000,
        FIGURE.replace("0.6", "nan"), FIGURE + "scale = 0", "more = 1",
        FIGURE.replace('{ net = "b" }', "5"), FIGURE.replace("top1", "net"), "page = [5]",
        '[[page]]\nfile = "p"\ntitle = "P"',
    ],
    ids=lambda text: text[-30:],
)  # fmt: skip
def test_papers_that_are_none_are_named(text: str, tmp_path: Path) -> None:
    refused("papers.toml|one: .*one is needed", told, small(tmp_path), text)
