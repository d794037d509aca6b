import math

import pytest
import torch
from torch import nn

import fovea
from checks import refused
from fovea.pictures import Prepare
from fovea.training.losses.cross_entropy import CrossEntropy, DistilPart, Teacher


def test_smoothing_by_hand() -> None:
    """Two classes, logits 0 and log 3: probabilities 1/4 and 3/4. Smoothed by 0.2, the truth is 0.9 and 0.1."""
    logits = torch.tensor([[0.0, math.log(3)]])
    wanted = -(0.1 * math.log(1 / 4) + 0.9 * math.log(3 / 4))
    assert float(CrossEntropy(smoothing=0.2)(logits, torch.tensor([1]))) == pytest.approx(wanted, abs=1e-6)
    shares = torch.tensor([[0.3, 0.7]])  # as mixing gives them
    wanted = -(0.3 * math.log(1 / 4) + 0.7 * math.log(3 / 4))
    assert float(CrossEntropy()(logits, shares)) == pytest.approx(wanted, abs=1e-6)


def test_distillation_by_hand() -> None:
    """The teacher says 1/2, 1/2 and the student 1/4, 3/4: KL = log 2 - (log(4/2) ... ) in nats, times T²."""
    logits, taught = torch.tensor([[0.0, math.log(3)]]), torch.zeros(1, 2)
    divergence = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    p = 3**0.5 / (1 + 3**0.5)
    softer = 4 * (0.5 * math.log(0.5 / (1 - p)) + 0.5 * math.log(0.5 / p))
    for weight, temperature, wanted in (
        (1.0, 1.0, divergence),
        (1.0, 2.0, softer),
        (0.5, 1.0, 0.5 * math.log(4) + 0.5 * divergence),
    ):
        loss = CrossEntropy(distil=DistilPart(teacher="given", weight=weight, temperature=temperature))
        assert float(loss(logits, torch.tensor([0]), taught)) == pytest.approx(wanted, abs=1e-6)


def test_a_teacher_sees_what_it_was_trained_on(pooled: nn.Module) -> None:
    own = Prepare((24, 24), (0.2,) * 3, (0.4,) * 3)
    student = fovea.wrap(nn.Identity(), Prepare((24, 24), (0.5,) * 3, (0.5,) * 3))
    teacher = Teacher(fovea.wrap(pooled, own, 5), student, torch.device("cpu"))
    pixels = torch.rand(2, 3, 24, 24) * 255
    assert torch.allclose(teacher((pixels / 255 - 0.5) / 0.5), pooled(own.normalize(pixels)), atol=1e-5)
    assert teacher(torch.randn(1, 3, 48, 48)).shape == (1, 5)  # another size is resized
    assert not any(parameter.requires_grad for parameter in pooled.parameters())


@pytest.mark.parametrize(("student", "teacher"), [("anchornet_sound-made", "smallnet"), ("smallnet", "textcnn-mr")])
def test_a_teacher_is_of_pictures(student: str, teacher: str) -> None:
    loss = CrossEntropy(distil=DistilPart(teacher=teacher))
    refused("a teacher is for pictures", loss.teacher, fovea.load(student, pretrained=False), torch.device("cpu"))
