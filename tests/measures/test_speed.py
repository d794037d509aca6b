import time

import pytest
import torch

import fovea
from fovea.heatmaps import chosen, usual
from fovea.measures import speed, timing
from fovea.networks import peak_megabytes


def test_ratios_are_to_the_forward_beside_them() -> None:
    def forward() -> None:
        time.sleep(0.004)

    times = timing.compare(forward, {("a", "same"): forward, ("a", "three"): lambda: time.sleep(0.012)}, 5)
    assert times["a", "same"][0] == pytest.approx(1, abs=0.3)
    assert times["a", "three"][0] == pytest.approx(3, abs=0.8)


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
    (slow,) = [row for row in rows if row["method"] == "scorecam"]
    assert slow["x_forward"] > 10  # a pass per channel


def test_rows_of_peers() -> None:
    pytest.importorskip("pytorch_grad_cam")
    net = fovea.load("timm/test_resnet", pretrained=False)
    rows = speed.time_rows(net, torch.randn(1, 3, 64, 64), 1, chosen(["gradcam++", "eigencam", "ablationcam"]))
    found = {(row["library"], row["method"]) for row in rows}
    assert {("grad-cam", name) for name in ("gradcam++", "eigencam", "ablationcam")} <= found
    assert ("torchcam", "gradcam++") in found
