"""Rollouts beside a plain reading of the papers, on attention that each library itself hands out."""

from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn
from torchvision.models import VisionTransformer

import fovea
from checks import left_as_found
from fovea.basics import DoesNotApply

transformers = pytest.importorskip("transformers")

PICTURES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
CLASS = 3


def small_vit(**options: object) -> nn.Module:
    torch.manual_seed(0)
    size = {"img_size": 64, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 5, "init_values": 1.0}
    module = timm.create_model("vit_tiny_patch16_224", **size, **options).eval()
    nn.init.normal_(module.head.weight)
    return module


def small_torchvision() -> nn.Module:
    torch.manual_seed(0)
    module = VisionTransformer(64, 16, 3, 3, 24, 48, num_classes=5).eval()
    nn.init.normal_(module.heads.head.weight)
    return module


def small_transformers(how: str) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 48}
    config = transformers.ViTConfig(image_size=64, num_labels=5, attn_implementation=how, **sizes)
    return transformers.ViTForImageClassification(config).eval()


def kept_by_timm(module: nn.Module) -> tuple[Tensor, list[Tensor]]:
    """Unfused, an attention layer passes its weights through its dropout."""
    kept: list[Tensor] = []
    for block in module.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _, __, out: kept.append(out))
    return module(PICTURES), kept


def kept_by_transformers(module: nn.Module) -> tuple[Tensor, list[Tensor]]:
    module.set_attn_implementation("eager")
    answer = module(PICTURES, output_attentions=True)
    return answer.logits, list(answer.attentions)


def rollout(attentions: list[Tensor], rows: slice) -> Tensor:
    """Abnar & Zuidema, Eq. 1, picture by picture."""
    maps = []
    for i in range(len(PICTURES)):
        rolled = torch.eye(attentions[0].shape[-1])
        for attention in attentions:
            mixed = 0.5 * attention[i].mean(0) + 0.5 * torch.eye(len(rolled))
            rolled = mixed / mixed.sum(1, keepdim=True) @ rolled
        maps.append(rolled[rows].mean(0)[1:])
    return torch.stack(maps).detach()


def chefer(output: Tensor, attentions: list[Tensor], rows: slice) -> Tensor:
    """Chefer et al. 2021, Eqs. 5 and 6, picture by picture."""
    gradients = torch.autograd.grad(output[:, CLASS].sum(), attentions)
    maps = []
    for i in range(len(PICTURES)):
        same = relevance = torch.eye(attentions[0].shape[-1])
        for attention, gradient in zip(attentions, gradients, strict=True):
            relevance = relevance + (attention[i] * gradient[i]).clamp(min=0).mean(0) @ relevance
        maps.append((relevance - same)[rows].mean(0)[1:])
    return torch.stack(maps).detach()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable, slice]] = {
    "timm": (small_vit, kept_by_timm, slice(0, 1)),
    "timm, mean of patches": (lambda: small_vit(global_pool="avg"), kept_by_timm, slice(1, None)),
    "transformers, fused": (lambda: small_transformers("sdpa"), kept_by_transformers, slice(0, 1)),
    "transformers, eager": (lambda: small_transformers("eager"), kept_by_transformers, slice(0, 1)),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_is_what_the_papers_say(kind: str) -> None:
    make, kept, rows = NETWORKS[kind]
    module = make()
    with left_as_found(module):
        maps = fovea.explain(
            fovea.wrap(module, labels=5), PICTURES, method=["rollout", "rollout-gradient"], target=[CLASS]
        )
    output, attentions = kept(make())
    assert [seen.grid for seen in maps.values()] == [(4, 4)] * 2
    wanted = rollout(attentions, rows), chefer(output, attentions, rows)
    for seen, values in zip(maps.values(), wanted, strict=True):
        assert torch.allclose(seen.values.flatten(1), values, rtol=1e-3, atol=1e-7)
        assert float(values.std()) > 0


def test_torchvision_s_layers_of_attention() -> None:
    module = small_torchvision()
    kept: list[Tensor] = []

    def weigh(layer: nn.Module, given: tuple[Tensor, ...], how: dict[str, object]) -> None:
        kept.append(
            nn.MultiheadAttention.forward(layer, *given, **{**how, "need_weights": True}, average_attn_weights=False)[1]
        )

    with left_as_found(module):
        maps = fovea.explain(fovea.wrap(module, labels=5), PICTURES, method=["rollout", "rollout-gradient"])
    for block in module.encoder.layers:
        block.self_attention.register_forward_pre_hook(weigh, with_kwargs=True)
    module(PICTURES)
    assert torch.allclose(maps["rollout"].values.flatten(1), rollout(kept, slice(0, 1)), rtol=1e-3, atol=1e-7)
    assert maps["rollout-gradient"].diagnosis == ((None,),) * 2


def test_tokens_before_the_patches_and_attention_that_pools() -> None:
    distilled = timm.create_model("deit_tiny_distilled_patch16_224", img_size=64, embed_dim=24, depth=2, num_heads=3)
    mapped = timm.create_model("vit_base_patch16_siglip_224", img_size=64, embed_dim=24, depth=2, num_heads=3)
    for module in (distilled.eval(), mapped.eval()):
        for head in (part for part in module.modules() if isinstance(part, nn.Linear)):
            nn.init.normal_(head.weight, std=0.2)
        for method in ("rollout", "rollout-gradient"):
            seen = fovea.explain(fovea.wrap(module, embedding=True), PICTURES, method=method)
            assert (seen.grid, seen.diagnosis) == ((4, 4), ((None,),) * 2)


def test_works_frozen_and_without_gradients() -> None:
    module = small_vit()
    wanted = fovea.explain(fovea.wrap(module, labels=5), PICTURES, method="rollout-gradient")
    module.requires_grad_(False).train()
    with torch.inference_mode(), left_as_found(module):
        seen = fovea.explain(fovea.wrap(module, labels=5), PICTURES, method="rollout-gradient")
    assert torch.allclose(seen.values, wanted.values, rtol=1e-4, atol=1e-7)


def test_refused_where_there_is_no_attention_over_all_patches(pooled: nn.Module, batch: Tensor) -> None:
    with pytest.raises(DoesNotApply, match="this network computes none: use gradcam or l2caf"):
        fovea.explain(fovea.wrap(pooled, labels=5), batch, method="rollout")
    windows = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1), num_heads=(2, 2), embed_dim=8).eval()
    with pytest.raises(DoesNotApply, match=r"within windows, or of other tokens \(64 x 49, 16 x 49\)"):
        fovea.explain(fovea.wrap(windows, labels=1000), torch.randn(1, 3, 224, 224), method="rollout")
