"""Eqs. 3.8 to 3.11, worked by hand."""

import math

import pytest
import torch
from torch import Tensor

from fovea.models.localstream import Steps
from fovea.models.twostream import TwoStreamOutput
from fovea.training.losses.two_streams import TwoStreams


def out_of(whole: Tensor, local: Tensor, each: Tensor | None = None, weight: float = 1.0) -> TwoStreamOutput:
    each = local.unsqueeze(1) if each is None else each
    steps = Steps(each, torch.ones(each.shape[:2]), each, local)
    window = torch.zeros(len(whole), 4)
    return TwoStreamOutput(
        whole + weight * local, whole, local, weight, steps, window, window.unsqueeze(1), each.shape[1] > 1
    )


def logits(share: float) -> Tensor:
    """Of two classes, the first of which has this probability."""
    return torch.tensor([[math.log(share / (1 - share)), 0.0]])


TRUE = torch.tensor([0])


def test_the_sum_of_all_three_by_hand() -> None:
    """p_global 0.8, p_local 0.5: -ln 0.8 - ln 0.5 + 0.5 * (0.8 - 0.5 + 0.5)."""
    found = TwoStreams()(out_of(logits(0.8), logits(0.5)), TRUE)
    assert found.item() == pytest.approx(-math.log(0.8) - math.log(0.5) + 0.5 * 0.8)


def test_ranking_is_zero_once_the_local_stream_is_surer_by_the_margin() -> None:
    """As printed: p_local = p_global + margin gives nothing more to gain; equal probabilities cost the margin."""
    plain = TwoStreams(rank=0.0)
    for whole, local, by_hand in ((0.3, 0.8, 0.0), (0.6, 0.6, 0.5), (0.9, 0.2, 1.2)):
        out = out_of(logits(whole), logits(local))
        difference = TwoStreams(rank=1.0)(out, TRUE) - plain(out, TRUE)
        assert difference.item() == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("detach", [False, True])
def test_ranking_lowers_the_global_stream_unless_it_is_detached(detach: bool) -> None:
    whole = logits(0.6).requires_grad_()
    out = out_of(whole, logits(0.6))
    difference = TwoStreams(rank=1.0, detach_global=detach)(out, TRUE) - TwoStreams(rank=0.0)(out, TRUE)
    (gradient,) = torch.autograd.grad(difference, whole, allow_unused=True)
    by_hand = 0.0 if detach else 0.6 * 0.4  # dp/dz of the true class
    assert gradient[0, 0].item() == pytest.approx(by_hand, abs=1e-6)


def test_the_local_weight_is_the_networks_own() -> None:
    found = TwoStreams(rank=0.0)(out_of(logits(0.8), logits(0.5), weight=0.3), TRUE)
    assert found.item() == pytest.approx(-math.log(0.8) - 0.3 * math.log(0.5))


def test_a_stream_trained_at_every_step_has_the_mean_of_their_losses() -> None:
    each = torch.stack([logits(0.5), logits(0.9)], 1)
    found = TwoStreams(rank=0.0)(out_of(logits(0.8), logits(0.9), each), TRUE)
    assert found.item() == pytest.approx(-math.log(0.8) - (math.log(0.5) + math.log(0.9)) / 2, rel=1e-5)


def test_the_global_stream_alone() -> None:
    alone = TwoStreamOutput(logits(0.8), logits(0.8), None, 0.0, None, torch.zeros(1, 4), None)
    assert TwoStreams()(alone, TRUE).item() == pytest.approx(-math.log(0.8))
