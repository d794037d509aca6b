import json
import re
from pathlib import Path

import pytest

from checks import raises, refused
from fovea.basics import BadChoice, Damaged, commit, processor, shortened
from fovea.measures import seeds
from fovea.measures.figures import Figures
from fovea.measures.papers import read as read_papers
from fovea.measures.results import TRAINED, cards, page, trained
from fovea.measures.tables import Tables
from fovea.networks import loading as zoo

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_files_say() -> None:
    """'fovea results' makes the page anew."""
    assert (ROOT / "docs/results.md").read_text(encoding="utf-8") == page(ROOT / "results")


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.stem)
def test_every_result_says_how_it_was_made_and_no_more(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    if path.stem == "bench-explain" and "date" not in found:
        pytest.skip("timed before results said how they were made; 'make bench' times it again")
    assert {"what", "settings", "rows", "command", "recipe", "commit", "seed", "processor", "date"} <= set(found)
    assert found["commit"]
    assert not found["commit"].endswith("+"), "measured on files that were not committed"
    assert found["processor"]
    assert found["command"].startswith(("fovea ", "python tests/"))
    texts = [str(value) for value in (found["command"], *found["settings"].values())]
    assert not any(re.search(r"(^|[\s=,:])(/\w|~|\S*\.\.(/|$))", text) for text in texts), "a path"
    named = {row["net"] for row in found["rows"] if row.get("net")}
    recipes = {zoo.ours()[net]["recipe"] for net in named if net in zoo.ours()}
    if len(recipes) == 1 and named <= set(zoo.ours()):  # networks of several, or that are not kept, have none in common
        assert found["recipe"] == recipes.pop()


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("/home/me/birds:split=test,boxes=~/b.csv", "birds:split=test,boxes=b.csv"),
        ("--json=/tmp/one.json", "--json=one.json"),
        ("../../birds", "birds"),
        ("data/../../birds", "birds"),
        ("results/NAME.json", "results/NAME.json"),
        ("recipes/NAME.toml", "recipes/NAME.toml"),
        ("timm/resnet50", "timm/resnet50"),
        ("fgsm:0.2, noise:5", "fgsm:0.2, noise:5"),
    ],
)
def test_a_command_tells_of_no_folders(word: str, told: str) -> None:
    assert shortened(word) == told


def small(folder: Path) -> Path:
    rows = [{"net": "a", "top1": 0.75, "top5": 0.875}, {"net": "b", "top1": 0.5, "top5": 0.875, "zero": 0}]
    found = Figures("classify", {"data": "three"}, rows)
    found.write(folder / "one.json", seed=3, recipe="recipes/a.toml", command="fovea measure classify")
    return folder


FIGURE = '[[figure]]\nresult = "one"\nrow = { net = "b" }\nkey = "top1"\npaper = "P"\nsays = 0.6\ndiffers = "d"\n'


def test_our_figure_the_papers_and_the_difference(tmp_path: Path) -> None:
    (small(tmp_path) / "papers.toml").write_text(
        '[[figure]]\nresult = "one"\nrow = { net = "b" }\nkey = "top1"\npaper = "P, Table 1"\nsays = 0.6\n'
        'differs = "smaller"\n'
    )
    text = page(tmp_path)
    assert "| a | 0.750 | 0.875 |" in text
    assert "| b top1 | 0.5 | 0.6 | -0.1 | P, Table 1 | smaller |" in text
    assert "`fovea measure classify`" in text
    assert "recipe recipes/a.toml" in text
    assert "seed 3" in text


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ('less = { row = { net = "a" } }', "b top1 - a top1 | -0.25 | +0.6 | -0.85"),
        ('over = { row = { net = "a" } }', "b top1 / a top1 | 0.6667 | 0.6 | +0.0667"),
        ('less = { key = "top5" }', "b top1 - b top5 | -0.375 | +0.6 | -0.975"),
        ('less = { row = { net = "a" }, key = "top5" }\nscale = 0.5', "b top1 - a top5 | -0.75 | +0.6 | -1.35"),
    ],
)
def test_a_difference_or_a_ratio_of_two_of_ours(tmp_path: Path, second: str, told: str) -> None:
    (small(tmp_path) / "papers.toml").write_text(FIGURE + second)
    assert f"| {told} | P | d |" in page(tmp_path)


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
    (small(tmp_path) / "papers.toml").write_text(FIGURE + second)
    refused(words, page, tmp_path)


def test_rates_of_other_data_are_compared_as_differences_or_ratios() -> None:
    folder = ROOT / "results"
    known = {*seeds.results(folder), *(f"{TRAINED}/{name}" for name in cards(folder))}
    alone = {figure.key for figure in read_papers(folder / "papers.toml", known).figure if len(figure.cells) == 1}
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
    (small(tmp_path) / "papers.toml").write_text(FIGURE.replace(*changed))
    refused(words, page, tmp_path)


ITEM = '[[item]]\nitem = "P, Table 1"\nabout = "a and b"\nfound = "as it is"\n'


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
    (small(tmp_path) / "papers.toml").write_text(figure + ITEM)
    told = f"b top1 - a top1: -0.25, paper {float(says.split()[0]):+.3g}"
    assert f"| Table 1 | a and b | **{verdict}** | {told} | as it is |" in page(tmp_path).split("### P\n")[1]


def test_a_table_is_as_its_worst_figure_and_says_how_many(tmp_path: Path) -> None:
    figure = FIGURE.replace('"P"', '"P, Table 1: b"')
    ours = (figure.replace("0.6", says) for says in ("0.5", "0.51", "0.9", "5"))  # our 0.5
    (small(tmp_path) / "papers.toml").write_text("".join(ours) + ITEM)
    assert "**contradicted** | b top1: 0.5, paper 5; 2 reproduced, 1 direction only, 1 contradicted |" in page(tmp_path)


def test_a_training_run_is_a_result_of_one_row(tmp_path: Path) -> None:
    (small(tmp_path) / "trained").mkdir()
    card = {"name": "n", "tested_on": "d", "changes": [], "minutes": 1, "processor": "p", "commit": "c"}
    (tmp_path / "trained/run.json").write_text(json.dumps(card | {"score": {"top1": 0.25}}))
    (tmp_path / "papers.toml").write_text(FIGURE + 'less = { result = "trained/run", row = {} }')
    assert "| one b top1 - trained/run top1 | +0.25 | +0.6 |" in page(tmp_path)


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
    (small(tmp_path) / "papers.toml").write_text(text)
    refused(words, page, tmp_path)


def test_nothing_measured_yet(tmp_path: Path) -> None:
    refused("no results", page, tmp_path)


def test_details_are_written_beside_the_rows(tmp_path: Path) -> None:
    Figures("x", {}, [], details={"confusion": [[1]]}).write(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["confusion"] == [[1]]


def test_commit_and_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    assert socket.gethostname() not in processor()
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "H200")
    assert processor() == processor("cuda") == "H200"
    assert "CPU threads" in processor("cpu")  # beside a GPU
    monkeypatch.setenv("FOVEA_COMMIT", "abc")
    assert commit() == "abc"


def test_runs_that_differ_in_their_seed_are_one_row() -> None:
    def card(seed: int, top1: float, size: int) -> dict[str, object]:
        changes = [f"seed={seed}", f"network.size={size}"]
        facts = {"name": "a", "tested_on": "d", "minutes": 1, "processor": "p", "commit": "c"}
        return {**facts, "changes": changes, "score": {"top1": top1}}

    small, large = trained([card(0, 0.5, 224), card(1, 0.7, 224), card(0, 0.9, 448)])
    assert (small["changes"], small["seeds"], small["top1"]) == ("network.size=224", 2, pytest.approx(0.6))
    assert 0 <= small["low"] < 0.5 < 0.7 < small["high"] <= 1  # two say little
    assert (large["top1"], "low" in large) == (0.9, False)


@pytest.mark.parametrize("path", sorted((ROOT / "results/trained").glob("*.json")), ids=lambda path: path.stem)
def test_runs_say_how_they_were_made_and_no_more(path: Path) -> None:
    card = json.loads(path.read_text(encoding="utf-8"))
    assert card["commit"]
    assert not card["commit"].endswith("+")
    assert not re.search(r"(^|[\s=,:\"])(/\w|~)", path.read_text(encoding="utf-8")), "a path"


@pytest.mark.parametrize(
    "content",
    [
        "", "?", "[]", "null", "5", "{}", '{"what": 5, "settings": {}, "rows": []}',
        '{"what": "x", "settings": [], "rows": []}', '{"what": "x", "settings": {}, "rows": [5]}',
        '{"what": "x", "settings": {}, "rows": {}}', '{"what": "x", "settings": {}}', "[" * 100_000,
        '{"what": "x", "settings": {}, "rows": [], "command": 5}', '{"what": ' + "9" * 10_000 + "}",
    ],
    ids=lambda content: content[:40],
)  # fmt: skip
def test_a_file_that_holds_no_figures_is_named(content: str, tmp_path: Path) -> None:
    (small(tmp_path) / "two.json").write_text(content)
    raises(Damaged, r"two.json is damaged, or not fovea's .*move it elsewhere", page, tmp_path)


def test_a_card_that_is_none_is_named(tmp_path: Path) -> None:
    (small(tmp_path) / "trained").mkdir()
    for content in ("?", "[]", '{"name": "a"}', '{"name": "a", "score": {"top1": "x"}}', "[" * 100_000):
        (tmp_path / "trained/one.json").write_text(content)
        raises(Damaged, r"one.json is damaged, or not fovea's .*move it elsewhere", page, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "?", "figure = 5", "figure = [5]", FIGURE.replace("0.6", '"x"'), "a = " + "[" * 100_000,
        FIGURE.replace("0.6", "nan"), FIGURE + "scale = 0", "more = 1",
        FIGURE.replace('{ net = "b" }', "5"), FIGURE.replace("top1", "net"),
    ],
    ids=lambda text: text[-30:],
)  # fmt: skip
def test_papers_that_are_none_are_named(text: str, tmp_path: Path) -> None:
    (small(tmp_path) / "papers.toml").write_text(text)
    refused("papers.toml|one: .*one is needed", page, tmp_path)


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
