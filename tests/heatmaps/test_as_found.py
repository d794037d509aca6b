"""Explaining leaves the network as it was: modes, gradients, hooks, buffers, random numbers; also when it raises."""

import copy
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import left_as_found, refused
from fovea.basics import DoesNotApply
from fovea.heatmaps import names, usual
from fovea.heatmaps.methods import find


def in_training(traceable: bool) -> nn.Module:
    """Half trained, half frozen, one part in eval mode, gradients waiting, dropout and batch norm inside."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 4, 3, 4), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout2d(0.5)
            )
            self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            if not traceable and x.sum() > 1e9:
                x = x * 0
            return self.head(self.trunk(x))

    module = Net().train()
    module(torch.randn(4, 3, 24, 24)).sum().backward()
    module.trunk[0].weight.requires_grad_(False)
    module.head[0].eval()
    return module


@pytest.mark.parametrize("traceable", [True, False])
@pytest.mark.parametrize("name", names())
def test_nothing_is_changed(name: str, traceable: bool, batch: Tensor) -> None:
    module = in_training(traceable)
    with left_as_found(module), suppress(DoesNotApply):
        fovea.explain(fovea.wrap(module, labels=3), batch, method=name)


@pytest.mark.parametrize("traceable", [True, False])
def test_nothing_is_changed_by_an_error(traceable: bool, batch: Tensor) -> None:
    module = in_training(traceable)
    net = fovea.wrap(module, labels=3)

    def broken(out: Tensor) -> Tensor:
        raise ZeroDivisionError

    with left_as_found(module):
        refused("no layer 'nowhere'", fovea.explain, net, batch, layer="nowhere")
        with pytest.raises(ZeroDivisionError):
            fovea.explain(net, batch, target=broken)
        with pytest.raises(RuntimeError):
            fovea.explain(net, batch[:, :2])


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_works_frozen_and_without_gradients(context: Any, pooled: nn.Module, batch: Tensor) -> None:
    wanted = fovea.explain(fovea.wrap(pooled, labels=5), batch, method="all")
    frozen = copy.deepcopy(pooled).requires_grad_(False)
    with context():
        found = fovea.explain(fovea.wrap(frozen, labels=5), batch.clone(), method="all")
    for name, seen in wanted.items():
        assert torch.allclose(seen.values, found[name].values, atol=1e-6)


def test_sanity_never_touches_the_network(pooled: nn.Module, batch: Tensor) -> None:
    with left_as_found(pooled):
        fovea.sanity(fovea.wrap(pooled, labels=5), batch)


def test_one_trunk_pass_serves_all(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    passes = []
    handle = pooled.trunk.register_forward_hook(lambda *_: passes.append("trunk"))
    handle0 = pooled.trunk[0].register_forward_hook(lambda *_: passes.append("first"))
    fovea.explain(net, batch)  # finds the cut
    passes.clear()
    fovea.explain(net, batch, method=[name for name in usual() if find(name).on == "cells"], target="top5")
    handle.remove()
    handle0.remove()
    assert passes == ["first", "trunk"]
