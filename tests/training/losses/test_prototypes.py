import math

import pytest
import torch

from fovea.models.protopnet import ProtoPNetOutput
from fovea.training.losses.prototypes import Prototypes

# two pictures, two classes with two prototypes each; the first picture is of class 0, the second of class 1
DISTANCES = torch.tensor([[0.5, 0.2, 0.9, 0.7], [0.1, 0.3, 0.6, 0.4]])
LOGITS = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
WEIGHTS = torch.tensor([[1.0, 1.0, -0.5, 0.25], [-0.5, 0.0, 1.0, 1.0]])
OUT = ProtoPNetOutput(
    LOGITS, torch.zeros(2, 4, 1, 1), torch.zeros(2, 4), DISTANCES, torch.tensor([0, 0, 1, 1]), WEIGHTS
)
ENTROPY = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2


def loss(**settings: float) -> float:
    return float(Prototypes(**settings)(OUT, torch.tensor([0, 1])))


def test_the_loss_by_hand() -> None:
    cluster, separation = (0.2 + 0.4) / 2, (0.7 + 0.1) / 2
    others = 0.5 + 0.25 + 0.5  # the last layer's weights of a class for another's prototypes
    expected = ENTROPY + 0.8 * cluster - 0.08 * separation + 1e-4 * others
    assert loss() == pytest.approx(expected, rel=1e-6)


def test_each_part_of_the_loss_alone() -> None:
    none = {"cluster": 0.0, "separation": 0.0, "l1": 0.0}
    assert loss(**none) == pytest.approx(ENTROPY, rel=1e-6)
    assert loss(**none | {"cluster": 1.0}) - loss(**none) == pytest.approx(0.3, rel=1e-5)
    assert loss(**none | {"separation": 1.0}) - loss(**none) == pytest.approx(-0.4, rel=1e-5)
    assert loss(**none | {"l1": 1.0}) - loss(**none) == pytest.approx(1.25, rel=1e-5)


def test_only_the_nearest_prototypes_are_pulled_and_pushed() -> None:
    distances = DISTANCES.clone().requires_grad_()
    out = ProtoPNetOutput(LOGITS, OUT.maps, OUT.similarity, distances, OUT.owner, WEIGHTS)
    Prototypes()(out, torch.tensor([0, 1])).backward()
    expected = torch.tensor([[0.0, 0.4, 0.0, -0.04], [-0.04, 0.0, 0.0, 0.4]])
    assert distances.grad is not None
    assert torch.allclose(distances.grad, expected)


def test_shares_of_classes_count_as_their_largest() -> None:
    part = Prototypes(cluster=1.0, separation=0.0, l1=0.0)
    shares = torch.tensor([[0.8, 0.2], [0.0, 1.0]])
    entropy = torch.nn.functional.cross_entropy(LOGITS, shares)
    assert float(part(OUT, shares) - entropy) == pytest.approx(0.3, rel=1e-5)
