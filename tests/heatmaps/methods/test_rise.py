import torch
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.heatmaps.methods.rise import RISE


def by_hand(module: nn.Module, picture: Tensor, masks: list[Tensor], share: float, follow: object) -> Tensor:
    """Eq. 6, one mask after the other, and the mean taken off."""
    with torch.no_grad():
        scores = [float(follow(module((picture * mask).unsqueeze(0))[0])) for mask in masks]
    total = sum(score * mask for score, mask in zip(scores, masks, strict=True))
    return total / (share * len(masks)) - sum(scores) / len(masks)


def test_is_the_sum_of_masks_weighted_by_the_probability(pooled: nn.Module, batch: Tensor) -> None:
    method = RISE(masks=150, cells=4, shown=0.3)
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=method, target=[1])
    masks = [mask[0, 0] for part in method.drawn(batch, 7) for mask in part]  # in parts of any size
    assert (seen.grid, seen.layer, seen.solver) == ((24, 24), "input", "150 masks")
    for i in range(3):
        wanted = by_hand(pooled, batch[i], masks, 0.3, lambda out: out.softmax(0)[1])
        assert torch.allclose(seen.values[i, 0], wanted, atol=1e-6)


def test_an_embedding_is_followed_by_its_cosine(pooled: nn.Module, batch: Tensor) -> None:
    method = RISE(masks=40)
    seen = fovea.explain(fovea.wrap(pooled, embedding=True), batch[:1], method=method)
    masks = [mask[0, 0] for part in method.drawn(batch, 40) for mask in part]
    whole = pooled(batch[:1])[0].detach()
    wanted = by_hand(pooled, batch[0], masks, 0.5, lambda out: torch.cosine_similarity(out, whole, 0))
    assert torch.allclose(seen.values[0, 0], wanted, atol=1e-6)


def test_masks_are_smooth_shifted_and_half_open(batch: Tensor) -> None:
    masks = torch.cat([part.flatten(1) for part in RISE(masks=500).drawn(batch, 64)])  # M,P
    assert masks.shape == (500, 24 * 24)
    assert float(masks.min()) >= 0
    assert float(masks.max()) <= 1
    assert abs(float(masks.mean()) - 0.5) < 0.02
    assert float(masks.mean(0).sub(0.5).abs().max()) < 0.1  # everywhere: no edges of cells


def test_the_seed_and_the_number_of_masks_are_options(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    one, same, other = (fovea.explain(net, batch, method=f"rise:masks=20,seed={seed}") for seed in (1, 1, 2))
    assert one.method == "rise:masks=20,seed=1"
    assert torch.equal(one.values, same.values)
    assert not torch.equal(one.values, other.values)
    refused("rise: masks= is 1 to 1,000,000; got 0", fovea.explain, net, batch, method="rise:masks=0")
    refused("'RISE': masks is 1 to 1,000,000; got 0", fovea.explain, net, batch, method=RISE(masks=0))
    refused("no option 'maks'; did you mean 'masks'", fovea.explain, net, batch, method="rise:maks=3")
    refused("written rise:key=value", fovea.explain, net, batch, method="rise:masks")
