import pytest
import torch

import fovea
from checks import refused
from fovea.networks import macs


def test_glimpses_against_the_full_picture() -> None:
    """256 x 256 read by 32 x 32: a few windows against 64 times as many pixels as one of them has."""
    options = {"levels": 3, "base": 32, "side": 256}
    torch.manual_seed(0)
    reads = fovea.load("tnet/test_efficientnet", pretrained=False, classes=5, options=options)
    whole = fovea.load("timm/test_efficientnet", pretrained=False, classes=5)
    seen: list[tuple[int, int]] = []
    found = fovea.measure(
        "bench zoom", reads, against=whole, size=256, glimpses=(2,), batches=(1, 3), rounds=2,
        progress=lambda *now: seen.append(now),
    )  # fmt: skip
    assert [row["batch"] for row in found.rows] == [1, 3]
    assert seen == [(1, 2), (2, 2)]
    for row in found.rows:
        assert (row["net"], row["against"], row["glimpses"]) == ("tnet/test_efficientnet", "timm/test_efficientnet", 2)
        assert (row["macs"], row["macs_against"]) == (
            macs(reads, torch.zeros(1, 3, 256, 256), 2),
            macs(whole, torch.zeros(1, 3, 256, 256)),
        )
        assert row["x_macs"] == pytest.approx(row["macs"] / row["macs_against"], abs=1e-3)
        assert row["x_memory"] == pytest.approx(row["peak_mb"] / row["peak_mb_against"], rel=0.1)
        assert row["x_macs"] < 0.1
        assert row["x_memory"] < 0.5
        assert row["ms_per_picture"] > 0
        assert row["x_time"] > 0


def test_wrong_choices() -> None:
    whole = fovea.load("timm/test_resnet", pretrained=False, classes=5)
    refused("name one that reads glimpses, as tnet-b0", fovea.measure, "bench zoom", whole, against=whole)
    reads = fovea.load("tnet/test_efficientnet", pretrained=False, options={"base": 32})
    refused("name one size of batch or several", fovea.measure, "bench zoom", reads, against=whole, batches=())


def test_zooms_that_end_in_a_budget() -> None:
    reads = fovea.load("tnet/test_efficientnet", pretrained=False, classes=5, options={"base": 32, "levels": 2})
    rows = [fovea.measure("bench zoom", reads, size=64, budget_ms=ms, rounds=1).rows[0] for ms in (0, 1e7)]
    assert [(row["budget_ms"], row["zooms"], row["glimpses"]) for row in rows] == [(0, 20, 0), (1e7, 20, 9)]
    assert rows[1]["in_time"] == 1
    assert all(0 < row["ms_median"] <= row["ms_95"] <= row["ms_most"] for row in rows)
