import pytest
import torch
from torch import Tensor, nn

import fovea
from fovea.heatmaps import Look, aims, score_of
from fovea.heatmaps.methods import find
from fovea.networks import as_found, cut


def test_by_hand(by_hand: fovea.Network, four: Tensor) -> None:
    """w1 = (1 - 2 + 6 + 4) / 10, w2 = (4 - 6 + 24) / 20."""
    seen = fovea.explain(by_hand, four, method="xgradcam", target=[0])
    assert seen.values.flatten().tolist() == pytest.approx([(0.9 + 2 * 1.1) * x for x in (1, 2, 3, 4)])


def test_gradcam_before_average_pooling(pooled: nn.Module, batch: Tensor) -> None:
    """Where the gradient is the same in every cell of a channel."""
    maps = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=["xgradcam", "gradcam"], target="top5")
    assert torch.allclose(maps["xgradcam"].values, maps["gradcam"].values, atol=1e-6)


def test_the_map_sums_to_what_the_score_gets_from_the_cells(stacked: nn.Module, batch: Tensor) -> None:
    """The paper's conservation, before the ReLU: sum_p M_p = sum_kp g_kp A_kp."""
    net = fovea.wrap(stacked, labels=5)
    with as_found(net):
        look = Look(cut(net, batch).open(batch))
        (aim,) = aims([3], net, look.output)
        raw = find("xgradcam").run(look, aim).raw  # N,P
        assert torch.allclose(raw.sum(1), look.slope(*score_of(aim)).sum(1), atol=1e-5)
