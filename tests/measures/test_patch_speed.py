from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea.data import open_data
from fovea.measures import patch_speed
from fovea.patches.localize import choice


def test_both_ways_are_timed_and_counted(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "a").mkdir()
    for i in range(3):
        Image.fromarray(random.integers(0, 256, (120, 120, 3), dtype=np.uint8)).save(tmp_path / "a" / f"{i}.png")
    torch.manual_seed(0)
    net = fovea.load("anchornet", pretrained=False, classes=2, options={"side": 120})
    net.name = "mine"
    found = patch_speed.measure(net, ["timm/test_resnet"], open_data(tmp_path), choice(1, None, None), 2, 1)
    (row,) = found.rows
    assert (row["net"], row["localizer"], row["pictures"], row["patches"]) == ("timm/test_resnet", "mine", 3, 1.0)
    assert 0 < row["macs_ratio"] < 1  # one patch of at most 111 x 111 of 120 x 120
    assert row["macs_ratio_all"] > row["macs_ratio"]
    assert row["ratio"] > row["ratio_patches"] > 0
    with pytest.raises(fovea.BadChoice, match="at least one round"):
        patch_speed.measure(net, [], open_data(tmp_path))
