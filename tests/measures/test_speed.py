from collections.abc import Callable

import pytest
import torch

import fovea
from checks import refused
from fovea.heatmaps import chosen, usual
from fovea.measures import speed, timing
from fovea.measures.figures import Figures
from fovea.measures.speed import as_map, last_map, peers
from fovea.networks import peak_megabytes


def test_ratios_are_to_the_forward_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])

    def takes(forwards: float) -> Callable[[], None]:
        def call() -> None:
            clock[0] += forwards * (1 + clock[0] / 1000)  # the machine becomes slower and slower

        return call

    times = timing.compare(takes(1), {("a", "same"): takes(1), ("a", "three"): takes(3)}, 5)
    assert times["a", "same"][0] == pytest.approx(1, abs=0.01)
    assert times["a", "three"][0] == pytest.approx(3, abs=0.02)
    assert times["bare", "forward"][0] == 1 < times["bare", "forward"][1]
    slow = {("a", "slow"): takes(30)}
    clock[0] = 0.0
    timing.compare(takes(1), slow, 100)
    assert clock[0] < 250  # a slow one is known well enough after three rounds, and a minute is enough


def test_peak_is_what_is_held_at_once() -> None:
    def call() -> None:
        a = torch.zeros(2**20)  # 4 MB
        b = torch.zeros(2**20)  # and 4 more beside it
        del a, b
        torch.zeros(2**20)

    assert peak_megabytes(call) == pytest.approx(8, abs=0.1)


def test_explaining_takes_no_more_memory_than_a_forward(lite0: fovea.Network) -> None:
    rows = speed.memory_rows(lite0, torch.randn(2, 3, 224, 224), chosen(usual()))
    assert all(row["x_forward_memory"] <= 1.2 for row in rows)


def test_rows_of_any_network() -> None:
    net = fovea.load("timm/test_convnext", pretrained=False)
    rows = speed.time_rows(net, torch.randn(1, 3, 64, 64), 3, chosen(["l2caf", "scorecam"]))
    assert {("bare", "forward"), ("fovea", "l2caf")} <= {(row["library"], row["method"]) for row in rows}
    (slow,) = [row for row in rows if (row["library"], row["method"]) == ("fovea", "scorecam")]
    assert slow["x_forward"] > 10  # a pass per channel


def test_rows_of_peers() -> None:
    pytest.importorskip("pytorch_grad_cam")
    net = fovea.load("timm/test_resnet", pretrained=False)
    rows = speed.time_rows(net, torch.randn(1, 3, 64, 64), 1, chosen(["gradcam++", "eigencam", "ablationcam"]))
    found = {(row["library"], row["method"]) for row in rows}
    assert {("grad-cam", name) for name in ("gradcam++", "eigencam", "ablationcam")} <= found
    assert ("torchcam", "gradcam++") in found


def test_where_peers_look() -> None:
    pixels = torch.randn(1, 3, 64, 64)
    for name, part in (("test_resnet", "layer4"), ("test_efficientnet", "bn2"), ("test_convnext", "stages")):
        module = fovea.load(f"timm/{name}", pretrained=False).module
        assert last_map(module, pixels) is getattr(module, part)
    vit = fovea.load("timm/test_vit", pretrained=False).module
    pixels = torch.randn(2, 3, 160, 160)
    assert last_map(vit, pixels) is None
    assert set(peers(vit, pixels, ["gradcam", "cam"])) <= {("grad-cam", "gradcam")}
    tokens = torch.arange(2 * 5 * 3.0).view(2, 5, 3)  # a class token and 2 x 2 cells
    assert torch.equal(as_map(tokens, 1)[1, :, 1, 0], tokens[1, 3])


def test_a_peer_that_fails_says_so_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError("no bfloat16\nand more")

    monkeypatch.setattr(speed, "peers", lambda *given: {("torchcam", "gradcam"): fails})
    net = fovea.load("timm/test_resnet", pretrained=False)
    *_, row = speed.time_rows(net, torch.randn(1, 3, 64, 64), 1, chosen(["cam"]))
    assert (row["note"], row["x_forward"]) == ("fails: ValueError: no bfloat16", None)


@pytest.fixture(scope="module")
def found() -> Figures:
    options = {"method": ["cam"], "dtype": ["fp32", "bf16"]}
    return fovea.measure("bench explain", "timm/test_resnet", batches=[1, 2], rounds=1, **options)


def test_every_precision_and_batch_has_its_rows(found: Figures) -> None:
    rows = [row for row in found.rows if (row["library"], row["method"]) == ("fovea", "cam")]
    assert [(row["precision"], row["batch"]) for row in rows] == [("fp32", 1), ("fp32", 2), ("bf16", 1), ("bf16", 2)]
    for row in rows:
        assert row["heatmaps_per_s"] * row["ms_per_picture"] == pytest.approx(1000, rel=0.01)
    refused("no precision 'fp23'; did you mean 'fp32'", fovea.measure, "bench explain", "timm/test_vit", dtype=["fp23"])


def test_time_against_batch(found: Figures) -> None:
    figure = speed.draw(found)
    assert [axis.get_title() for axis in figure.axes[:2]] == ["test_resnet, fp32", "test_resnet, bf16"]
    assert {axis.get_xscale() + axis.get_yscale() for axis in figure.axes} == {"loglog"}
    lines = {line.get_label(): list(line.get_xdata()) for line in figure.axes[0].lines}
    assert lines == {"bare forward": [1, 2], "fovea cam": [1, 2]}


def test_an_iterated_head_stands_beside_the_papers_recipe() -> None:
    found = fovea.measure("bench explain", "timm/test_vit", batches=[1], rounds=1, method=["cam", "l2caf"], adam=60)
    assert "cam" not in {row["method"] for row in found.rows}  # which does not apply
    ours, recipe, long = [row for row in found.rows if "loss" in row]
    assert ours["iterations"] > 0
    assert (recipe["method"], long["iterations"]) == ("l2caf: paper's recipe on the head", 60)
    for row in (recipe, long):
        assert row["worst_excess"] >= (ours["loss"] - row["loss"]) / abs(row["loss"]) - 1e-3  # the worst is no mean


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    found = fovea.measure("bench explain", "timm/test_resnet", batches=[2], rounds=1, method=["cam"], device="cuda")
    assert found.settings["device"] == "cuda"
    assert all(row["peak_mb"] > 0 for row in found.rows if "peak_mb" in row)
