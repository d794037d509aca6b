"""A graph as one function gives what the module gives, and is made anew where the module is changed."""

from typing import Any

import pytest
import timm
import torch
from torch import nn

import fovea
from fovea.networks import as_found, cut
from fovea.networks.cutting.lean import lean_method

NETWORKS: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "tf_efficientnet_lite0": {"num_classes": 5},
    "test_convnext": {},
    "beit_base_patch16_224": {"img_size": 64, "embed_dim": 32, "num_heads": 2, "depth": 2},
    "swin_tiny_patch4_window7_224": {"img_size": 64, "window_size": 4, "embed_dim": 16, "depths": (1, 1)},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_method_as_one_function(name: str) -> None:
    torch.manual_seed(0)
    module = timm.create_model(name, **NETWORKS[name]).eval()
    short = lean_method(module, "forward_features", torch.randn(1, 3, 64, 64))
    assert short is not None
    run, current = short
    batch = torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01)  # weights are read as they are when it runs
        assert torch.equal(run(batch), module.forward_features(batch))
    assert current()
    layer = next(layer for layer in module.modules() if isinstance(layer, (nn.Conv2d, nn.Linear)))
    vars(layer)["forward"] = lambda x: x
    assert not current()


def test_a_layer_that_runs_something_else_makes_a_new_cut() -> None:
    module = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=5).eval()
    net, batch = fovea.wrap(module, labels=5), torch.randn(1, 3, 64, 64)
    with as_found(net):
        before = cut(net, batch).open(batch).output
        other = nn.Linear(192, 192)
        vars(module.blocks[0].attn.proj)["forward"] = other.forward
        after = cut(net, batch).open(batch).output
        assert not torch.allclose(before, after)
        assert torch.allclose(after, module(batch), atol=1e-5)
