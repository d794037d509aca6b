import json
import re
from pathlib import Path

import pytest
from made_results import CARD, FIGURE, ITEM, add, small

from checks import raises, refused
from fovea.basics import Damaged, commit, processor, shortened
from fovea.measures import chart_files
from fovea.measures.figures import Figures
from fovea.measures.results import Site, pages, plots, write
from fovea.networks import ours

ROOT = Path(__file__).parents[2]
PLOT = """\
[[plot]]
file = "both"
page = "p"
title = "Both"
says = "{b[top1]:.2f}"
cells.b = { from = "one", where = { net = "b" } }
[[plot.panel]]
x = "top-1"
lines = [{ label = "b", from = "one", key = "top1" }]
"""


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages(ROOT / "results")


def test_the_pages_are_what_the_files_say(made: dict[str, str]) -> None:
    """'fovea results' makes them anew."""
    older = [name for name, text in made.items() if (ROOT / "docs" / name).read_text(encoding="utf-8") != text]
    assert older == []


def test_the_plots_hold_what_the_files_say() -> None:
    drawn = plots(ROOT / "results")
    assert [name for name in drawn if chart_files.held(ROOT / f"docs/results/{name}.svg") != drawn[name]] == []


def test_nothing_stands_beside_the_pages_and_their_plots(made: dict[str, str]) -> None:
    files = {*made, *(f"results/{name}.svg" for name in plots(ROOT / "results"))} - {"results.md"}
    assert {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs/results").iterdir()} == files


def test_every_result_is_on_exactly_one_page(made: dict[str, str]) -> None:
    site = Site(ROOT / "results")
    shown = [name for text in made.values() for name in re.findall(r"^<summary><code>(.*?)</code>", text, re.M)]
    assert sorted(shown) == sorted(site.found)
    assert set(site.owner) == set(site.results)


def test_every_plot_is_on_exactly_one_page(made: dict[str, str]) -> None:
    shown = [name for text in made.values() for name in re.findall(r"\]\((.*?)\.svg\)", text)]
    assert sorted(shown) == sorted(plots(ROOT / "results"))


def test_a_result_is_where_it_is_asked_for_then_where_it_is_compared_then_last(tmp_path: Path) -> None:
    asking = '[[page]]\nfile = "q"\ntitle = "Q"\nabout = "asks"\nresults = ["o*", "four"]\n'
    second = asking.replace('"q"', '"r"').replace('"o*"', '"one"')  # too late
    figures = FIGURE + FIGURE.replace('"one"', '"two"')
    (small(tmp_path) / "papers.toml").write_text(figures + asking + second)
    for name in ("two", "three", "four"):
        add(tmp_path, name, {"net": "b", "top1": 0.5})
    assert Site(tmp_path).owner == {"one": "q", "two": "p", "three": "more", "four": "q"}
    assert "<code>one</code>, 2 rows" in pages(tmp_path)["results/q.md"]
    assert "`one`: b top1" in pages(tmp_path)["results/p.md"]  # compared there all the same


def test_two_of_one_file_are_refused(tmp_path: Path) -> None:
    page = '[[page]]\nfile = "more"\ntitle = "Q"\nabout = "asks"\n'  # as the last page is called
    (small(tmp_path) / "papers.toml").write_text(FIGURE + page)
    refused("papers.toml: two would be written to 'more'", pages, tmp_path)
    (tmp_path / "papers.toml").write_text(FIGURE)
    (tmp_path / "plots.toml").write_text(PLOT + PLOT)
    refused("plots.toml: two would be written to 'both'", pages, tmp_path)


def test_a_plot_of_no_page_is_refused(tmp_path: Path) -> None:
    (small(tmp_path) / "plots.toml").write_text(PLOT.replace('page = "p"', 'page = "mor"'))
    refused("plots.toml: no page 'mor'; did you mean 'more'", pages, tmp_path)


def test_rows_their_command_and_how_they_were_made(tmp_path: Path) -> None:
    text = pages(small(tmp_path))["results/more.md"]
    assert "| a | 0.750 | 0.875 |" in text
    assert "data: three." in text
    assert "`fovea measure classify`" in text
    assert "recipe recipes/a.toml" in text
    assert "seed 3" in text


def test_points_of_curves_are_for_the_plots(tmp_path: Path) -> None:
    add(tmp_path, "one", {"method": "m", "mean": 0.25}, {"method": "m", "area": 0.5, "accuracy": 0.125})
    text = pages(tmp_path)["results/more.md"]
    assert "| m | 0.250 |" in text
    assert "0.125" not in text


def test_the_overview_counts_the_verdicts_and_leads_to_them(tmp_path: Path) -> None:
    other = ITEM.replace("Table 1", "Table 2") + 'verdict = "not run"\n'
    (small(tmp_path) / "papers.toml").write_text(FIGURE.replace('"P"', '"P, Table 1"') + ITEM + other)
    text = pages(tmp_path)["results.md"]
    assert "| [P](results/p.md) | 0 | 1 | 0 | 1 |" in text  # 0.5 of 0.6
    assert "| Table 1 | a and b | [direction only](results/p.md) |" in text
    assert "| Table 2 | a and b | [not run](results/p.md) |" in text


def test_a_plot_stands_on_its_page_with_its_sentence_and_sources(tmp_path: Path) -> None:
    (small(tmp_path) / "papers.toml").write_text(FIGURE)
    (tmp_path / "plots.toml").write_text(PLOT)
    made = pages(tmp_path)
    assert "![Both](both.svg)\n\n0.50\n\n*Drawn from `one`.*" in made["results/p.md"]
    assert "both.svg" not in made["results.md"] + made["results/more.md"]


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    folder, page = small(tmp_path / "results"), tmp_path / "docs/measured.md"
    (folder / "papers.toml").write_text(FIGURE)
    (folder / "plots.toml").write_text(PLOT)
    files = [page, *(page.parent / "measured" / name for name in ("p.md", "more.md", "both.svg"))]
    assert write(folder, page) == files
    assert write(folder, page) == []
    (folder / "plots.toml").write_text(PLOT.replace("{b[top1]:.2f}", "half"))
    assert write(folder, page) == [files[1]]  # the sentence is the page's
    (folder / "plots.toml").write_text(PLOT.replace("top1", "top5"))
    assert write(folder, page) == [files[1], files[3]]


def test_links_lead_to_the_pages_under_any_name(tmp_path: Path) -> None:
    (small(tmp_path / "results") / "papers.toml").write_text(FIGURE + ITEM.replace(", Table 1", ""))
    for path in write(tmp_path / "results", tmp_path / "docs/measured.md"):
        links = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
        assert links or path.stem == "more"
        assert all((path.parent / link).is_file() for link in links), links


def test_anchors_of_the_overview_are_headings(made: dict[str, str]) -> None:
    headings = re.findall(r"^### (.*)", made["results/more.md"], re.M)
    anchors = re.findall(r"\(results/more\.md#(.*?)\)", made["results.md"])
    assert anchors
    assert set(anchors) <= {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
    recipes = {ours()[net]["recipe"] for net in named if net in ours()}
    if len(recipes) == 1 and named <= set(ours()):  # networks of several, or that are not kept, have none in common
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


def test_nothing_measured_yet(tmp_path: Path) -> None:
    refused("no results", pages, tmp_path)
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/run.json").write_text(json.dumps(CARD | {"score": {"top1": 0.25}}))
    refused("no results", pages, tmp_path)  # a training run alone is no measurement


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
    raises(Damaged, r"two.json is damaged, or not fovea's .*move it elsewhere", pages, tmp_path)
