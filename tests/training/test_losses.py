import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import fovea
from fovea.pictures.transforms import Prepare
from fovea.training.losses import CrossEntropy, Distilled, Step, Teacher, loss_of
from fovea.training.recipe import DistilPart, LossPart


def test_smoothing_by_hand() -> None:
    """Two classes, logits 0 and log 3: probabilities 1/4 and 3/4. Smoothed by 0.2, the truth is 0.9 and 0.1."""
    logits = torch.tensor([[0.0, math.log(3)]])
    wanted = -(0.1 * math.log(1 / 4) + 0.9 * math.log(3 / 4))
    assert float(CrossEntropy(0.2)(logits, torch.tensor([1]))) == pytest.approx(wanted, abs=1e-6)
    shares = torch.tensor([[0.3, 0.7]])  # as mixing gives them
    wanted = -(0.3 * math.log(1 / 4) + 0.7 * math.log(3 / 4))
    assert float(CrossEntropy(0.0)(logits, shares)) == pytest.approx(wanted, abs=1e-6)


def test_distillation_by_hand() -> None:
    """The teacher says 1/2, 1/2 and the student 1/4, 3/4: KL = log 2 - (log(4/2) ... ) in nats, times T²."""
    logits, taught = torch.tensor([[0.0, math.log(3)]]), torch.zeros(1, 2)
    divergence = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    plain = Distilled(CrossEntropy(0), weight=1.0, temperature=1.0)
    assert float(plain(logits, torch.tensor([0]), taught)) == pytest.approx(divergence, abs=1e-6)
    softer = Distilled(CrossEntropy(0), weight=1.0, temperature=2.0)
    p = 3**0.5 / (1 + 3**0.5)
    divergence = 4 * (0.5 * math.log(0.5 / (1 - p)) + 0.5 * math.log(0.5 / p))
    assert float(softer(logits, torch.tensor([0]), taught)) == pytest.approx(divergence, abs=1e-6)
    half = Distilled(CrossEntropy(0), weight=0.5, temperature=1.0)
    both = 0.5 * math.log(4) + 0.5 * float(plain(logits, torch.tensor([0]), taught))
    assert float(half(logits, torch.tensor([0]), taught)) == pytest.approx(both, abs=1e-6)


def test_a_teacher_sees_what_it_was_trained_on(pooled: nn.Module) -> None:
    own = Prepare((24, 24), (0.2,) * 3, (0.4,) * 3)
    teacher = Teacher(fovea.wrap(pooled, own, 5), Prepare((24, 24), (0.5,) * 3, (0.5,) * 3), torch.device("cpu"))
    pixels = torch.rand(2, 3, 24, 24) * 255
    assert torch.allclose(teacher((pixels / 255 - 0.5) / 0.5), pooled(own.normalise(pixels)), atol=1e-5)
    assert teacher(torch.randn(1, 3, 48, 48)).shape == (1, 5)  # another size is resized
    assert not any(parameter.requires_grad for parameter in pooled.parameters())


def test_a_step_trains_the_network_and_not_the_teacher(pooled: nn.Module, stacked: nn.Module) -> None:
    prepare = Prepare((24, 24))
    part = LossPart(distil=DistilPart(teacher="given"))
    teacher = Teacher(fovea.wrap(stacked, prepare, 5), prepare, torch.device("cpu"))
    step = Step(fovea.wrap(pooled, prepare, 5), part, teacher)
    loss, logits = step(torch.randn(4, 3, 24, 24), torch.tensor([0, 1, 2, 3]))
    loss.backward()
    assert logits.shape == (4, 5)
    assert {name.partition(".")[0] for name, _ in step.named_parameters()} == {"module"}
    assert all(p.grad is not None for p in pooled.parameters())
    assert all(p.grad is None for p in stacked.parameters())


def test_the_loss_of_a_recipe() -> None:
    assert isinstance(loss_of(LossPart()), CrossEntropy)
    assert isinstance(loss_of(LossPart(distil=DistilPart(teacher="x"))), Distilled)


class TwoHeaded(nn.Module):
    """Logits x and, as a second group, 2x: what is trained is told by `heads`."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> "Both":
        return Both(x * self.scale)


@dataclass(frozen=True)
class Both:
    logits: Tensor

    def heads(self) -> dict[str, tuple[Tensor, ...]]:
        return {"plain": (self.logits,), "double": (2 * self.logits, 2 * self.logits)}


def test_every_head_counts_with_its_groups_weight() -> None:
    network = fovea.wrap(TwoHeaded(), labels=2, output=lambda out: out.logits)
    x, target = torch.tensor([[0.0, math.log(3)]]), torch.tensor([1])
    plain, double = math.log(4 / 3), math.log(10 / 9)
    for weights, expected in (
        ({}, plain + 2 * double),
        ({"double": 0.25}, plain + 0.5 * double),
        ({"double": 0.0}, plain),
    ):
        loss, logits = Step(network, LossPart(weights=weights), None)(x, target)
        assert float(loss) == pytest.approx(expected, abs=1e-6)
        assert torch.equal(logits, x)
    with pytest.raises(fovea.BadChoice, match="no output 'dubble'; did you mean 'double'"):
        Step(network, LossPart(weights={"dubble": 1.0}), None)(x, target)
