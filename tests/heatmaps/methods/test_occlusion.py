import pytest
import torch
from captum.attr import Occlusion as Captum
from torch import Tensor, nn

import fovea
from fovea.heatmaps.methods.occlusion import Occlusion


@pytest.mark.parametrize(("window", "stride"), [(8, 4), (7, 3), (5, 5), (24, 1)])
def test_is_captum_s(window: int, stride: int, pooled: nn.Module, batch: Tensor) -> None:
    method = f"occlusion:window={window},stride={stride}"
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=method, target=[2])
    module = nn.Sequential(pooled, nn.Softmax(1))
    wanted = Captum(module).attribute(batch, (3, window, window), (3, stride, stride), target=2)
    assert seen.grid == (24, 24)
    assert torch.allclose(seen.values[:, 0], wanted[:, 0], atol=1e-6)


def test_the_window_that_hides_all_evidence_counts_most() -> None:
    """A network that adds up one corner."""

    class Corner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x)[:, :, :8, 16:].mean((2, 3))

    net = fovea.wrap(Corner(), embedding=True)
    net.module.conv.weight.data.fill_(1)
    seen = fovea.explain(net, torch.ones(1, 1, 24, 24), method=Occlusion(8, 8), target=lambda out: out[:, 0])
    assert seen.values[0, 0, :8, 16:].tolist() == [[1.0] * 8] * 8
    assert float(seen.values.sum()) == 64
    assert seen.boxes[0, 0].tolist() == [16, 0, 24, 8]


def test_a_small_input_has_small_windows() -> None:
    assert len(list(Occlusion().windows((224, 224)))) == 11 * 11
    assert len(list(Occlusion().windows((3,)))) == 3
