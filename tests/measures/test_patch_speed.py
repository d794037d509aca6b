from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea


def test_both_ways_are_timed_and_counted(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "a").mkdir()
    for i in range(3):
        Image.fromarray(random.integers(0, 256, (120, 120, 3), dtype=np.uint8)).save(tmp_path / "a" / f"{i}.png")
    torch.manual_seed(0)
    net = fovea.load("anchornet", pretrained=False, classes=2, options={"side": 120})
    net.name = "mine"
    found = fovea.measure(
        "bench patches", "timm/test_resnet", str(tmp_path), localizer=net, overlap=0.05, share=0.01, batch=2, rounds=1
    )
    (row,) = found.rows
    assert (row["net"], row["localizer"], row["pictures"], row["patches"]) == ("timm/test_resnet", "mine", 3, 1.0)
    assert 0 < row["macs_ratio"] < 1  # one patch of at most 111 x 111 of 120 x 120
    assert row["macs_ratio_all"] > row["macs_ratio"]
    assert row["ratio"] > row["ratio_patches"] > 0
    with pytest.raises(fovea.BadChoice, match="rounds is 1 to 10,000"):
        fovea.measure("bench patches", "timm/test_resnet", str(tmp_path), localizer=net, rounds=0)
