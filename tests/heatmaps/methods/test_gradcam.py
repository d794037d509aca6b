import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import raises
from conftest import Pooled
from fovea.heatmaps import names
from fovea.heatmaps.methods import find

ANYWHERE = [name for name in names() if find(name).on != "attention"]


def by_hand(module: Pooled, batch: Tensor, score: Tensor | None, absolute: bool = False) -> Tensor:
    """Eqs. 4 to 7 written out with loops, on the layer's own output."""
    features = module.relu(module.trunk(batch)).detach().requires_grad_()
    output = module.fc(features.mean((2, 3)))
    total = output.sum() if score is None else (output * score).sum()
    (gradient,) = torch.autograd.grad(total, features)
    maps = []
    for a, g in zip(features.detach(), gradient, strict=True):
        weighted = sum(g[k].sum() / g[k].numel() * a[k] for k in range(len(a)))
        maps.append(weighted.abs() if absolute else weighted.clamp(min=0))
    return torch.stack(maps)


@pytest.mark.parametrize("absolute", [False, True])
def test_classes(absolute: bool, pooled: Pooled, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    seen = fovea.explain(net, batch, method=fovea.GradCAM(absolute), target=[0, 3])
    for k, index in enumerate((0, 3)):
        score = torch.zeros(5)
        score[index] = 1
        assert torch.allclose(seen.values[:, k], by_hand(pooled, batch, score, absolute), atol=1e-6)


@pytest.mark.parametrize("absolute", [False, True])
def test_embedding(absolute: bool, pooled: Pooled, batch: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(pooled, embedding=True), batch, method=fovea.GradCAM(absolute))
    assert torch.allclose(seen.values[:, 0], by_hand(pooled, batch, None, absolute), atol=1e-6)


def test_rectified_cam_is_gradcam_with_pooling(pooled: Pooled, batch: Tensor) -> None:
    """With global average pooling the two are the same map (Grad-CAM's is rectified and divided by the cells)."""
    maps = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=["cam", "gradcam"], target="top5")
    assert torch.allclose(maps["cam"].values.relu(), maps["gradcam"].values * 36, atol=1e-4)


def test_cam_is_the_weighted_sum_of_the_channels(pooled: Pooled, batch: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method="cam", target=[1])
    features = pooled.relu(pooled.trunk(batch))
    assert torch.allclose(seen.values[:, 0], torch.einsum("nkhw,k->nhw", features, pooled.fc.weight[1]), atol=1e-5)


def test_cam_refuses_a_head_that_is_not_pooling(stacked: nn.Module, batch: Tensor) -> None:
    raises(fovea.BadNetwork, "cam needs a head", fovea.explain, fovea.wrap(stacked, labels=5), batch, method="cam")


@pytest.mark.parametrize("name", ANYWHERE)
def test_every_method_on_any_number_of_axes(name: str) -> None:
    """1-D, 2-D and 3-D, not square."""
    torch.manual_seed(0)
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    for axes, space in ((1, (40,)), (2, (24, 16)), (3, (8, 12, 16))):
        pool = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[axes](1)
        module = nn.Sequential(conv[axes](2, 4, 3, 2, 1), nn.ReLU(), pool, nn.Flatten(), nn.Linear(4, 3)).eval()
        seen = fovea.explain(fovea.wrap(module, labels=3), torch.randn(2, 2, *space), method=name, target="top2")
        targets = 1 if find(name).oblivious else 2
        step = 1 if find(name).on == "pixels" else 2
        assert tuple(seen.values.shape) == (2, targets, *(s // step for s in space))
        assert np.isfinite(seen.numpy()).all()
        assert float(seen.values.abs().max()) > 0
        if name.startswith("l2caf"):
            assert seen.values.flatten(2).norm(dim=2).flatten().tolist() == pytest.approx([1.0] * 2 * targets, abs=1e-4)
        assert seen.boxes.shape == (2, targets, 2 * axes)


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_batch_gives_what_each_picture_gives_alone(name: str, pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    together = fovea.explain(net, batch, method=name, batch=2)
    alone = torch.cat([fovea.explain(net, one, method=name).values for one in batch])
    assert torch.allclose(together.values, alone, atol=1e-5)


CAMS = [name for name in names() if "cam" in name]


@pytest.mark.parametrize("name", CAMS)
def test_a_pair_is_a_score_of_each_picture(name: str, pooled: nn.Module, batch: Tensor) -> None:
    net, two = fovea.wrap(pooled, embedding=True), batch[:2]
    with torch.no_grad():
        partner = pooled(two).flip(0)
    direction = partner / partner.norm(dim=1, keepdim=True)
    seen = fovea.explain(net, two, method=name, target="pair")
    wanted = fovea.explain(net, two, method=name, target=lambda out: (out * direction).sum(1))
    assert torch.allclose(seen.values, wanted.values, atol=1e-6)


class ChannelsLast(nn.Module):
    def __init__(self, last: bool) -> None:
        super().__init__()
        self.conv, self.fc, self.last = nn.Conv2d(3, 5, 4, 4), nn.Linear(5, 3), last

    def forward(self, x: Tensor) -> Tensor:
        features = self.conv(x).relu()  # N,5,6,12
        if self.last:
            return self.fc(features.permute(0, 2, 3, 1).contiguous().square().mean((1, 2)))
        return self.fc(features.square().mean((2, 3)))


@pytest.mark.parametrize("name", [name for name in CAMS if name != "cam"])
def test_where_the_channels_are_does_not_matter(name: str) -> None:
    torch.manual_seed(0)
    first, last, x = ChannelsLast(False).eval(), ChannelsLast(True).eval(), torch.randn(2, 3, 24, 48)
    last.load_state_dict(first.state_dict())
    maps = [fovea.explain(fovea.wrap(module, labels=3), x, method=name, target=1) for module in (first, last)]
    assert maps[0].grid == maps[1].grid == (6, 12)
    assert torch.allclose(maps[0].values, maps[1].values, atol=1e-6)
