from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fovea
from conftest import Branching, Pooled, Stacked, seeded
from fovea.heatmaps.methods import ablationcam


def channel_after_channel(trunk: Any, head: Any, batch: Tensor, classes: Tensor) -> Tensor:
    """Eq. 4 with loops, nothing of fovea."""
    features, maps = trunk(batch), torch.zeros(len(batch), 6, 6)
    for i, one in enumerate(features):
        y = head(one[None])[0, classes[i]]
        for k in range(len(one)):
            without = one.clone()
            without[k] = 0
            maps[i] += (y - head(without[None])[0, classes[i]]) / y.abs() * one[k]
    return maps.relu()


@pytest.mark.parametrize("kind", ["affine", "not affine", "not traceable"])
@pytest.mark.parametrize("free", [True, False])
def test_brute_force(kind: str, free: bool, batch: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablationcam, "MOST_ROWS", 7 if free else 1)
    classes = torch.tensor([4, 0, 2])
    module = seeded({"affine": Pooled, "not affine": Stacked, "not traceable": Branching}[kind])
    with torch.no_grad():
        if kind == "not affine":
            wanted = channel_after_channel(module.features, lambda f: module.classifier(f.flatten(1)), batch, classes)
        else:
            inner = module.inner if kind == "not traceable" else module
            wanted = channel_after_channel(
                lambda x: inner.relu(inner.trunk(x)), lambda f: inner.fc(f.mean((2, 3))), batch, classes
            )
    seen = fovea.explain(fovea.wrap(module, labels=5), batch, method="ablationcam", target=classes)
    assert torch.allclose(seen.values[:, 0], wanted, atol=1e-5)


def test_by_hand(by_hand: fovea.Network, four: Tensor) -> None:
    """y = 31, without the first channel 22, without the second 9."""
    seen = fovea.explain(by_hand, four, method="ablationcam", target=[0])
    assert seen.values.flatten().tolist() == pytest.approx([(9 + 2 * 22) / 31 * x for x in (1, 2, 3, 4)])


@pytest.mark.parametrize(("module", "runs"), [(Pooled, 1), (Stacked, 1 + 6)])
def test_an_affine_head_is_tried_once_and_no_channel_is_taken_away(
    module: Any, runs: int, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, scored = seeded(module), list[int]()
    counted = ablationcam._scores
    monkeypatch.setattr(ablationcam, "_scores", lambda *a: scored.append(len(a[2])) or counted(*a))
    fovea.explain(fovea.wrap(made, labels=5), batch, method="ablationcam")
    assert sum(scored) == runs


def test_a_score_below_zero_does_not_turn_the_map_around(by_hand: fovea.Network, four: Tensor) -> None:
    shifted = lambda out: out[:, 0] - 62.0  # noqa: E731 - y = -31, with the same channels speaking for it
    seen = fovea.explain(by_hand, four, method="ablationcam", target=shifted)
    assert seen.values.flatten().tolist() == pytest.approx([(9 + 2 * 22) / 31 * x for x in (1, 2, 3, 4)])


def test_tokens_before_the_patches_stay() -> None:
    """The class token of a ViT is no cell: a channel is taken away from the cells alone."""
    import timm

    torch.manual_seed(0)
    module = timm.create_model("vit_tiny_patch16_224", depth=2, embed_dim=12, num_heads=2, num_classes=5, img_size=32)
    module, x = module.eval(), torch.randn(2, 3, 32, 32)
    seen = fovea.explain(fovea.wrap(module, labels=5), x, method="ablationcam", target=3)
    stored = list[Tensor]()

    def ablate(k: int | None) -> Any:
        def hook(_: nn.Module, __: Any, out: Tensor) -> Tensor:
            stored[:] = [out]
            if k is None:
                return out
            changed = out.clone()
            changed[:, 1:, k] = 0
            return changed

        return hook

    def score(k: int | None) -> Tensor:
        handle = module.blocks[1].norm1.register_forward_hook(ablate(k))
        try:
            return module(x)[:, 3]
        finally:
            handle.remove()

    with torch.no_grad():
        y = score(None)
        cells = stored[0][:, 1:].clone()  # N,P,k
        weights = torch.stack([(y - score(k)) / y.abs() for k in range(12)], dim=1)  # N,k
    assert seen.layer == "blocks.1.norm1"
    assert torch.allclose(seen.values[:, 0].flatten(1), (cells * weights.unsqueeze(1)).sum(2).relu(), atol=1e-5)
