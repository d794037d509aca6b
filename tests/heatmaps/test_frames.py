"""One filter a frame, the others passing unfiltered, N and T kept (L2-CAF 4.3)."""

import pytest
import torch
from torch import Tensor, nn

import fovea
from conftest import Through, seeded
from fovea.heatmaps import names
from fovea.heatmaps.methods import find


class Clip(nn.Module):
    """CNN over frames, then a recurrent layer; `fold` says how frames reach the CNN."""

    def __init__(self, fold: str, recurrent: bool = True) -> None:
        super().__init__()
        self.fold = fold
        self.cnn = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 6, 3, 2, 1), nn.ReLU())
        self.rnn = nn.GRU(6, 8, batch_first=True) if recurrent else None
        self.fc = nn.Linear(8 if recurrent else 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        n, t = x.shape[:2]
        if self.fold == "loop":
            pooled = torch.stack([self.cnn(x[:, i]).mean((2, 3)) for i in range(t)], dim=1)
        elif self.fold == "time first":
            pooled = self.cnn(x.transpose(0, 1).flatten(0, 1)).mean((2, 3)).unflatten(0, (t, n)).transpose(0, 1)
        else:
            pooled = self.cnn(x.flatten(0, 1)).mean((2, 3)).unflatten(0, (n, t))
        return self.fc(self.rnn(pooled)[0][:, -1] if self.rnn is not None else pooled.mean(1))


REFUSED = ("cam", "l2caf-sum", "l2caf-signed", "deeplift", "rollout", "rollout-gradient")  # not of a recurrent layer
FOLDS = ("batch first", "time first", "loop")


@pytest.fixture
def clips() -> Tensor:
    return torch.randn(2, 3, 3, 16, 16, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("method", [name for name in names() if name not in REFUSED])
def test_maps_keep_pictures_and_frames(fold: str, method: str, clips: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(seeded(Clip, fold), labels=4), clips, method=method, target=[1, 2])
    assert seen.frames
    targets = 1 if find(method).oblivious else 2
    assert tuple(seen.values.shape) == (2, 3, targets, *seen.grid)
    assert seen.boxes.shape == (2, 3, targets, 4)
    if method.startswith("l2caf"):
        assert seen.values.flatten(3).norm(dim=3).flatten().tolist() == pytest.approx([1.0] * 6 * targets, abs=1e-4)


@pytest.mark.parametrize("method", ["gradcam-abs", "gradcam++", "l2caf", "scorecam", "ablationcam"])
def test_how_frames_are_folded_does_not_matter(method: str, clips: Tensor) -> None:
    maps = [
        fovea.explain(fovea.wrap(seeded(Clip, fold), labels=4), clips, method=method, target=[0]).values
        for fold in FOLDS
    ]
    for other in maps[1:]:
        assert torch.allclose(maps[0], other, atol=2e-3)


def test_a_frame_alone_moves_only_its_own_map(clips: Tensor) -> None:
    """Without a recurrent layer a frame's map is its own: editing another frame leaves it as it was."""
    net = fovea.wrap(seeded(Clip, "batch first", False), labels=4)
    before = fovea.explain(net, clips, target=[0]).values
    edited = clips.clone()
    edited[:, 2] += 1
    after = fovea.explain(net, edited, target=[0]).values
    assert torch.allclose(before[:, :2], after[:, :2], atol=1e-5)
    assert not torch.allclose(before[:, 2], after[:, 2], atol=1e-3)


def test_without_recurrence_every_frame_is_exact(clips: Tensor) -> None:
    for fold in FOLDS:
        seen = fovea.explain(
            fovea.wrap(seeded(Clip, fold, False), labels=4), clips, method=["l2caf", "l2caf-oblivious"]
        )
        assert [one.solver for one in seen.values()] == ["exact", "exact"]


def test_gradients_of_each_frame_by_hand(clips: Tensor) -> None:
    module = seeded(Clip, "batch first")
    seen = fovea.explain(fovea.wrap(module, labels=4), clips, method="gradcam", target=[3])
    features = module.cnn(clips.flatten(0, 1)).detach().requires_grad_()
    out = module.fc(module.rnn(features.mean((2, 3)).unflatten(0, (2, 3)))[0][:, -1])
    (gradient,) = torch.autograd.grad(out[:, 3].sum(), features)
    wanted = (gradient.mean((2, 3), keepdim=True) * features).sum(1).relu().unflatten(0, (2, 3))
    assert torch.allclose(seen.values[:, :, 0], wanted, atol=1e-6)


def test_a_frames_filter_is_the_best_with_the_others_open(clips: Tensor) -> None:
    """No random filter on one frame, the others untouched, beats the one found for that frame."""
    module = seeded(Clip, "batch first")
    seen = fovea.explain(
        fovea.wrap(module, embedding=True), clips, method=fovea.L2CAF(descent=fovea.Descent(tolerance=1e-8))
    )
    with torch.no_grad():
        features, wanted = module.cnn(clips.flatten(0, 1)).unflatten(0, (2, 3)), module(clips)
        generator = torch.Generator().manual_seed(0)
        for frame in range(3):
            for _ in range(50):
                f = torch.randn(4, 4, generator=generator).abs()
                other = features.clone()
                other[:, frame] *= f / f.norm()
                loss = (module.fc(module.rnn(other.mean((3, 4)))[0][:, -1]) - wanted).square().sum(1)
                assert bool((loss >= seen.loss[:, frame, 0] - 1e-5).all())


def test_unrolled_loop_with_a_function(clips: Tensor) -> None:
    """Three calls that a trace unrolls are three frames, not the last one."""

    def unrolled(x: Tensor, conv: nn.Module, fc: nn.Module) -> Tensor:
        return fc(sum(torch.relu(conv(x[:, i])).mean((2, 3)) for i in range(3)))

    module = Through(unrolled, nn.Conv2d(3, 6, 3, 4, 1), nn.Linear(6, 4)).eval()
    assert tuple(fovea.explain(fovea.wrap(module, labels=4), clips).values.shape) == (2, 3, 1, 4, 4)


@pytest.mark.parametrize("fold", FOLDS)
def test_differentiable_frames_reach_the_trunk(fold: str, clips: Tensor) -> None:
    module = seeded(Clip, fold)
    fovea.explain(
        fovea.wrap(module, labels=4), clips, method="gradcam-abs", differentiable=True
    ).values.sum().backward()
    gradient = module.cnn[0].weight.grad
    assert float(gradient.abs().sum()) > 0


def test_volumes_are_not_frames() -> None:
    module = nn.Sequential(
        nn.Conv3d(1, 4, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    seen = fovea.explain(fovea.wrap(module, labels=3), torch.randn(2, 1, 8, 8, 8))
    assert not seen.frames
    assert tuple(seen.values.shape) == (2, 1, 4, 4, 4)


def test_recurrent_layer_on_cuda_in_eval_mode(clips: Tensor) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    module = seeded(Clip, "batch first")
    here = fovea.explain(fovea.wrap(module, labels=4), clips, method="gradcam").values
    there = fovea.explain(fovea.wrap(module.cuda(), labels=4), clips, method=["gradcam", "l2caf"])
    assert torch.allclose(here, there["gradcam"].values.cpu(), atol=1e-4)
    assert tuple(there["l2caf"].values.shape) == (2, 3, 1, 4, 4)
