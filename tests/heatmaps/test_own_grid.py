"""A map on a grid of its own, beside maps on the cells of the cut."""

from pathlib import Path

import numpy as np
from torch import nn

import fovea
from fovea.basics import iou
from fovea.heatmaps import Aim, Finding, Look
from fovea.pictures import Prepare
from fovea.results import read


def brightness(look: Look, aim: Aim) -> Finding:
    values = look.input.mean(1).flatten(1)
    return Finding(values, values, grid=tuple(look.input.shape[2:]))


def test_it_lies_on_the_user_s_pixels(pooled: nn.Module, tmp_path: Path) -> None:
    picture = np.zeros((90, 180, 3), np.uint8)
    picture[30:60, 100:150] = 255  # all of the evidence
    net = fovea.wrap(pooled, Prepare((72, 144), mean=(0, 0, 0), std=(1, 1, 1)), labels=5)
    seen = fovea.explain(net, [picture] * 2, method=[brightness, "gradcam"], target=[1, 2])
    pixels = seen["brightness"]
    assert (pixels.grid, pixels.layer, seen["gradcam"].grid) == ((72, 144), "input", (18, 36))
    assert pixels.values.shape == (2, 2, 72, 144)
    assert pixels.pixels(1, 1)[35:55, 105:145].min() > 0.9
    assert iou(pixels.boxes_at(0.5)[0, 0], [(100, 30, 150, 60)])[0, 0] > 0.8
    assert pixels.diagnosis == ((None, None),) * 2
    pixels.save(tmp_path, files=True)
    row = read(tmp_path).results[0]
    assert np.allclose(np.load(tmp_path / row["files"]["maps"][0]["values"]), pixels.map())
    dark = fovea.explain(net, np.zeros((90, 180, 3), np.uint8), method=brightness)
    assert "does not change when the cells change" in dark.diagnosis[0][0]
