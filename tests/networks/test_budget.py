"""Networks that are too large are refused before their memory is taken."""

from pathlib import Path

import pytest
import timm
import torch
from torch import nn

import fovea
from checks import raises
from fovea.networks.building import LEAST, Budget

pytestmark = pytest.mark.security


def built(name: str, **options: object) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return dict(timm.create_model(name, **options).state_dict())


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "resnet10t"])
def test_what_is_built_within_it_is_the_same(name: str) -> None:
    with Budget(name):
        within = built(name)
    assert all(torch.equal(value, within[key]) for key, value in built(name).items())


def test_weights_that_come_from_a_file_are_not_drawn_first(tmp_path: Path) -> None:
    net = fovea.load("timm/test_vit", pretrained=False)
    net.save(file := tmp_path / "weights.safetensors")
    before = torch.get_rng_state()
    state = fovea.load(file).module.state_dict()
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(value, state[key]) for key, value in net.module.state_dict().items())
    head = fovea.load(file, classes=7).module.get_submodule("head")
    assert head.get_parameter("weight").any()  # a new one is drawn


def test_one_tensor_that_is_too_large() -> None:
    words = "net would have more than .* numbers, which is refused"
    with Budget("net"):  # as much as half of the memory
        raises(fovea.BadNetwork, words, nn.Linear, 10**7, 10**7)
    with Budget("net", 10**6):
        nn.Linear(500, 500)
        raises(fovea.BadNetwork, words, nn.Linear, 1000, 1001)


def test_many_that_are_too_large_together() -> None:
    with Budget("net", 100 * LEAST):
        for _ in range(100):
            torch.empty(1)
        raises(fovea.BadNetwork, "would have more than", torch.empty, 1)


def test_what_grows_from_small_ones() -> None:
    with Budget("net", 10**6):
        row = torch.arange(2000)
        raises(fovea.BadNetwork, "would have more than", torch.sub, row[:, None], row[None])
