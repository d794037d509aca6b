"""Trunks that are recorded on a GPU: the same maps, whatever happens to the network in between."""

import pytest
import torch
from torch import nn

import fovea
from fovea.networks.cutting.recorded import Recorder, first_part

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def network(device: str) -> fovea.Network:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module.append(nn.Linear(8, 4))
    return fovea.wrap(module.to(device), labels=4)


@pytest.mark.parametrize("device", DEVICES)
def test_maps_stay_those_of_the_network_when_it_changes(device: str) -> None:
    plain = network(device).recorded(False)
    recorded = plain.recorded()
    pictures = torch.randn(3, 2, 3, 33, 33, device=device)

    def equal() -> bool:
        pairs = [(fovea.explain(net, batch).values for net in (plain, recorded)) for batch in pictures]
        return all(torch.allclose(*pair, atol=1e-6) for pair in pairs)

    assert equal()
    assert equal()
    plain.module.get_submodule("0").weight.data.mul_(-2)  # in place
    assert equal()
    plain.module.get_submodule("0").weight.data = torch.randn(8, 3, 3, 3, device=device)  # elsewhere
    assert equal()
    assert equal()
    plain.module.set_submodule("2", nn.GELU())
    assert equal()
    assert equal()
    kept = fovea.explain(recorded, pictures[0]).values.clone()
    first = fovea.explain(recorded, pictures[0])
    fovea.explain(recorded, pictures[1])
    assert torch.equal(first.values, kept)  # another batch does not write over it


def test_layers_that_somebody_listens_to_are_run() -> None:
    recorded, heard = network("cpu").recorded(), list[torch.Size]()
    assert isinstance(first_part(recorded, lambda batch: (batch, ())), Recorder)
    recorded.module.get_submodule("0").register_forward_hook(lambda *given: heard.append(given[2].shape))
    assert not isinstance(first_part(recorded, lambda batch: (batch, ())), Recorder)
    fovea.explain(recorded, torch.randn(1, 3, 33, 33))
    assert heard


def test_gradients_through_the_trunk_are_not_recorded() -> None:
    recorded = network("cpu").recorded()
    pictures = torch.randn(1, 3, 33, 33, requires_grad=True)
    fovea.explain(recorded, pictures, method="gradcam", differentiable=True).values.sum().backward()
    assert pictures.grad is not None
