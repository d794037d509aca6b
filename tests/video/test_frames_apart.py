"""Each frame has a filter of its own, found while the other frames pass unfiltered (L2-CAF 4.3)."""

import pytest
import torch
from torch import Tensor, nn

import fovea
from conftest import seeded
from fovea.heatmaps import Descent, Look, iterative

STEPS, FRAMES = 25, 3
METHOD = fovea.L2CAF(solver="iterative", descent=Descent(tolerance=0.0, most=STEPS, start="uniform", seed=7))


class Recurrent(nn.Module):
    """A CNN on every frame, then a GRU over them: every frame's features reach the output."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 6, 3, 2, 1), nn.ReLU())
        self.rnn, self.fc = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 4)

    def after(self, features: Tensor) -> Tensor:
        """What follows the CNN: N,T,k,h,w to N,4."""
        return self.fc(self.rnn(features.mean((3, 4)))[0][:, -1])

    def forward(self, x: Tensor) -> Tensor:
        n, t = x.shape[:2]
        return self.after(self.cnn(x.flatten(0, 1)).unflatten(0, (n, t)))


@pytest.fixture
def module() -> Recurrent:
    found = seeded(Recurrent)
    assert isinstance(found, Recurrent)
    return found


@pytest.fixture
def clips() -> Tensor:
    return torch.randn(2, FRAMES, 3, 16, 16, generator=torch.Generator().manual_seed(5))


def maps(module: nn.Module, clips: Tensor) -> Tensor:
    return fovea.explain(fovea.wrap(module, embedding=True), clips, method=METHOD, layer="cnn").values[
        :, :, 0
    ]  # N,T,4,4


@pytest.mark.parametrize("frame", range(FRAMES))
def test_a_frames_map_is_found_with_that_frame_alone(frame: int, module: Recurrent, clips: Tensor) -> None:
    """Adam by hand on f_t, no other filter anywhere: the map is that of the joint explanation."""
    with torch.no_grad():
        features, wanted = module.cnn(clips.flatten(0, 1)).unflatten(0, (2, FRAMES)), module(clips)
    scale = wanted.square().sum(1)
    v = torch.rand(2, 16, generator=torch.Generator().manual_seed(7)).requires_grad_()
    optimiser = torch.optim.Adam([v], lr=0.1)
    best, best_f = torch.full((2,), torch.inf), torch.zeros(2, 16)
    for _ in range(STEPS):
        f = v / v.norm(dim=1, keepdim=True)
        filtered = features.clone()
        filtered[:, frame] = features[:, frame] * f.view(2, 1, 4, 4)
        loss = (wanted - module.after(filtered)).square().sum(1) / scale
        (v.grad,) = torch.autograd.grad(loss.sum(), v)
        better = loss.detach() < best
        best, best_f = torch.where(better, loss.detach(), best), torch.where(better[:, None], f.detach(), best_f)
        optimiser.step()
    assert torch.allclose(maps(module, clips)[:, frame].flatten(1), best_f.abs(), atol=1e-4)


@pytest.mark.parametrize("edited", range(FRAMES))
def test_editing_one_frames_filter_leaves_the_others(
    edited: int, module: Recurrent, clips: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter found for a frame is spoiled before the next frames are looked at: theirs are the same, bit by bit."""
    before = maps(module, clips)
    real = iterative._descend

    def spoiled(*arguments: object) -> tuple[Tensor, Tensor, int]:
        f, loss, iterations = real(*arguments)  # type: ignore[arg-type]
        return (f.roll(1, dims=1) + 1 if arguments[-1] == edited else f), loss, iterations

    monkeypatch.setattr(iterative, "_descend", spoiled)
    after = maps(module, clips)
    others = [frame for frame in range(FRAMES) if frame != edited]
    assert torch.equal(before[:, others], after[:, others])
    assert not torch.allclose(before[:, edited], after[:, edited], atol=0.1)


@pytest.mark.parametrize("chosen", [[2], [0, 2], [2, 1]])
def test_explaining_some_frames_gives_their_maps_of_all(
    chosen: list[int], module: Recurrent, clips: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters are sought for these frames alone, in this order; the others have none."""
    every = maps(module, clips)
    monkeypatch.setattr(Look, "each_step", lambda look: iter(chosen))
    monkeypatch.setattr(Look, "join", lambda look, found: _placed(look, found, chosen))
    some = maps(module, clips)
    assert torch.equal(some[:, chosen], every[:, chosen])


def _placed(look: Look, found: list[Tensor], chosen: list[int]) -> Tensor:
    """Those found at their frames' places, zeros at the others."""
    if len(found) == look.steps:
        return torch.stack(found, dim=1).flatten(0, 1)
    blank = torch.zeros_like(found[0])
    return torch.stack([found[chosen.index(t)] if t in chosen else blank for t in range(FRAMES)], dim=1).flatten(0, 1)


def test_the_frames_are_not_alike_to_the_network(module: Recurrent, clips: Tensor) -> None:
    """What the tests above say is not empty: the frames' maps differ, and each frame changes the output."""
    found = maps(module, clips)
    assert all(not torch.allclose(found[:, 0], found[:, t], atol=0.02) for t in range(1, FRAMES))
    for t in range(FRAMES):
        other = clips.clone()
        other[:, t] = 0
        assert not torch.allclose(module(other), module(clips), atol=1e-5)
