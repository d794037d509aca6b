import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import raises, refused
from conftest import Through
from fovea.data import DataSet, Sample, Unreadable, open_data
from fovea.networks import blank
from fovea.networks.heads import embedding
from fovea.pictures import Prepare
from fovea.retrieval import lengths, nmi, ranks

measure, measure_boxes = partial(fovea.measure, "retrieval"), partial(fovea.measure, "retrieval-loc")
LINE = np.array([[0.0], [1.0], [2.5], [3.0], [9.0]])
LETTERS = np.array([0, 0, 1, 0, 1])  # a a b a b


def test_recalls_on_a_line_by_hand() -> None:
    """2.5 finds its like at 9, behind 3, 1 and 0; 3 finds 1 behind 2.5; 9 finds 2.5 behind 3."""
    assert ranks(LINE, LETTERS).tolist() == [0, 0, 3, 1, 1]


def test_a_picture_is_not_its_own_neighbor_and_a_tie_is_no_hit() -> None:
    twins = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert ranks(twins, np.array([0, 0, 1, 1])).tolist() == [1, 1, 2, 2]
    collapsed = np.ones((6, 3)) / 3
    assert ranks(collapsed, np.array([0, 0, 0, 1, 1, 1])).tolist() == [3] * 6


@pytest.mark.parametrize("offset", [0, 1000])
def test_an_outlier_or_an_offset_blurs_nothing(offset: float) -> None:
    points = np.array([[0, 0], [0.01, 0], [0.1, 0], [0.11, 0], [1e4, 0], [1e4, 0.01]]) + offset
    assert ranks(points, np.array([0, 0, 1, 1, 2, 2])).tolist() == [0] * 6


def test_alone_in_its_class_is_never_a_hit() -> None:
    assert (ranks(LINE[:3], np.array([0, 0, 1])) < 8).tolist() == [True, True, False]


def test_agrees_with_other_libraries() -> None:
    metric_learning = pytest.importorskip("pytorch_metric_learning.utils.inference")
    neighbors = pytest.importorskip("sklearn.neighbors")
    generator = np.random.default_rng(0)
    labels = generator.integers(6, size=120)
    points = lengths(generator.normal(size=(120, 5)) + 0.8 * np.eye(6, 5)[labels], unit=True)
    rank = ranks(points, labels)
    nearest = neighbors.NearestNeighbors(n_neighbors=8).fit(points).kneighbors(return_distance=False)
    for k in (1, 2, 4, 8):
        assert ((labels[nearest[:, :k]] == labels[:, None]).any(1) == (rank < k)).all()
    accuracy = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator").AccuracyCalculator(
        include=("precision_at_1",),
        knn_func=metric_learning.CustomKNN(pytest.importorskip("pytorch_metric_learning.distances").LpDistance()),
        kmeans_func=lambda *_: None,
        device=torch.device("cpu"),
    )
    told = accuracy.get_accuracy(torch.from_numpy(points), torch.from_numpy(labels))
    assert told["precision_at_1"] == pytest.approx((rank < 1).mean())


def test_ranks_do_not_depend_on_how_many_are_compared_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.normal(size=(50, 4)), generator.integers(5, size=50)
    whole = ranks(points, labels)
    monkeypatch.setattr("fovea.retrieval.recall.CHUNK", 150)
    assert (ranks(points, labels) == whole).all()
    turned = points @ np.linalg.qr(generator.normal(size=(4, 4)))[0]
    assert (ranks(turned * 7 + 3, labels) == whole).all()  # distances are all that counts


def test_unit_length_leaves_directions_only() -> None:
    points = np.array([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    assert lengths(points, unit=True).tolist() == [[0.6, 0.8], [0.0, 1.0], [0.0, 0.0]]
    assert lengths(points, unit=False) is points
    with pytest.raises(fovea.BadNetwork, match="1 of 2 pictures hold values that are not numbers"):
        lengths(np.array([[1.0], [np.nan]]), unit=True)


def test_nmi_by_hand() -> None:
    """a a b b in clusters {a} and {a b b}: I = (ln 2 + ln 2/3)/4 + ln(4/3)/2, H = ln 2 and -(ln 1/4 + 3 ln 3/4)/4."""
    pytest.importorskip("sklearn")
    information = (np.log(2) + np.log(2 / 3)) / 4 + np.log(4 / 3) / 2
    entropies = np.log(2) * -(np.log(1 / 4) + 3 * np.log(3 / 4)) / 4
    points = np.array([[0.0], [10.0], [10.2], [10.1]])
    assert nmi(points, np.array([0, 0, 1, 1])) == pytest.approx(information / np.sqrt(entropies), abs=1e-6)
    assert nmi(points, np.array([4, 7, 7, 7])) == pytest.approx(1)


@dataclass(frozen=True)
class Spot:
    """A colored rectangle on black."""

    box: tuple[int, int, int, int]
    color: tuple[int, int, int]

    def read(self) -> Image.Image:
        image = Image.new("RGB", (80, 60))
        image.paste(self.color, self.box)
        return image


BOXES = [(8, 8, 32, 28), (40, 20, 72, 52), (20, 4, 60, 24), (4, 28, 40, 56)]


def spots(labels: tuple[int, ...] = (0, 0, 1, 1)) -> DataSet:
    colors = [(250, 0, 0), (200, 10, 0), (0, 250, 0), (0, 200, 10)]
    samples = [
        Sample(f"{i}.png", label, Spot(box, color), (box,))
        for i, (label, box, color) in enumerate(zip(labels, BOXES, colors, strict=True))
    ]
    return DataSet("spots", (*samples, Sample("broken.png", 0, Unreadable("broken"), ((0, 0, 1, 1),))), ("a", "b"))


def colors_net(labels: int | None = None) -> fovea.Network:
    """The embedding is the mean color, the map is where there is any; with labels, two outputs from it."""
    module = nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(3, 3, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module[1].weight.data = torch.eye(3).view(3, 3, 1, 1)
    if labels:
        module.append(nn.Linear(3, labels))
    return fovea.wrap(module.eval(), Prepare((60, 80), (0.0,) * 3, (1.0,) * 3, None), labels, layer="1")


def test_pictures_of_two_colors() -> None:
    pytest.importorskip("sklearn")
    seen: list[tuple[int, int]] = []
    found = measure(colors_net(), spots(), batch=3, progress=lambda *now: seen.append(now))
    (row,) = found.rows
    assert {"net", "data", "images", "recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8", "nmi"} <= set(row)
    assert (row["images"], row["classes"], row["dimensions"]) == (4, 2, 3)
    assert (row["recall_at_1"], row["nmi"]) == (1, pytest.approx(1))
    assert found.skipped == [("broken.png", "broken")]
    assert seen[-1] == (5, 5)
    # wrongly labeled a b a b: the nearest is never of the same class, nor is one of the two nearest
    row = measure(colors_net(), spots((0, 1, 0, 1))).rows[0]
    assert (row["recall_at_1"], row["recall_at_4"], row["nmi"]) == (0, 1, pytest.approx(0))


def test_length_counts_only_if_asked() -> None:
    """Large and small red, large and small green: by direction they pair by color, by distance by size."""
    pytest.importorskip("sklearn")
    pairs = [((0, 0, 80, 60), (250, 0, 0)), ((0, 0, 4, 4), (250, 0, 0))]
    pairs += [((0, 0, 80, 60), (0, 250, 0)), ((0, 0, 4, 4), (0, 250, 0))]
    samples = [Sample(str(i), i // 2, Spot(*pair)) for i, pair in enumerate(pairs)]
    data = DataSet("sizes", tuple(samples), ("a", "b"))
    assert measure(colors_net(), data).rows[0]["recall_at_1"] == 1
    assert measure(colors_net(), data, raw=True).rows[0]["recall_at_1"] < 1


def test_too_little_to_retrieve() -> None:
    with pytest.raises(fovea.BadChoice, match=r"two classes.*spots has 2 picture\(s\) in 2 class\(es\)"):
        measure(colors_net(), DataSet("spots", spots().samples[1:3], ("a", "b")))


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_vit", "test_efficientnet", "test_convnext", "test_mambaout", "test_nfnet"]
)
def test_pooled_features_are_what_timm_gives_before_the_logits(name: str) -> None:
    net = fovea.load(f"timm/{name}", pretrained=False)
    module: Any = net.module
    own, features = embedding(net)
    assert (features, own.labels) == ("pooled", None)
    batch = torch.rand(2, *blank(net).shape[1:], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = module.forward_head(module.forward_features(batch), pre_logits=True)
        assert torch.allclose(own(batch), expected, atol=1e-6)


def test_of_networks_by_others() -> None:
    for name, width in (("torchvision/squeezenet1_1", 512), ("torchvision/mobilenet_v3_small", 1024)):
        assert embedding(fovea.load(name, pretrained=False))[0](torch.rand(1, 3, 64, 64)).shape == (1, width)


def test_the_network_keeps_its_last_layer() -> None:
    net = colors_net(2)
    before, layer = net(blank(net)), net.module[4]
    own, _ = embedding(net)
    assert own(blank(net)).shape == (1, 3)
    assert own.module[1] is net.module[1]  # shared, not copied
    assert net.module[4] is layer
    assert net.labels == ("0", "1")
    assert torch.equal(net(blank(net)), before)
    assert not any(one._forward_hooks for one in net.module.modules())


def test_output_when_asked_or_without_labels() -> None:
    assert embedding(colors_net())[1] == "output"
    own, features = embedding(colors_net(2), "output")
    assert (features, own(blank(own)).shape) == ("output", (1, 2))
    refused("did you mean 'pooled'", embedding, colors_net(2), "poled")


def test_no_single_last_layer() -> None:
    def two(x: Tensor, one: nn.Module, other: nn.Module) -> Tensor:
        return (one(x.mean((2, 3))) + other(x.mean((2, 3)))) / 2

    net = fovea.wrap(Through(two, nn.Linear(3, 4), nn.Linear(3, 4)), Prepare((8, 8)), labels=4)
    raises(fovea.BadNetwork, "does more after its last layer 'layers.1'", embedding, net)
    net = fovea.wrap(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), Prepare((8, 8)), labels=3)
    raises(fovea.BadNetwork, "has no last linear layer", embedding, net)


def test_boxes_of_a_retrieval_network() -> None:
    seen: list[tuple[int, int]] = []
    found = measure_boxes(colors_net(), spots(), batch=3, progress=lambda *now: seen.append(now))
    assert [row["method"] for row in found.rows] == ["gradcam", "gradcam-abs", "l2caf-oblivious"]
    for row in found.rows:
        assert list(row)[:5] == ["net", "method", "data", "images", "nmi"]
        assert list(row)[5:] == ["recall_at_1", "loc", "gt_known", "threshold", "loc_apart", "gain", "gain_apart"]
        assert row["gain"] == row["gain_apart"] == 0
        assert (row["images"], row["recall_at_1"], row["loc"], row["gt_known"]) == (4, 1, 1, 1)
    assert seen[-1] == (10, 10)
    assert found.skipped == [("broken.png", "broken")]


def test_a_right_box_counts_only_with_a_right_neighbor() -> None:
    three = DataSet("spots", spots().samples[:3], ("a", "b"))  # the third is alone in its class
    (row,) = measure_boxes(colors_net(), three, method=["l2caf-oblivious"]).rows
    assert (row["recall_at_1"], row["gt_known"]) == (pytest.approx(2 / 3), 1)
    assert row["loc"] == pytest.approx(2 / 3)
    moved = [Sample(one.name, one.label, one.source, ((70, 50, 79, 59),)) for one in three.samples[:1]]
    (row,) = measure_boxes(
        colors_net(), DataSet("spots", (*moved, *three.samples[1:]), ("a", "b")), method=["l2caf-oblivious"]
    ).rows
    assert (row["gt_known"], row["loc"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))


def test_no_boxes() -> None:
    bare = [Sample(one.name, one.label, one.source) for one in spots().samples]
    refused("no boxes", measure_boxes, colors_net(), DataSet("bare", tuple(bare), ("a", "b")))


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the pack cub100")
def test_real_birds(lite0: fovea.Network) -> None:
    pytest.importorskip("sklearn")
    row = measure(lite0, open_data("cub100:split=test,labels=50-57,limit=96")).rows[0]
    assert row["dimensions"] == 1280
    assert row["recall_at_1"] > 0.6
    assert row["recall_at_1"] <= row["recall_at_2"] <= row["recall_at_4"] <= row["recall_at_8"]
    assert row["nmi"] > 0.5


def test_several_retrieval_networks_make_a_table() -> None:
    """L2-CAF's Table 3: networks by methods, with the gain over Grad-CAM on the same network."""
    networks = [replace(colors_net(), name=name) for name in ("tl-seed0", "tl-seed1", "np")]
    found = measure_boxes(networks, spots(), method=["gradcam", "l2caf-oblivious"])
    assert [(row["net"], row["seeds"], row["method"]) for row in found.rows] == [
        ("tl", 2, "gradcam"), ("tl", 2, "l2caf-oblivious"), ("np", 1, "gradcam"), ("np", 1, "l2caf-oblivious"),
    ]  # fmt: skip
    assert all(row["gain"] == 0 and row["recall_at_1"] == 1 and row["nmi"] > 0.99 for row in found.rows)
    assert found.rows[2]["loc_change"] == found.rows[2]["gain_change"] == 0
    assert (found.rows[1]["gain_low"], found.rows[1]["gain_apart_high"]) == (0, 0)
    without = measure_boxes(networks, spots(), method=["l2caf-oblivious"]).rows
    assert not any("gain" in row or "gain_change" in row for row in without)
