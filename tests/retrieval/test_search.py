"""Pictures of plain colors: similarities are cosines worked out by hand, and maps lie on the stripes they share."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from made_colors import BLUE, GREEN, RED, SIDE, colors, draw, folder
from PIL import Image

import fovea
from checks import raises, refused
from commands import Run
from fovea import BadPicture
from fovea.networks import Network
from fovea.results import Result, read
from fovea.retrieval import Index, alike, index, open_index, over


@pytest.fixture
def opened(tmp_path: Path) -> Index:
    net = colors()
    return open_index(index(net, folder(tmp_path / "set"), tmp_path / "a.fovea").file, net)


def test_the_nearest_first_by_cosine(opened: Index, tmp_path: Path) -> None:
    found = opened.search(draw(tmp_path / "query.png", RED), count=3)[0]
    assert [one.name for one in found.neighbors] == ["warm/red.png", "warm/mostly.png", "warm/half.png"]
    assert [one.similarity for one in found.neighbors] == pytest.approx([1, 0.8**0.5, 0.5**0.5], abs=1e-6)
    assert [one.label for one in found.neighbors] == ["warm"] * 3
    assert found.itself is None
    assert found.neighbors[0].path == tmp_path / "set/warm/red.png"


def test_the_picture_itself_is_no_neighbor(opened: Index, tmp_path: Path) -> None:
    found = opened.search(tmp_path / "set/warm/red.png", count=2)[0]
    assert [one.name for one in found.neighbors] == ["warm/mostly.png", "warm/half.png"]
    assert found.itself.name == "warm/red.png"
    assert found.itself.similarity == pytest.approx(1)
    assert found.label == "warm"
    (tmp_path / "link").symlink_to(tmp_path / "set")
    assert opened.search(tmp_path / "link/warm/red.png")[0].itself == found.itself
    assert len(opened.search(tmp_path / "set/warm/red.png", count=5)[0].neighbors) == 4


def test_a_copy_is_a_neighbor(opened: Index, tmp_path: Path) -> None:
    found = opened.search(Image.open(tmp_path / "set/warm/red.png"), count=1)[0]
    assert (found.neighbors[0].name, found.neighbors[0].itself) == ("warm/red.png", False)


def test_itself_if_it_is_all_there_is(tmp_path: Path) -> None:
    net, only = colors(), draw(tmp_path / "set/only.png", RED)
    opened = open_index(index(net, tmp_path / "set", tmp_path / "a.fovea").file, net)
    found = opened.search(only)[0]
    assert [(one.name, one.itself, one.label) for one in found.neighbors] == [("only.png", True, None)]


@pytest.mark.parametrize("count", [0, 6, -1])
def test_more_than_the_index_holds(opened: Index, tmp_path: Path, count: int) -> None:
    refused("count is 1 to ", opened.search, tmp_path / "set/warm/red.png", count=count)
    assert len(opened.search(draw(tmp_path / "q.png", RED))[0].neighbors) == 5  # eight, or all of fewer


def test_a_query_that_cannot_be_read(opened: Index, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    raises(BadPicture, "is not a picture", opened.search, tmp_path / "bad.png")
    raises(BadPicture, "no file or folder", opened.search, tmp_path / "nowhere.png")
    with pytest.warns(UserWarning, match=r"1 picture.*skipped"):
        found = opened.search([tmp_path / "bad.png", tmp_path / "set"], count=1)
    assert [Path(one.name).name for one in found] == ["blue.png", "green.png", "half.png", "mostly.png", "red.png"]
    assert [name for name, _ in found.skipped] == [str(tmp_path / "bad.png")]


def test_maps_lie_where_the_two_are_alike(opened: Index, tmp_path: Path) -> None:
    """The query is red on the left and blue on the right; what it shares with each picture is one half of it."""
    found = opened.search(draw(tmp_path / "query.png", RED, BLUE), count=5)[0]
    maps = found.maps
    assert maps.neighbors == found.neighbors
    assert maps.pairs.values.shape == (10, 1, 6, 6)
    for k, one in enumerate(maps.neighbors):
        part = maps.pairs.map(2 * k)
        left, right = part[:, :3].sum(), part[:, 3:].sum()
        if one.name == "cold/blue.png":
            assert (left, right) == (0, pytest.approx(part.sum()))
        if one.name == "warm/red.png":
            assert (left, right) == (pytest.approx(part.sum()), 0)
    half = next(k for k, one in enumerate(maps.neighbors) if one.name == "warm/half.png")
    assert maps.pairs.map(2 * half + 1)[:, 3:].sum() == 0  # its green is not in the query


def test_maps_are_those_of_explain(opened: Index, tmp_path: Path) -> None:
    query = draw(tmp_path / "query.png", RED, GREEN, BLUE)
    found = opened.search(query, count=3)[0]
    given = [path for one in found.neighbors for path in (query, one.path)]
    net = opened.known.network
    pairs = fovea.explain(net, given, target="pair")
    torch.testing.assert_close(found.maps.pairs.values, pairs.values)
    assert [one.name for one in found.maps.pairs.shown[::2]] == [str(query)] * 3
    own = fovea.explain(net, query, method="l2caf-oblivious", target="output")
    torch.testing.assert_close(found.maps.own.values, own.values)


def test_networks_whose_head_takes_its_own_batch_only(branching: torch.nn.Module, tmp_path: Path) -> None:
    net = Network(branching, colors().transform, name="branching")
    opened = open_index(index(net, folder(tmp_path / "set"), tmp_path / "a.fovea").file, net)
    query = tmp_path / "set/warm/half.png"
    found = opened.search(query, count=2)[0]
    pairs = fovea.explain(net, [path for one in found.neighbors for path in (query, one.path)], target="pair")
    torch.testing.assert_close(found.maps.pairs.values, pairs.values)


def test_each_picture_passes_the_trunk_once(opened: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened.search(draw(tmp_path / "query.png", RED, GREEN), count=4)[0]
    found.maps  # noqa: B018  how the network is cut is found by then
    net = opened.known.network
    for size in (16, 3):
        before = net.module.seen
        monkeypatch.setattr(alike, "SIZE", size)
        alike.maps_of(net, found.picture, found.neighbors)
        assert net.module.seen - before == 5  # the query and four neighbors


def test_neighbors_that_have_gone_are_told(opened: Index, tmp_path: Path) -> None:
    found = opened.search(draw(tmp_path / "query.png", RED), count=2)
    (tmp_path / "set/warm/mostly.png").unlink()
    page = found.page(tmp_path / "out.html")
    (one, reason), *_ = found[0].maps.lost
    assert (one.name, "does not exist" in reason) == ("warm/mostly.png", True)
    assert "No maps: warm/mostly.png does not exist" in page.read_text().replace(str(tmp_path / "set") + "/", "")


def test_a_network_without_a_map_has_a_page_all_the_same(tmp_path: Path) -> None:
    net = Network(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE**2, 4)), colors().transform)
    opened = open_index(index(net, folder(tmp_path / "set"), tmp_path / "a.fovea").file, net)
    found = opened.search(tmp_path / "set/warm/red.png", count=2)
    assert (found[0].maps.own, found[0].maps.neighbors) == (None, ())
    found.save(tmp_path / "out", files=True)
    text = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert text.count("No maps: no layer of Sequential gives a spatial map") == 2
    assert (tmp_path / "out/red.png").is_file()


def test_a_map_drawn_at_another_size_lies_on_the_same_part(opened: Index, tmp_path: Path) -> None:
    found = opened.search(draw(tmp_path / "query.png", RED, BLUE), count=1)[0]
    placement = found.maps.own.shown[0].placement
    twice = placement.at_size((2 * SIDE, 2 * SIDE))
    assert twice.window == (0, 0, 2 * SIDE, 2 * SIDE)
    assert twice.scale == (2 * placement.scale[0], 2 * placement.scale[1])
    drawn = over(found.maps.own, 0, Image.new("RGB", (96, 48)))
    assert drawn.size == (96, 48)


def test_saved(opened: Index, tmp_path: Path) -> None:
    found = opened.search(tmp_path / "set/warm/half.png", count=3)
    (row,) = found.save(tmp_path / "out", files=True)
    text = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert text == found.page(tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="(?!data:)', text), "the page must not fetch anything"
    assert text.count('class="card"') == 3
    assert text.count("this of the query") == 3
    assert "in the index itself" in text
    assert 'class="same"' in text
    told = read(tmp_path / "out")
    assert (told.what, told.settings["net"], told.settings["pictures"]) == ("search", "colors", 5)
    assert told.settings["features"] == "output"
    assert told.results == [row]
    assert row["itself"] == "warm/half.png"
    assert row["neighbors"][0]["name"] == "warm/mostly.png"
    assert row["neighbors"][0]["similarity"] == pytest.approx(0.9**0.5, abs=1e-5)  # (2 + 1) / sqrt(5 * 2)
    assert [one["query_box"] for one in row["neighbors"]] == found[0].boxes
    assert Image.open(tmp_path / "out" / row["files"]["sheet"]).width > 1000


def test_saved_again_what_was_there_stays(opened: Index, tmp_path: Path) -> None:
    opened.search(tmp_path / "set/warm/half.png", count=1).save(tmp_path / "out")
    opened.search(tmp_path / "set/cold/blue.png", count=1).save(tmp_path / "out")
    text = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert (text.count('class="card"'), text.count('src="index_files/half.jpg"')) == (1, 1)
    assert [Path(row["name"]).name for row in read(tmp_path / "out").results] == ["half.png", "blue.png"]


def test_a_result_like_any_other(opened: Index, tmp_path: Path) -> None:
    found = opened.search(tmp_path / "set/warm/half.png", count=1)
    assert isinstance(found[0], Result)
    assert (found[0].label, found[0].probability) == ("warm", None)
    assert repr(found[0]) == f"<Search {tmp_path / 'set/warm/half.png'}: warm>"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Run]:
    return {name: Run(name, monkeypatch, capsys) for name in ("index", "search")}


def test_commands(run: dict[str, Run], tmp_path: Path) -> None:
    fovea.load("smallnet", pretrained=False).save(tmp_path / "net.safetensors")
    pictures, file = folder(tmp_path / "set"), tmp_path / "a.fovea"
    (pictures / "warm/bad.png").write_bytes(b"no picture")
    status, said, warned = run["index"](pictures, "--net", tmp_path / "net.safetensors", "--out", file, "--batch", 2)
    assert status == 0
    assert "5 pictures in" in said
    assert "5 new, 0 changed, 0 already there, 0 dropped, 1 that cannot be read" in said
    assert "cannot be read" in warned
    queries = pictures / "warm/red.png", pictures / "cold/blue.png", pictures / "warm/bad.png"
    told = tmp_path / "told.json"
    status, said, warned = run["search"](
        *queries, "--index", file, "--count", 2, "--out", tmp_path / "out", "--json", told
    )
    assert status == 0
    assert re.search(r"loaded in [\d.]+ s, answered in [\d.]+ s each, 5 pictures", said)
    assert "itself in the index, as warm/red.png" in said
    assert "bad.png is not a picture" in warned
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "results.json", "index_files"}
    assert json.loads(told.read_text())["skipped"][0]["name"].endswith("bad.png")


def test_commands_refuse(run: dict[str, Run], tmp_path: Path) -> None:
    fovea.load("smallnet", pretrained=False).save(tmp_path / "net.safetensors")
    pictures, file = folder(tmp_path / "set"), tmp_path / "a.fovea"
    assert run["search"](pictures / "warm/red.png", "--index", file)[0] == 2
    (tmp_path / "empty").mkdir()
    assert run["index"](tmp_path / "empty", "--net", tmp_path / "net.safetensors", "--out", file)[0] == 1
    run["index"](pictures, "--net", tmp_path / "net.safetensors", "--out", file)
    fovea.load("smallnet", pretrained=False).save(tmp_path / "other.safetensors")
    status, _, warned = run["index"](pictures, "--net", tmp_path / "other.safetensors", "--out", file)
    assert (status, "--fresh" in warned) == (2, True)
    status, _, warned = run["search"](pictures / "warm/red.png", "--index", file, "--count", 9)
    assert (status, "1 to 5" in warned) == (2, True)
    status, _, warned = run["search"](tmp_path / "nowhere.png", "--index", file)
    assert (status, "no file or folder" in warned) == (1, True)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    net = colors()
    draw(tmp_path / "set/plain.png", RED)
    odd = tmp_path / "set" / b"\xff\xfe.png".decode(errors="surrogateescape")
    odd.write_bytes((tmp_path / "set/plain.png").read_bytes())
    opened = open_index(index(net, tmp_path / "set", tmp_path / "a.fovea").file, net)
    found = opened.search(tmp_path / "set/plain.png")[0]
    assert found.neighbors[0].name == "\ufffd\ufffd.png"
    assert found.neighbors[0].path == odd
    assert "\ufffd" in opened.search(tmp_path / "set/plain.png").page(tmp_path / "p.html").read_text(encoding="utf-8")


def test_equal_similarities_come_by_name(tmp_path: Path) -> None:
    net = colors()
    for name in "cab":
        draw(tmp_path / f"set/{name}.png", RED)
    opened = open_index(index(net, tmp_path / "set", tmp_path / "a.fovea", batch=1).file, net)
    found = opened.search(Image.fromarray(np.full((8, 8, 3), (90, 0, 0), np.uint8)), count=2)
    assert [one.name for one in found[0].neighbors] == ["a.png", "b.png"]
