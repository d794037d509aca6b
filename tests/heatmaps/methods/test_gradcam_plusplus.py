import pytest
from torch import Tensor

import fovea


def test_by_hand(by_hand: fovea.Network, four: Tensor) -> None:
    """sum A1 = 10, sum A2 = 20: w1 = 1/12 + 2/22 + 1/12, w2 = 1/22 + 3/62, and A1 + 2 A1 w2 / w1 of each."""
    seen = fovea.explain(by_hand, four, method="gradcam++", target=[0])
    w1, w2 = 1 / 12 + 2 / 22 + 1 / 12, 1 / 22 + 3 / 62
    assert seen.values.flatten().tolist() == pytest.approx([(w1 + 2 * w2) * x for x in (1, 2, 3, 4)])
