"""Searching for a filter on the sphere, where the head is not affine in it."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

import fovea
from conftest import Through, seeded
from fovea.heatmaps import iterative

ADAM = fovea.Descent(start="uniform", rate=0.05, tolerance=1e-7, most=600)
BOTH = pytest.mark.parametrize("method", [fovea.L2CAF(), fovea.L2CAF(oblivious=True)])


def attention() -> nn.Module:
    """One token asks the cells: a softmax over them, by what the filter left of each."""

    def forward(x: Tensor, conv: nn.Module, both: nn.Module, fc: nn.Module) -> Tensor:
        cells = conv(x).flatten(2).mT  # N,P,k
        keys, values = both(cells).chunk(2, 2)
        shares = (keys.sum(2, keepdim=True) * 3).softmax(1)
        return fc(torch.tanh((shares * values).sum(1)))

    return Through(forward, nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 16), nn.Linear(8, 5))


def by_hand(module: nn.Module, features: Tensor, f: Tensor) -> Tensor:
    return module.classifier((features * f.view(-1, 1, 6, 6)).flatten(1))


@BOTH
def test_on_an_affine_head_the_first_step_is_the_solution(
    method: fovea.L2CAF, pooled: nn.Module, batch: Tensor
) -> None:
    net = fovea.wrap(pooled, labels=5)
    exact = fovea.explain(net, batch, method=method)
    found = fovea.explain(net, batch, method=dataclasses.replace(method, solver="iterative"))
    assert torch.allclose(exact.loss, found.loss, rtol=1e-4)
    assert found.iterations < 20
    if not method.oblivious:
        assert found.iterations <= 3
        assert torch.allclose(exact.values, found.values, atol=1e-4)


@BOTH
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["linear layers", "attention"])
def test_as_low_as_adam_ends_in_less_than_half_the_evaluations(
    kind: str, seed: int, method: fovea.L2CAF, batch: Tensor, stacked: nn.Module
) -> None:
    module = seeded(type(stacked) if kind == "linear layers" else attention, seed=seed)
    net = fovea.wrap(module, labels=5, layer="features" if kind == "linear layers" else "layers.0")
    slow = fovea.explain(net, batch, method=dataclasses.replace(method, solver="iterative", descent=ADAM))
    quick = fovea.explain(net, batch, method=method)
    assert quick.solver == "iterative"
    assert quick.iterations * 2 < slow.iterations
    with torch.no_grad():
        size = module(batch).square().sum(1).mean() if method.oblivious else slow.loss.abs().mean()
    assert float((quick.loss - slow.loss).mean()) <= 1e-3 * float(size)
    assert torch.allclose(quick.values.flatten(1).norm(dim=1), torch.ones(3), atol=1e-5)


def test_the_loss_is_that_of_the_filter(stacked: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(stacked, labels=5)
    found = fovea.explain(net, batch, method=fovea.L2CAF(signed=True), target=[1])
    with torch.no_grad():
        out = by_hand(stacked, stacked.features(batch), found.values)
    assert torch.allclose(-out[:, 1] + out[:, [0, 2, 3, 4]].mean(1), found.loss[:, 0], atol=1e-5)


@BOTH
def test_pictures_are_searched_for_on_their_own(
    method: fovea.L2CAF, stacked: nn.Module, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch gives what its pictures give alone, all at once or some at a time; also where a loss is a callable."""
    monkeypatch.setattr(iterative, "AT_ONCE", 2)
    net = fovea.wrap(stacked, labels=5)
    for target in ([1], lambda out: out[:, 0] - out[:, 1] ** 2):
        before = torch.get_rng_state()
        together = fovea.explain(net, batch, method=method, target=target)
        assert torch.equal(before, torch.get_rng_state())
        apart = [fovea.explain(net, one, method=method, target=target) for one in batch.split(1)]
        assert torch.allclose(together.loss, torch.cat([one.loss for one in apart]), rtol=1e-3)
        assert torch.equal(together.values, fovea.explain(net, batch, method=method, target=target).values)


def test_weights_have_no_gradient_taken(stacked: nn.Module, batch: Tensor) -> None:
    """Only the filter's: as many products as the evaluations' own, none for a weight of 16 x 216."""
    with torch.profiler.profile(record_shapes=True) as profile:
        fovea.explain(fovea.wrap(stacked, labels=5), batch, method="l2caf")
    products = [event.input_shapes for event in profile.events() if event.name == "aten::mm"]
    assert products
    assert not [shapes for shapes in products if sorted(shapes[0]) == [3, 16] and sorted(shapes[1]) == [3, 216]]
    assert all(parameter.grad is None for parameter in stacked.parameters())


def test_a_score_that_was_searched_for_leaves_classes_exact(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)

    def bent(output: Tensor) -> Tensor:
        return output[:, 0].sin() + output[:, 1] ** 2

    for _ in range(3):
        assert fovea.explain(net, batch, target=bent).solver == "iterative"
    assert fovea.explain(net, batch).solver == "exact"
    (cut,) = net._cuts.values()
    assert cut.curved == {"l2caf"}  # nothing is kept of each score
