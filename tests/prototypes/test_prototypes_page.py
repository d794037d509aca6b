from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from fovea.basics import BadChoice
from fovea.cli import app
from fovea.data import DataSet, open_data
from fovea.models.protopnet import ProtoPNet
from fovea.models.trunks import Trunk
from fovea.networks import Network
from fovea.pictures import Prepare
from fovea.prototypes import ROWS, page, prototype_sheet
from fovea.prototypes import likeness as prototyping
from fovea.results import Results, read
from fovea.training.prototypes import project

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
Mark = tuple[tuple[int, int, int], int, int, int]  # color, row, column, how gray the rest is


def draw(path: Path, mark: Mark) -> None:
    """80 x 80 pixels: a colored square of 10 in a grid of 8 x 8, on gray."""
    color, row, column, gray = mark
    pixels = np.full((80, 80, 3), gray, np.uint8)
    pixels[row * 10 : row * 10 + 10, column * 10 : column * 10 + 10] = color
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


MARKS: dict[str, list[Mark]] = {
    "cherry": [(RED, 2, 5, 90), ((230, 0, 0), 6, 1, 90), ((200, 0, 0), 0, 0, 90)],
    "leaf": [(GREEN, 4, 4, 90), ((0, 200, 0), 7, 7, 90)],
}


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    for label, marks in MARKS.items():
        for i, mark in enumerate(marks):
            draw(tmp_path / f"set/{label}/{i}.png", mark)
    return open_data(str(tmp_path / "set"))


@pytest.fixture
def network(data: DataSet) -> Network:
    """Cells are squares of 10 pixels, red, green and blue; each class knows its own color, and a gray."""
    module = ProtoPNet(Trunk(nn.AvgPool2d(10), (80, 80)), 2, 3, 2)
    module.add_on = nn.Sequential()
    module.prototypes.data = torch.tensor([[[1.0, 0.0, 0.0], [0.4, 0.4, 0.4]], [[0.0, 1.0, 0.0], [0.3, 0.3, 0.3]]])
    prepare = Prepare((80, 80), (0.0,) * 3, (1.0,) * 3, None, "nearest")
    made = Network(module.eval(), prepare, ("cherry", "leaf"), name="squares")
    project(made, data)
    return made


def test_boxes_lie_where_the_prototype_is_seen(network: Network, data: DataSet) -> None:
    own = prototyping.projected_on(network, data, [0, 2])
    names = {number: (patch.name, patch.label) for number, patch in own.items()}
    assert names == {0: ("0.png", "cherry"), 2: ("0.png", "leaf")}
    for number, (row, column) in ((0, (2, 5)), (2, (4, 4))):
        x0, y0, x1, y1 = own[number].box
        assert (x0 + x1) / 2 == column * 10 + 5  # its middle is the square's
        assert (y0 + y1) / 2 == row * 10 + 5
        assert 10 <= x1 - x0 <= 30
        assert own[number].similarity == pytest.approx(np.log(1e4), rel=1e-4)


def test_the_nearest_are_other_pictures_the_most_similar_first(network: Network, data: DataSet) -> None:
    red, gray, green, _ = prototyping.nearest(network, data, count=3)
    assert [patch.number for patch in red.nearest][:2] == [1, 2]
    assert red.own is not None
    assert red.own.number == 0
    apart = (25 / 255) ** 2  # of 230 from 255
    assert red.nearest[0].similarity == pytest.approx(np.log((apart + 1) / (apart + 1e-4)), rel=1e-4)
    similar = [patch.similarity for patch in red.nearest]
    assert similar == sorted(similar, reverse=True)
    assert (green.label, green.weight, green.nearest[0].label) == ("leaf", 1.0, "leaf")
    assert gray.own is not None
    assert gray.own.number not in [patch.number for patch in gray.nearest]


def test_batches_change_nothing_and_the_network_is_left_as_found(network: Network, data: DataSet) -> None:
    network.module.train()
    before = {key: value.clone() for key, value in network.module.state_dict().items()}
    apart, together = (prototyping.nearest(network, data, count=2, batch=batch) for batch in (1, 64))
    assert list(apart) == list(together)
    assert network.module.training
    assert all(torch.equal(value, before[key]) for key, value in network.module.state_dict().items())


def test_what_is_most_like_is_looked_for_once(network: Network, data: DataSet, tmp_path: Path) -> None:
    def asked(**options: Any) -> tuple[list[Any], int]:
        seen = list[int]()
        return list(
            prototyping.nearest(network, data, count=2, progress=lambda done, _: seen.append(done), **options)
        ), len(seen)

    plain, _ = asked()
    first, looked = asked(kept=tmp_path / "kept")
    assert looked
    again, looked = asked(kept=tmp_path / "kept")
    assert (first == again == plain, looked) == (True, 0)
    assert asked(kept=tmp_path / "kept", prototypes=[2]) == (plain[2:3], 0)
    (file,) = (tmp_path / "kept").iterdir()
    for content in (b"", file.read_bytes()[:200], b"x" * 500):
        file.write_bytes(content)
        assert asked(kept=tmp_path / "kept") == (plain, 1)
    with torch.no_grad():
        network.module.last.weight.mul_(2)  # type: ignore[union-attr, operator]
    assert asked(kept=tmp_path / "kept")[1]
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_reasons_for_an_answer_by_hand(network: Network, data: DataSet, tmp_path: Path) -> None:
    draw(tmp_path / "new.png", ((240, 0, 0), 1, 6, 90))
    (answer,) = prototyping.looks_like(network, tmp_path / "new.png", data, count=2)
    assert answer.label == "cherry"
    apart = (15 / 255) ** 2
    by_prototype = {one.prototype: one for one in answer.reasons}
    red = by_prototype[0]
    assert red.similarity == pytest.approx(np.log((apart + 1) / (apart + 1e-4)), rel=1e-4)
    assert red.weight == 1.0
    assert red.contribution == red.similarity
    assert red.own is not None
    assert (red.own.label, red.own.number) == ("cherry", 0)
    x0, y0, x1, y1 = red.box
    assert ((x0 + x1) / 2, (y0 + y1) / 2) == (65, 15)
    contributions = [one.contribution for one in answer.reasons]
    assert contributions == sorted(contributions, reverse=True)


def test_all_reasons_sum_up_to_the_logit(network: Network, data: DataSet) -> None:
    picture = data.samples[3].source.read()
    (answer,) = prototyping.looks_like(network, picture, data, count=4)
    assert sum(one.contribution for one in answer.reasons) == pytest.approx(answer.logit, rel=1e-5)


def test_other_data_than_it_was_projected_on_is_refused(network: Network, data: DataSet, tmp_path: Path) -> None:
    with pytest.raises(BadChoice, match="data that it was trained on"):
        prototyping.nearest(network, data.only([0]))
    for label in ("cherry", "leaf"):
        for i in range(3):
            draw(tmp_path / f"other/{label}/{i}.png", (BLUE, 3, 3, 0))
    with pytest.raises(BadChoice, match="data that it was trained on"):
        prototyping.projected_on(network, open_data(str(tmp_path / "other")), [0])


def test_prototypes_by_class_and_the_usual_choice(network: Network) -> None:
    assert prototyping.choose(network, ["leaf"]) == [2, 3]
    network.module.last.weight.data[0, :2] = torch.tensor([0.5, 2.0])
    assert prototyping.choose(network) == [1, 0, 2, 3]  # the one with the most weight first
    with pytest.raises(BadChoice, match="leaf"):
        prototyping.choose(network, ["leav"])
    network.module.picture[1], network.module.cell[1] = 3, 0  # both on one cell: one of them is enough
    assert prototyping.choose(network) == [1, 0, 2]


def test_before_the_projection_there_is_only_what_is_nearest(network: Network, data: DataSet, tmp_path: Path) -> None:
    network.module.picture.fill_(-1)
    found = prototyping.nearest(network, data, count=2)
    assert [one.own for one in found] == [None] * 4
    text = page.write_prototypes(found, tmp_path / "out").read_text()
    assert "not projected on a picture" in text


def test_the_page_of_prototypes(network: Network, data: DataSet, tmp_path: Path) -> None:
    found = prototyping.nearest(network, data, count=2)
    found.save(tmp_path / "out", files=True)
    index = page.write_prototypes(Results(found, settings={"net": "<squares>"}), tmp_path / "out")
    text = index.read_text()
    assert text.count("<section>") == 2
    assert text.count("data:image/jpeg;base64,") == 4 * (2 + 2)  # whole, part, two neighbors
    assert "&lt;squares&gt;" in text
    assert 'src="http' not in text
    rows = read(tmp_path / "out").results
    assert [row["own"]["number"] for row in rows][::2] == [0, 3]
    assert Image.open(tmp_path / "out" / rows[0]["files"]["sheet"]).width > 600


def test_a_sheet_of_many_has_the_first_of_each_class(network: Network, data: DataSet) -> None:
    found = prototyping.nearest(network, data, count=1)
    many = [replace(one, number=4 * i + one.number, own=None) for i in range(ROWS) for one in found]
    assert prototype_sheet(many).size == prototype_sheet(many[:4:2]).size


def test_each_patch_is_shown_once(network: Network, data: DataSet, tmp_path: Path) -> None:
    first, second, *others = prototyping.nearest(network, data, count=1)
    assert first.own is not None
    same = replace(second, own=first.own)
    apart, together = (prototype_sheet([first, other]).height for other in (second, same))
    assert together < apart
    text = page.write_prototypes(Results([first, same, *others]), tmp_path).read_text()
    assert "prototypes 0, 1" in text
    assert text.count("the prototype</b>") == 3


def test_the_page_of_answers(network: Network, data: DataSet, tmp_path: Path) -> None:
    draw(tmp_path / "new.png", ((240, 0, 0), 1, 6, 90))
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="1 picture"):
        found = prototyping.looks_like(network, [tmp_path / "new.png", tmp_path / "bad.png"], data, count=3)
    assert [name.endswith("bad.png") for name, _ in found.skipped] == [True]
    text = page.write_answers(found, tmp_path / "out").read_text()
    places = {(one.box, one.own.number, one.own.box) for one in found[0].reasons if one.own}
    assert text.count("data:image/jpeg;base64,") == 2 * len({box for box, *_ in places}) + 2 * len(places)
    (row,) = found.save(tmp_path / "out", files=True)
    assert row["label"] == "cherry"
    assert row["reasons"][0]["contribution"] == pytest.approx(found[0].reasons[0].contribution)
    assert (tmp_path / "out" / row["files"]["sheet"]).is_file()
    (tmp_path / "new.png").unlink()  # the page goes on without it, and with what was there before
    text = page.write_answers(found, tmp_path / "out", [row]).read_text()
    assert "new.png does not exist" in text
    assert f'src="{row["files"]["view"]["figure"]}"' in text


def test_the_command(tmp_path: Path, data: DataSet) -> None:
    """A saved network, by its file, on the data that it was projected on."""
    import fovea

    torch.manual_seed(0)
    options = {"channels": [8, 8, 16, 16], "stem_width": 8, "width": 4, "prototypes": 2}
    network = fovea.load("protopnet/timm/resnet10t", pretrained=False, classes=2, options=options)
    network.labels = data.labels
    project(network, data)
    file = tmp_path / "tiny.safetensors"
    network.save(file)
    given = ["prototypes", "--net", str(file), "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, [*given, "--data", str(tmp_path / "set"), "--class", "leaf", "--nearest", "1"])
    assert shown.exit_code == 0, shown.output
    assert [row["label"] for row in read(tmp_path / "out").results] == ["leaf", "leaf"]
    picture = str(tmp_path / "set/leaf/0.png")
    shown = CliRunner().invoke(app, [*given, picture, "--data", str(tmp_path / "set")])
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "out/index_files/0.jpg").is_file()
    refused = CliRunner().invoke(app, given)
    assert isinstance(refused.exception, BadChoice)
    assert "--data" in str(refused.exception)
