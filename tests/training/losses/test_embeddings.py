"""Triplet and N-pair losses by hand."""

import math

import pytest
import torch
from torch import Tensor

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


PAIRS = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)


def test_n_pairs_by_hand() -> None:
    """Each is an anchor: -log exp(a·p) / (exp(a·p) + exp(a·n) + exp(a·n')), n both of the other pair."""
    dots = [(0.5, 0, -1), (0.5, 1, 0), (2, 0, 1), (2, -1, 0)]  # a·p, and with the others
    near = [-math.log(math.exp(p) / sum(map(math.exp, (p, *others)))) for p, *others in dots]
    expected = sum(near) / 4 + 0.01 * (1 + 0.5 + 4 + 2) / 4
    labels = torch.tensor([0, 0, 1, 1])
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        found = NPair(l2=0.01).made()(PAIRS[order], labels[order])
        assert float(found) == pytest.approx(expected, rel=1e-6)


def test_sohns_pairs_by_hand() -> None:
    """Two anchors, each with the other pair's positive as its negative."""
    found = float(NPair(l2=0.01, negatives="positives").made()(PAIRS, torch.tensor([0, 0, 1, 1])))
    expected = (math.log(1 + math.exp(-1 - 0.5)) + math.log(1 + math.exp(1 - 2))) / 2 + 0.01 * 7.5 / 4
    assert found == pytest.approx(expected, rel=1e-6)


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
        theirs += [
            losses.NTXentLoss(1.0, distance=dot)(embeddings, labels),
            losses.NPairsLoss(distance=dot)(embeddings, labels),
        ]
        ours += [NPair(l2=0, negatives=which).made()(embeddings, labels) for which in ("all", "positives")]
    for one, other in zip(ours, theirs, strict=True):
        slopes = [torch.autograd.grad(value, embeddings)[0] for value in (one, other)]
        assert float(one.detach()) == pytest.approx(float(other.detach()), rel=1e-9)
        assert torch.allclose(*slopes, rtol=1e-7, atol=1e-10)


def test_the_margin_is_the_papers_unless_given() -> None:
    embeddings, labels = on_circle(0, 10, 15, 60), torch.tensor([0, 0, 1, 2])
    assert [float(Triplet(**given).made()(embeddings, labels)) for given in ({}, {"margin": 0.4})] == [
        pytest.approx(chord(10) - chord(15) + margin, rel=1e-6) for margin in (0.2, 0.4)
    ]
