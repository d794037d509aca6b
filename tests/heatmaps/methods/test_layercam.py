from torch import Tensor

import fovea


def test_by_hand(by_hand: fovea.Network, four: Tensor) -> None:
    """Positive gradients alone: 1 + 0, 0 + 4, 6 + 0, 4 + 24."""
    seen = fovea.explain(by_hand, four, method="layercam", target=[0])
    assert seen.values.flatten().tolist() == [1, 4, 6, 28]
