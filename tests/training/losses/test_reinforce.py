import math

import pytest
import torch
from torch import Tensor

from fovea.basics import BadChoice
from fovea.models.glimpsing import Walk
from fovea.training.losses.reinforce import Reinforce, Rewarded


def walk(each: Tensor, probability: Tensor, levels: tuple[int, ...]) -> Walk:
    n, v, _ = each.shape
    return Walk(each.mean(1), each, each, torch.zeros(n, v, 4), levels, (-1,) * v, probability.log())


def loss_of(**settings: object) -> Rewarded:
    return Reinforce(**settings).made()  # type: ignore[arg-type]


# one picture, two classes, the overview and two glimpses; the truth is class 0
EACH = torch.tensor([[[0.0, 2.0], [4.0, 0.0], [0.0, 1.0]]])
CHANCE = torch.tensor([[0.5, 0.25]])
TRUTH = torch.tensor([0])


def entropy(right: float, wrong: float) -> float:
    return math.log(1 + math.exp(wrong - right))


def test_equation_1_by_hand() -> None:
    # the mean of the logits is 4/3 and 1: right, so R - b = 0.5
    expected = entropy(4 / 3, 1) - 0.1 * 0.5 * (math.log(0.5) + math.log(0.25))
    assert float(loss_of().eval()(walk(EACH, CHANCE, (1, 2, 2)), TRUTH)) == pytest.approx(expected, rel=1e-5)


def test_equation_2_by_hand() -> None:
    alone = (entropy(0, 2) + entropy(4, 0) + entropy(0, 1)) / 3  # the overview counts here
    own = (0.5 * math.log(0.5) - 0.5 * math.log(0.25)) / 2  # and not here: the first glimpse is right, the second wrong
    together = 0.5 * (math.log(0.5) + math.log(0.25))
    expected = 0.3 * entropy(4 / 3, 1) + 0.7 * alone - 0.1 * (0.2 * together + 0.8 * own)
    loss = loss_of(whole=0.3, whole_reward=0.2).eval()
    assert float(loss(walk(EACH, CHANCE, (1, 2, 2)), TRUTH)) == pytest.approx(expected, rel=1e-5)


def test_only_levels_upto_one_are_judged_alone() -> None:
    alone = (entropy(0, 2) + entropy(4, 0)) / 2
    own = 0.5 * math.log(0.5)
    expected = 0.5 * entropy(4 / 3, 1) + 0.5 * alone - 0.1 * (0.5 * 0.5 * math.log(0.125) + 0.5 * own)
    loss = loss_of(whole=0.5, whole_reward=0.5, upto=2).eval()
    assert float(loss(walk(EACH, CHANCE, (1, 2, 3)), TRUTH)) == pytest.approx(expected, rel=1e-5)


def test_places_that_nothing_rewards_are_refused() -> None:
    """Of two glimpses, of levels 2 and 3, the second is not judged alone, and the answer as a whole earns nothing."""
    chance = CHANCE.clone().requires_grad_()
    with pytest.raises(BadChoice, match=r"upto = 2 with loss.whole_reward = 0"):
        loss_of(whole_reward=0.0, upto=2)(walk(EACH, chance, (1, 2, 3)), TRUTH)
    loss_of(whole_reward=0.0, upto=3)(walk(EACH, chance, (1, 2, 3)), TRUTH).backward()
    assert chance.grad is not None
    assert bool((chance.grad != 0).all())
    loss_of(whole_reward=0.0, upto=1)(walk(EACH, CHANCE, (1, 2, 3)), TRUTH)  # nothing is judged alone: all as a whole
    loss_of(whole_reward=0.0, upto=2, policy=0.0)(walk(EACH, CHANCE, (1, 2, 3)), TRUTH)  # no place is learned


def test_the_baseline_follows_the_rewards() -> None:
    loss = loss_of(whole_reward=0.2)
    loss(walk(EACH, CHANCE, (1, 2, 2)), TRUTH)
    assert float(loss.baseline) == pytest.approx(0.9 * 0.5 + 0.1 * (0.2 * 1 + 0.8 * 0.5))
    loss.eval()(walk(EACH, CHANCE, (1, 2, 2)), TRUTH)
    assert float(loss.baseline) == pytest.approx(0.51)


def test_a_batchs_own_mean_as_the_baseline() -> None:
    each = torch.tensor([[[4.0, 0.0]], [[0.0, 4.0]]])  # right, wrong: rewards 1 and 0, their mean 1/2
    chance = torch.tensor([[0.5], [0.25]])
    out = Walk(each[:, 0], each, each, torch.zeros(2, 1, 4), (2,), (-1,), chance.log())
    expected = (entropy(4, 0) + entropy(0, 4)) / 2 - 0.5 * (0.5 * math.log(0.5) - 0.5 * math.log(0.25)) / 2
    loss = loss_of(policy=0.5, baseline="batch").eval()
    assert float(loss(out, torch.tensor([0, 0]))) == pytest.approx(expected, rel=1e-5)


def test_the_mean_over_glimpses_as_for_saccader() -> None:
    expected = entropy(4 / 3, 1) - 0.1 * 0.5 * (math.log(0.5) + math.log(0.25)) / 2
    loss = loss_of(over="mean").eval()
    assert float(loss(walk(EACH, CHANCE, (1, 2, 2)), TRUTH)) == pytest.approx(expected, rel=1e-5)


def test_several_walks_of_a_picture_are_averaged() -> None:
    other, chance = EACH.flip(2), torch.tensor([[0.2, 0.1]])  # wrong where the first was right
    both = walk(torch.cat([EACH, other]), torch.cat([CHANCE, chance]), (1, 2, 2))
    alone = [walk(EACH, CHANCE, (1, 2, 2)), walk(other, chance, (1, 2, 2))]
    for target in (TRUTH, torch.tensor([[1.0, 0.0]])):
        expected = sum(float(loss_of(whole=0.3).eval()(one, target)) for one in alone) / 2
        assert float(loss_of(whole=0.3).eval()(both, target)) == pytest.approx(expected, rel=1e-5)


def test_walks_of_a_picture_are_compared_with_its_others() -> None:
    # three walks, of one picture each has one glimpse; as a whole they are right, wrong, right
    each = torch.tensor([[[4.0, 0.0]], [[0.0, 4.0]], [[4.0, 0.0]]])
    chance = torch.tensor([[0.5], [0.25], [0.125]])
    out = Walk(each[:, 0], each, each, torch.zeros(3, 1, 4), (2,), (-1,), chance.log())
    gain = (0.5 * math.log(0.5) - 1.0 * math.log(0.25) + 0.5 * math.log(0.125)) / 3  # others' means: 1/2, 1, 1/2
    expected = (2 * entropy(4, 0) + entropy(0, 4)) / 3 - 0.2 * gain
    loss = loss_of(policy=0.2, baseline="picture").eval()
    assert float(loss(out, TRUTH)) == pytest.approx(expected, rel=1e-5)
    easy = walk(EACH.repeat(2, 1, 1), torch.cat([CHANCE, CHANCE / 2]), (1, 2, 2))  # always right: nothing to learn here
    assert float(loss(easy, TRUTH)) == pytest.approx(entropy(4 / 3, 1), rel=1e-5)
    with pytest.raises(BadChoice, match="samples above 1"):
        loss(walk(EACH, CHANCE, (1, 2, 2)), TRUTH)


def test_the_probability_of_the_right_answer_as_the_reward() -> None:
    def sure(right: float, wrong: float) -> float:
        return math.exp(-entropy(right, wrong)) - 0.5  # less the baseline

    own = (sure(4, 0) * math.log(0.5) + sure(0, 1) * math.log(0.25)) / 2
    expected = entropy(4 / 3, 1) - 0.1 * (0.2 * sure(4 / 3, 1) * math.log(0.125) + 0.8 * own)
    each = EACH.clone().requires_grad_()
    loss = loss_of(whole_reward=0.2, reward="probability").eval()(walk(each, CHANCE, (1, 2, 2)), TRUTH)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert each.grad is not None
    plain = EACH.clone().requires_grad_()
    loss_of().eval()(walk(plain, CHANCE, (1, 2, 2)), TRUTH).backward()
    torch.testing.assert_close(each.grad, plain.grad)  # answers learn by cross-entropy alone, whatever the reward


def test_descending_makes_rewarded_places_more_probable() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    probability = logits.softmax(1)
    each = torch.tensor([[[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]]])  # glimpse 1 of cell 0 is right, glimpse 2 of 1 wrong
    out = walk(each, probability[:, :2], (1, 2, 2))
    loss_of(whole=0.5, whole_reward=0.0).eval()(out, TRUTH).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] < 0 < logits.grad[0, 1]


def test_mixed_pictures_are_taken_by_their_larger_share() -> None:
    shares = torch.tensor([[0.7, 0.3]])
    loss = loss_of(policy=0.0).eval()(walk(EACH, CHANCE, (1, 2, 2)), shares)
    assert float(loss) == pytest.approx(0.7 * entropy(4 / 3, 1) + 0.3 * entropy(1, 4 / 3), rel=1e-5)


def test_a_network_without_an_overview_has_nothing_to_judge_above_its_glimpses() -> None:
    out = walk(EACH[:, 1:], CHANCE, (2, 2))
    with pytest.raises(BadChoice, match="upto = 1"):
        loss_of(whole=0.5, upto=1)(out, TRUTH)
    # with nothing judged alone, the answer as a whole is all the reward there is
    whole, none = loss_of(whole_reward=0.5, upto=1).eval(), loss_of().eval()
    assert float(whole(out, TRUTH)) == pytest.approx(float(none(out, TRUTH)))


def test_glimpses_of_a_picture_are_compared_with_the_others_of_their_level() -> None:
    # one walk: of two glimpses of level 2 the first is right, of the two of level 3 both are
    each = torch.tensor([[[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]]])
    chance = torch.tensor([[0.5, 0.25, 0.125, 0.1]])
    gain = (1.0 * math.log(0.5) - 1.0 * math.log(0.25)) / 4
    alone = (4 * entropy(4, 0) + entropy(0, 4)) / 5
    loss = loss_of(whole=0.0, whole_reward=0.0, baseline="picture").eval()
    assert float(loss(walk(each, chance, (1, 2, 2, 3, 3)), TRUTH)) == pytest.approx(alone - 0.1 * gain, rel=1e-5)
    # two walks of two glimpses: one of all four is wrong, so the three that are right gain 1 - 2/3 each
    each = torch.tensor([[[4.0, 0.0]] * 3, [[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]]])
    chance = torch.tensor([[0.5, 0.25], [0.2, 0.1]])
    gain = (math.log(0.5) + math.log(0.25) + math.log(0.1)) / 3 - math.log(0.2)
    alone = (5 * entropy(4, 0) + entropy(0, 4)) / 6
    assert float(loss(walk(each, chance, (1, 2, 2)), TRUTH)) == pytest.approx(alone - 0.1 * gain / 4, rel=1e-5)
