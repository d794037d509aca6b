import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import left_as_found, refused
from fovea.basics import student
from fovea.data import DataSet, Pixels, Sample, Unreadable
from fovea.measures import zoom
from fovea.models.glimpsing import Pixels as Batch
from fovea.models.glimpsing import Scene, Walk, boxes_of, running_mean
from fovea.networks import Network, macs
from fovea.pictures import Prepare

CLASSES = 7
FIRST, SECOND = (0.0, 0.0, 4.0, 4.0), (6.0, 6.0, 10.0, 10.0)  # the second reaches over the edge of 8 x 8


class Peeking(nn.Module):
    """Says 0 of its overview, and then 1 of its first glimpse and 2 of its second, in the same places always."""

    abilities, least, most = frozenset({"glimpses"}), 0, 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def walk(self, scene: Scene, glimpses: int | None = None) -> Walk:
        count = 1 if glimpses is None else glimpses
        said = torch.eye(CLASSES)[: count + 1].expand(scene.count, -1, -1) * self.scale
        places = boxes_of(torch.zeros(scene.count, 1, 2), scene.size)
        glimpsed = torch.tensor([FIRST, SECOND][:count]).reshape(-1, 4).expand(scene.count, -1, -1)
        boxes, after = torch.cat([places, glimpsed], 1), running_mean(said)
        levels, parents = (1, 2, 3)[: count + 1], (-1, 0, 1)[: count + 1]
        return Walk(after[:, -1], after, said, boxes, levels, parents, torch.zeros(scene.count, count))

    def forward(self, x: Tensor, glimpses: int | None = None) -> Walk:
        return self.walk(Batch(x), glimpses)


def peeking(name: str = "peeking") -> Network:
    labels = tuple(map(str, range(CLASSES)))
    return Network(Peeking(), Prepare((8, 8), (0.5,) * 3, (0.5,) * 3, None), labels, name=name)


def made(*labels: int, boxes: tuple[tuple[float, float, float, float], ...] = ()) -> DataSet:
    """Pictures of 16 x 8 pixels, all with the same boxes; squashed, x is halved."""
    gray = Image.new("RGB", (16, 8), "grey")
    samples = [Sample(f"{i}", label, Pixels(np.asarray(gray)), boxes) for i, label in enumerate(labels)]
    return DataSet("made", tuple(samples), tuple(map(str, range(CLASSES))))


def test_rows_by_hand() -> None:
    """Of 4 pictures, 2 are of class 0. With one glimpse 0 and 1 are level, and a tie is no hit."""
    data = made(0, 0, 1, 5, boxes=((2, 1, 8, 3),))  # in the input 1 1 4 3, all of it in the first glimpse
    found = fovea.measure("zoom", [peeking()], data, batch=3, time=False)
    overview, one, two = found.rows
    assert [row["glimpses"] for row in found.rows] == [0, 1, 2]
    assert [row["levels"] for row in found.rows] == [1, 2, 3]
    assert (overview["top1"], overview["first"], overview["alone"], overview["read"]) == (0.5, 0.5, None, None)
    assert (one["top1"], one["first"], one["alone"]) == (0, 0.5, 0.25)
    assert (two["top1"], two["alone"]) == (0, 0)  # 1 and 2 are level, too
    assert two["top5"] == 0.75  # three in front; 5 is level with the three others
    assert overview["low"] <= 0.5 <= overview["high"]
    assert (one["found_at_2"], one["contains_at_2"]) == (1, 1)
    assert (two["found_at_3"], two["contains_at_3"]) == (0, 0)
    assert (one["read"], two["read"]) == (16 / 64, 4 / 64)  # of the second 2 x 2 are in the picture
    assert "found_at_2" not in overview
    assert {row["images"] for row in found.rows} == {4}


def test_a_box_that_is_only_partly_seen() -> None:
    found = fovea.measure(
        "zoom", [peeking()], made(0, boxes=((2, 1, 10, 6),)), glimpses=[1], time=False
    )  # 1 1 5 6, middle 3 3.5
    assert (found.rows[0]["found_at_2"], found.rows[0]["contains_at_2"]) == (1, 0)
    bare = fovea.measure("zoom", [peeking()], made(0, 1), glimpses=[1], time=False)
    assert "found_at_2" not in bare.rows[0]  # nothing was there to find


def test_networks_that_differ_in_their_seeds() -> None:
    rows = [
        {"net": f"a-seed{i}", "glimpses": 2, "images": 9, "top1": top1, "low": 0.0, "high": 1.0, "found_at_2": 1.0}
        | {"alone": top1 - 0.1, "read": top1 - 0.8}
        for i, top1 in enumerate((0.90, 0.92, 0.94))
    ]
    alone = {"net": "b-seed0", "glimpses": 2, "images": 9, "top1": 0.5, "low": 0.4, "high": 0.6}
    (row,) = zoom.over_seeds([*rows, alone])
    assert (row["net"], row["seeds"], row["images"]) == ("a", 3, 9)
    assert zoom.drawn([*rows, alone, row]) == [alone, row]  # the mean stands for its seeds
    assert row["top1"] == pytest.approx(0.92)
    half = 4.3027 * 0.02 / 3**0.5  # Student's t of two degrees of freedom
    assert (row["low"], row["high"]) == pytest.approx((0.92 - half, 0.92 + half), abs=1e-5)
    assert (row["found_at_2"], row["found_at_2_low"], row["found_at_2_high"]) == (1, 1, 1)
    for key, value in {"alone": 0.82, "read": 0.12}.items():  # the same differences between seeds
        figures = (row[key], row[f"{key}_low"], row[f"{key}_high"])
        assert figures == pytest.approx((value, value - half, value + half), abs=1e-5)
    assert student([0.0, 1.0]) == (0, 1)  # a share is no more than all


def tiny(name: str) -> Network:
    torch.manual_seed(len(name))
    options = {"levels": 3, "base": 32, "glimpses": 2}
    network = fovea.load("tnet/test_efficientnet", pretrained=False, classes=CLASSES, options=options)
    network.name = name
    return network


def test_tnet_beside_a_network_that_reads_all_of_it() -> None:
    whole = fovea.load("timm/test_resnet", pretrained=False, classes=CLASSES)
    data = made(0, 3, 3, boxes=((0, 0, 4, 4),))
    seen: list[tuple[int, int]] = []
    net = tiny("tnet")
    found = fovea.measure(
        "zoom", [net, whole], data, glimpses=[0, 2, 4, 1000], batch=2, progress=lambda *now: seen.append(now)
    )
    assert [(row["net"], row["glimpses"]) for row in found.rows] == [
        ("tnet", 0), ("tnet", 2), ("tnet", 4), ("timm/test_resnet", None),
    ]  # fmt: skip
    assert seen == [(0, 3), (2, 3), (3, 3), (1, 4), (2, 4), (3, 4), (4, 4)]  # pictures, then what each costs
    none, two, four, all_of_it = found.rows
    assert (four["macs"] - none["macs"]) / (two["macs"] - none["macs"]) == pytest.approx(2, rel=0.02)
    assert two["macs"] == macs(net, torch.zeros(1, 3, 128, 128))  # two is what it usually reads
    assert all(row["ms_per_picture"] > 0 and row["peak_mb"] > 0 for row in found.rows)
    assert all_of_it["top1"] == fovea.measure("classify", whole, data).rows[0]["top1"]
    assert all_of_it["alone"] is all_of_it["levels"] is None
    assert two["first"] == none["top1"]
    assert found.settings["input"] == "squashed to 128 x 128, cropped to 160 x 160"


def test_walks_that_end_when_they_are_sure_are_those_of_zoom() -> None:
    net, data = tiny("tnet"), made(0, 3, 3, 1, boxes=((0, 0, 4, 4),))
    images = [sample.source.read() for sample in data.samples]
    x = torch.stack([net.prepare(image)[0] for image in images])
    sure = sorted(after.certainty for answer in fovea.zoom(net, x, order="best") for after in answer.after)
    until = [sure[4], sure[-1]]
    found = fovea.measure("zoom", [net], data, glimpses=[0, 2], until=until, order=["levels", "best"], time=False)
    by_order = {order: [row for row in found.rows if row["order"] == order] for order in ("levels", "best")}
    for order, rows in by_order.items():
        assert [row["until"] for row in rows] == [None, None, *until]
        for row in rows[2:]:
            answers = fovea.zoom(net, x, until=row["until"], order=order)
            right = [
                answer.label == data.labels[sample.label] for answer, sample in zip(answers, data.samples, strict=True)
            ]
            assert row["top1"] == np.mean(right)
            assert row["glimpses"] == np.mean([len(answer.glimpses) for answer in answers])
            assert row["macs"] == round(np.mean([answer.cost.macs for answer in answers]))
        assert rows[2]["macs"] < rows[1]["macs"]
    before, after = [row for row in found.details["calibration"] if row["order"] == "best"]
    assert (before["calibrated"], after["calibrated"], before["answers"]) == (False, True, 4 * 3)
    assert before["nll"] == after["nll"]  # it is not calibrated
    drawn = zoom.draw(found)
    assert [axes.get_xlabel() for axes in drawn.axes] == ["multiplications a picture, in GMACs", "certainty"]
    assert len(drawn.axes[0].lines) >= 4
    refused("no order 'worst'", fovea.measure, "zoom", [net], data, order=["worst"])


def test_pictures_that_cannot_be_read_are_told() -> None:
    data = made(0, 1)
    bad = Sample("bad", 0, Unreadable("cut short"))
    found = fovea.measure("zoom", [peeking()], DataSet("made", (bad, *data.samples), data.labels), time=False)
    assert found.skipped == [("bad", "cut short")]
    assert found.rows[0]["images"] == 2
    with pytest.raises(fovea.BadPicture, match="no picture of made could be read: cut short"):
        fovea.measure("zoom", [peeking()], DataSet("made", (bad,), data.labels), time=False)


def test_wrong_choices() -> None:
    with pytest.raises(fovea.BadChoice, match=r"peeking reads 0 to 2 glimpses of a picture; none of \[5\]"):
        fovea.measure("zoom", [peeking()], made(0), glimpses=[5])
    refused("each by another name", fovea.measure, "zoom", [peeking(), peeking()], made(0))


def test_the_network_is_left_as_found() -> None:
    net = tiny("tnet")
    with left_as_found(net.module.train()):
        fovea.measure("zoom", [net], made(0, 1), glimpses=[1])
