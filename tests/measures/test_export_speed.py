"""Graphs beside fovea's own maps, and beside the plain graph."""

from pathlib import Path

import pytest
from PIL import Image

import fovea
from made_graphs import noise

pytest.importorskip("onnxruntime")


def test_one_row_per_precision(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i % 2}").mkdir(exist_ok=True)
        Image.fromarray(noise(1, 100, 120, i)[0].numpy()).save(tmp_path / f"{i % 2}/{i}.png")
    options = {"precisions": ["fp32", "fp16"], "rounds": 3, "method": ["cam"]}
    found = fovea.measure("bench export", "timm/test_resnet", tmp_path, **options)
    exact, half = found.rows
    assert [exact["precision"], half["precision"]] == ["fp32", "fp16"]
    assert exact["pictures"] == 2  # every second; the others are for int8
    assert exact["top1_agreement"] == 1
    assert 0 <= exact["map_max"] < 1e-4 * exact["map_peak"] + 1e-6
    assert exact["map_max"] < half["map_max"] < 0.05 * max(half["map_peak"], 1)
    assert half["mb"] < exact["mb"]
    assert exact["x_plain"] > 0


def test_a_wrong_precision_is_refused_first() -> None:
    with pytest.raises(fovea.BadChoice, match="no precision 'fp8'"):
        fovea.measure("bench export", "timm/test_resnet", "nowhere", precisions=["fp8"])
