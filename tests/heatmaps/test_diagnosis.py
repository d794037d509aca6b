import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from conftest import Pooled


def test_good_maps_have_none(pooled: nn.Module, batch: Tensor) -> None:
    assert fovea.explain(fovea.wrap(pooled, labels=5), batch).diagnosis == ((None,),) * 3


def test_all_negative(pooled: Pooled, batch: Tensor) -> None:
    pooled.fc.weight.data[2] = -1
    (words,) = fovea.explain(fovea.wrap(pooled, labels=5), batch[0], method="gradcam", target=[2]).diagnosis[0]
    assert "contribution is negative" in words


def test_saturated(pooled: Pooled, batch: Tensor) -> None:
    pooled.fc.weight.data *= 1e6
    net = fovea.wrap(pooled, labels=5)

    def probability(out: Tensor) -> Tensor:
        return out.softmax(1).amax(1)

    (words,) = fovea.explain(net, batch[0], method="gradcam", target=probability).diagnosis[0]
    assert "saturated" in words


@pytest.mark.parametrize("method", ["gradcam", "cam", "l2caf", "l2caf-oblivious"])
def test_not_a_number_names_the_weights(method: str, pooled: Pooled, batch: Tensor) -> None:
    pooled.trunk[2].weight.data[0, 0, 0, 0] = torch.nan
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=method)
    assert bool(seen.values.isfinite().all())
    words = seen.diagnosis[0][0]
    assert "not numbers" in words
    assert "trunk.2.weight" in words


@pytest.mark.parametrize("method", ["l2caf", "l2caf-oblivious", "gradcam", "cam"])
def test_one_bad_picture_does_not_spoil_the_others(method: str, pooled: Pooled, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    good = fovea.explain(net, batch, method=method, target=[1])
    spoiled = batch.clone()
    spoiled[1] = torch.nan
    seen = fovea.explain(net, spoiled, method=method, target=[1])
    assert torch.allclose(seen.values[[0, 2]], good.values[[0, 2]], atol=1e-6)
    assert seen.diagnosis[0] == seen.diagnosis[2] == (None,)
    assert "check the picture's values" in str(seen.diagnosis[1][0])


def test_saturated_l2caf_says_so(pooled: Pooled, batch: Tensor) -> None:
    pooled.fc.weight.data.zero_()
    words = fovea.explain(fovea.wrap(pooled, labels=5), batch[0], method="l2caf", layer="relu").diagnosis[0][0]
    assert "its gradient is zero" in str(words)


def test_one_cell(batch: Tensor) -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 11), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    net = fovea.wrap(module, labels=3)
    refused("no spatial extent", fovea.explain, net, batch, layer="2")
    assert fovea.explain(net, batch).grid == (11, 11)


def test_dead_features(batch: Tensor) -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    module[0].bias.data -= 100
    words = fovea.explain(fovea.wrap(module, labels=3), batch, method="gradcam", layer="1").diagnosis[0][0]
    assert "features are all zero" in words
