import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fovea
from fovea.heatmaps.methods.eigencam import EigenCAM


def test_by_hand(by_hand: fovea.Network, four: Tensor) -> None:
    """All cells lie on the line along (1, 2), of length 5 ** 0.5; the middle is at 2.5."""
    seen = fovea.explain(by_hand, four, method="eigencam", target=[0, 1])
    assert seen.targets == (("output",),)
    assert seen.values.flatten().tolist() == pytest.approx([0, 0, 0.5 * 5**0.5, 1.5 * 5**0.5], abs=1e-5)
    whole = fovea.explain(by_hand, four, method=EigenCAM(centered=False))
    assert whole.values.flatten().tolist() == pytest.approx([x * 5**0.5 for x in (1, 2, 3, 4)], rel=1e-5)


@pytest.mark.parametrize("centered", [True, False])
def test_numpy_s_decomposition(centered: bool, pooled: nn.Module, batch: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=EigenCAM(centered))
    for values, features in zip(seen.values[:, 0], pooled.relu(pooled.trunk(batch)).detach().numpy(), strict=True):
        cells = features.reshape(len(features), -1).T  # P,k
        cells = cells - cells.mean(0) if centered else cells
        along = cells @ np.linalg.svd(cells)[2][0]
        assert min(np.abs(values.flatten().numpy() - np.maximum(sign * along, 0)).max() for sign in (1, -1)) < 1e-5


def test_it_points_to_where_the_features_are_strong(pooled: nn.Module, batch: Tensor) -> None:
    """Also of a network whose features are all turned around, whose principal component is the same."""
    strength = pooled.relu(pooled.trunk(batch)).norm(dim=1)  # N,h,w
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method="eigencam").values[:, 0]
    assert bool(((strength * seen).sum((1, 2)) > (strength.mean((1, 2)) * seen.sum((1, 2)))).all())


def test_features_that_are_no_numbers_have_no_map(pooled: nn.Module, batch: Tensor) -> None:
    with torch.no_grad():
        pooled.trunk[0].weight[0, 0, 0, 0] = torch.nan
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method="eigencam")
    assert "not numbers" in str(seen.diagnosis[0][0])
