"""The head after the cut of a transformer: for the tokens that are read, it gives what the whole block gives."""

from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import nn

import fovea
from fovea.networks import as_found, cut
from fovea.networks.cutting import Opened
from fovea.networks.cutting.heads import SecondPart

TINY = {"embed_dim": 32, "num_heads": 2, "depth": 2, "num_classes": 5}
# a network, its options, its patches' size, tokens before the patches, rows that its output reads
TOKENS: dict[str, tuple[str, dict[str, Any], int, int, int | None]] = {
    "vit": ("vit_small_patch16_224", TINY, 16, 1, 1),
    "without fused attention": ("vit_small_patch16_224", TINY, 16, 1, 1),
    "norms of queries and keys": ("vit_base_patch16_224", TINY | {"qk_norm": True, "init_values": 0.5}, 16, 1, 1),
    "deit, distilled": ("deit_small_distilled_patch16_224", TINY, 16, 2, 2),
    "dinov2": ("vit_small_patch14_dinov2", TINY, 14, 1, 1),
    "dinov2 with registers": ("vit_small_patch14_reg4_dinov2", TINY, 14, 5, 1),
    "beit, class token": ("beit_base_patch16_224", TINY | {"global_pool": "token"}, 16, 1, 1),
    "eva02, class token": ("eva02_small_patch14_224", TINY | {"global_pool": "token"}, 14, 1, 1),
    "cait": ("cait_xxs24_224", TINY, 16, 1, 1),
    "beit": ("beit_base_patch16_224", TINY, 16, 1, None),
    "eva02": ("eva02_small_patch14_224", TINY, 14, 1, None),
    "torchvision": ("", {}, 16, 1, 1),
}


def _module(name: str, options: dict[str, Any], size: int) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module
    if name:
        shape = (2 * size, 4 * size)
        module = timm.create_model(name, img_size=(4 * size, 4 * size) if "cait" in name else shape, **options)
    else:
        module = torchvision.models.VisionTransformer(64, 16, 2, 2, 32, 64, num_classes=5)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    return module.eval()


def _opened(module: nn.Module, batch: torch.Tensor) -> tuple[Opened, torch.Tensor]:
    net = fovea.wrap(module, labels=5)
    with as_found(net):
        return cut(net, batch).open(batch), fovea.explain(net, batch, method="gradcam", target=1).values


@pytest.mark.parametrize("kind", TOKENS)
def test_the_rows_that_are_read_give_what_all_give(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options, size, prefix, rows = TOKENS[kind]
    module = _module(name, options, size)
    if "without" in kind:
        for layer in module.modules():
            vars(layer).update(fused_attn=False)
    grid = (2, 4) if name and "cait" not in name else (4, 4)
    batch = torch.randn(3, 3, grid[0] * size, grid[1] * size)
    few, gradcam = _opened(module, batch)
    assert (few.layout.grid, few.layout.prefix, few.separable) == (grid, prefix, True)
    assert isinstance(few.head, SecondPart)
    others = [value.shape[1] for value in few.head.also if isinstance(value, torch.Tensor) and len(value) == 3]
    assert others == ([] if rows is None else [rows])
    monkeypatch.setattr("fovea.networks.cutting.splitting.read_rows_alone", lambda *_: False)
    every, expected = _opened(module, batch)
    assert torch.nn.functional.cosine_similarity(gradcam.flatten(1), expected.flatten(1)).min() > 1 - 1e-5
    f = torch.randn(3, few.layout.cells, requires_grad=True)
    outputs = [opened.filtered(f) for opened in (few, every)]
    assert torch.allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-5)
    slopes = [torch.autograd.grad(output.square().sum(), f)[0] for output in outputs]
    assert torch.allclose(slopes[0], slopes[1], rtol=1e-3, atol=1e-3 * float(slopes[0].abs().max()))
    with torch.no_grad():
        picked = few.take(torch.tensor([2, 0, 2, 1])).filtered(f[[2, 0, 2, 1]])
        assert torch.allclose(picked, outputs[0][[2, 0, 2, 1]], rtol=1e-4, atol=1e-5)
