import torch
from torch import Tensor, nn

import fovea


def test_by_hand(by_hand: fovea.Network, four: Tensor) -> None:
    """g1 A1 + g2 A2: 1 + 0, -2 + 4, 6 - 6, 4 + 24, which sum to the score."""
    seen = fovea.explain(by_hand, four, method="hirescam", target=[0])
    assert seen.values.flatten().tolist() == [1, 2, 0, 28]
    assert seen.values.sum().item() == by_hand(four)[0, 0].item() == 31


def test_cam_before_average_pooling(pooled: nn.Module, batch: Tensor) -> None:
    maps = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=["hirescam", "cam"], target="top5")
    assert torch.allclose(maps["hirescam"].values * 36, maps["cam"].values.relu(), atol=1e-5)
