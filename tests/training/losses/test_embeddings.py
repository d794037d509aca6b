"""Triplet and N-pair losses by hand."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.training.losses.npair import NPair
from fovea.training.losses.triplet import Triplet


def on_circle(*degrees: float, length: float = 1.0) -> Tensor:
    angles = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return length * torch.stack([angles.cos(), angles.sin()], 1)


def chord(degrees: float) -> float:
    return 2 * math.sin(math.radians(degrees) / 2)


def test_semi_hard_triplets_alone_count() -> None:
    """Anchor 0°, positive 10°: the negative at 15° is semi-hard, that at 60° is easy. The other anchor, 10°, has the
    negative at 5°, closer than its positive: hard, and left out."""
    embeddings, labels = on_circle(0, 10, 15, 60), torch.tensor([0, 0, 1, 2])
    expected = chord(10) - chord(15) + 0.2
    assert float(Triplet(margin=0.2).made()(embeddings, labels)) == pytest.approx(expected, rel=1e-6)


def test_only_directions_count_in_triplets() -> None:
    labels = torch.tensor([0, 0, 1, 2])
    one, other = (Triplet(margin=0.2).made()(on_circle(0, 10, 15, 60, length=length), labels) for length in (1.0, 7.0))
    assert float(one) == pytest.approx(float(other), rel=1e-6)


def test_n_pairs_by_hand() -> None:
    """Two pairs: -log exp(a·p) / (exp(a·p) + exp(a·n)) with the other pair's positive as n, plus l2 times lengths."""
    a0, p0, a1, p1 = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)
    embeddings, labels = torch.stack([a0, p0, a1, p1]), torch.tensor([0, 0, 1, 1])
    found = float(NPair(l2=0.01).made()(embeddings, labels))
    dots = torch.stack([torch.stack([a0 @ p0, a0 @ p1]), torch.stack([a1 @ p0, a1 @ p1])])
    expected = F.cross_entropy(dots, torch.tensor([0, 1])) + 0.01 * embeddings.square().sum(1).mean()
    assert found == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("per_class", [2, 4])
def test_losses_are_those_of_pytorch_metric_learning(per_class: int) -> None:
    distances, losses, miners = (
        pytest.importorskip(f"pytorch_metric_learning.{part}") for part in ("distances", "losses", "miners")
    )
    random = torch.Generator().manual_seed(0)
    embeddings = torch.randn(24, 6, generator=random, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(24 // per_class).repeat(per_class)
    apart = distances.LpDistance(normalize_embeddings=True, p=2, power=1)
    mined = miners.TripletMarginMiner(0.3, type_of_triplets="semihard", distance=apart)(embeddings, labels)
    theirs = [losses.TripletMarginLoss(0.3, distance=apart)(embeddings, labels, mined)]
    ours = [Triplet(margin=0.3).made()(embeddings, labels)]
    if per_class == 2:
        dot = distances.DotProductSimilarity(normalize_embeddings=False)
        theirs.append(losses.NPairsLoss(distance=dot)(embeddings, labels))
        ours.append(NPair(l2=0).made()(embeddings, labels))
    for one, other in zip(ours, theirs, strict=True):
        slopes = [torch.autograd.grad(value, embeddings)[0] for value in (one, other)]
        assert float(one.detach()) == pytest.approx(float(other.detach()), rel=1e-9)
        assert torch.allclose(*slopes, rtol=1e-7, atol=1e-10)


def test_the_margin_is_the_papers_unless_given() -> None:
    embeddings, labels = on_circle(0, 10, 15, 60), torch.tensor([0, 0, 1, 2])
    assert [float(Triplet(**given).made()(embeddings, labels)) for given in ({}, {"margin": 0.4})] == [
        pytest.approx(chord(10) - chord(15) + margin, rel=1e-6) for margin in (0.2, 0.4)
    ]
