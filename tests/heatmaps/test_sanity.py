from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fovea
from conftest import Through
from fovea.heatmaps import last_to_run, randomized, rank_correlation, ssim


def test_measures() -> None:
    a = np.arange(49.0).reshape(7, 7)
    assert rank_correlation(a, 3 * a + 1) == pytest.approx(1)
    assert rank_correlation(a, -a) == pytest.approx(-1)
    assert rank_correlation(a, np.ones((7, 7))) == 0
    assert ssim(a, 2 * a) == pytest.approx(1)
    assert ssim(a, a[::-1].copy()) < 0.5


def test_only_the_logits_layer_or_everything(pooled: nn.Module) -> None:
    logits, everything = randomized(pooled, "logits", 0), randomized(pooled, "all layers", 0)
    assert torch.equal(logits.trunk[0].weight, pooled.trunk[0].weight)
    assert not torch.equal(logits.fc.weight, pooled.fc.weight)
    assert not torch.equal(everything.trunk[0].weight, pooled.trunk[0].weight)
    assert torch.equal(randomized(pooled, "logits", 0).fc.weight, logits.fc.weight)
    assert not torch.equal(randomized(pooled, "logits", 1).fc.weight, logits.fc.weight)


def test_the_logits_layer_is_the_last_to_run(batch: Tensor) -> None:
    fc, conv = nn.Linear(4, 3), nn.Conv2d(3, 4, 3, 4)
    backwards = Through(lambda x, fc, conv: fc(torch.relu(conv(x)).mean((2, 3))), fc, conv)
    assert last_to_run(fovea.wrap(backwards.eval(), labels=3), batch) == "layers.0"


def test_trained_network_passes(lite0: fovea.Network, photographs: Path) -> None:
    found = fovea.sanity(lite0, [photographs / "chelsea.png", photographs / "coffee.png"])
    assert len(found.rows) == 8
    assert found.passed
    assert abs(found.mean("logits")) < 0.8
    assert "depends on the weights" in str(found)
    assert found.figure().width > found.figure().height


def test_a_method_that_ignores_the_weights_fails(batch: Tensor, pooled: nn.Module) -> None:
    class Edges:
        name = "edges"

        def __call__(self, look: object, aim: object) -> Tensor:
            return torch.arange(36.0).repeat(3, 1)

    found = fovea.sanity(fovea.wrap(pooled, labels=5), batch, Edges())
    assert not found.passed
    assert "does NOT depend" in str(found)
