from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fovea
from checks import raises
from fovea.basics import DoesNotApply
from fovea.heatmaps import Look, look
from fovea.heatmaps.methods import find
from fovea.networks import as_found, cut


def one_mask_after_the_other(module: Any, picture: Tensor, target: Any) -> Tensor:
    """Eqs. 3 to 5, with the baseline that the softmax does not know."""
    features = module.relu(module.trunk(picture[None]))[0]
    masks = F.interpolate(features[None], picture.shape[1:], mode="bilinear")[0]
    masks = (masks - masks.amin((1, 2), True)) / (masks.amax((1, 2), True) - masks.amin((1, 2), True))
    outputs = torch.cat([module((mask * picture)[None]) for mask in masks.nan_to_num(0)])
    outputs = outputs - module(torch.zeros_like(picture)[None])
    scores = outputs.sum(1) if target == "output" else outputs[:, target]
    return (scores.softmax(0)[:, None, None] * features).sum(0).relu()


@pytest.mark.parametrize("target", [2, "output"])
@pytest.mark.parametrize("most", [1, 7, 64])
def test_the_paper_s_equations_whatever_fits_at_once(
    target: Any, most: int, pooled: nn.Module, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "MOST_ROWS", {"cpu": most})
    rows = list[int]()
    handle = pooled.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method="scorecam", target=target)
    handle.remove()
    assert max(rows) <= max(most, len(batch))  # all masks of all pictures are never there at once
    with torch.no_grad():
        wanted = torch.stack([one_mask_after_the_other(pooled, picture, target) for picture in batch])
    assert torch.allclose(seen.values[:, 0], wanted, atol=1e-5)


def test_weights_sum_to_one(by_hand: fovea.Network, four: Tensor) -> None:
    """Both channels are the same mask, (x - 1) / 3, so each counts half: 0.5 x + 0.5 * 2 x."""
    seen = fovea.explain(by_hand, four, method="scorecam", target=[0])
    assert seen.values.flatten().tolist() == pytest.approx([1.5 * x for x in (1, 2, 3, 4)])


def test_of_one_channel_alone_the_one_that_varies_most_counts(by_hand: fovea.Network, four: Tensor) -> None:
    """2 x varies more than x, and has all the weight."""
    seen = fovea.explain(by_hand, four, method="scorecam:channels=1", target=[0])
    assert seen.values.flatten().tolist() == pytest.approx([2 * x for x in (1, 2, 3, 4)])


def test_what_it_takes(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    with as_found(net):
        opened = cut(net, batch).open(batch)
        seen = Look(opened, network=net)
        assert [find(f"scorecam:channels={most}").passes_of(seen) for most in (0, 4, 7)] == [6, 4, 6]


def test_acol_refuses_it() -> None:
    net = fovea.load("acol/timm/test_resnet", pretrained=False, classes=3)
    words = r"changes the network's input.*ACoL's second classifier"
    raises(DoesNotApply, words, fovea.explain, net, torch.randn(1, 3, 64, 64), method="scorecam")
    maps = fovea.explain(net, torch.randn(1, 3, 64, 64), method="all")
    assert "scorecam" in maps.refused
    assert "gradcam" in maps
