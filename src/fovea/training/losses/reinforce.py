"""The learning rule of networks that choose what to read: cross-entropy and REINFORCE (TNet, Eqs. 1, 2 and 7)."""

from collections import Counter
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice
from fovea.models.glimpsing import Walk
from fovea.training.losses import Loss, loss
from fovea.training.parts import Count, NotNegative, Share, Smoothing

FORGETS, BEGINS = 0.9, 0.5  # of the baseline, Eq. 7


@loss(
    "reinforce",
    about="cross-entropy and REINFORCE, for networks that choose what to read",
    reads="output",
    needs=("each", "log_probability", "levels"),
    such_as="tnet/NAME",
)
class Reinforce(Loss):
    """What is minimized is -L_r of Eq. 2, per picture, averaged over the batch:

        whole        * CE(all)      + (1 - whole)        * mean over what was read of CE(it alone)
      - policy * whole_reward       * (R - b)   * sum over glimpses of log p    (or their mean: `over`)
      - policy * (1 - whole_reward) * mean over glimpses of (R_k - b) * log p_k

    R is 1 where the answer is right, else 0; or the probability of the right one, which tells walks apart that are all
    right or all wrong. whole = λ_c, whole_reward = λ_r, policy = λ_f; with both at 1 it is Eq. 1. The baseline b
    follows the rewards (Eq. 7), or is the batch's own mean reward, as for Saccader; of a network that walks every
    picture several times (M), so that it has so many rows for each, it may be what the picture's other walks got: then
    places count, and not whether a picture is easy. `upto` is the deepest level whose glimpses are judged alone (2 in
    the paper's second stage)."""

    smoothing: Smoothing = 0.0
    policy: NotNegative = 0.1  # the weight of REINFORCE beside cross-entropy
    whole: Share = 1.0  # of cross-entropy, the share of the answer as a whole; the rest is of what was read alone
    whole_reward: Share = 1.0  # likewise of REINFORCE
    upto: Count | None = None  # the deepest level whose glimpses are judged alone
    reward: Literal["right", "probability"] = "right"
    baseline: Literal["average", "batch", "picture"] = "average"  # what rewards are compared with
    over: Literal["sum", "mean"] = "sum"  # of log p over glimpses: their sum, or their mean, as for Saccader

    def made(self) -> "Rewarded":
        return Rewarded(self)


class Rewarded(nn.Module):
    """The loss with its baseline, which follows the rewards of the steps so far."""

    baseline: Tensor

    def __init__(self, part: Reinforce) -> None:
        super().__init__()
        self.part = part
        self.register_buffer("baseline", torch.tensor(BEGINS))

    def forward(self, out: Walk, target: Tensor) -> Tensor:
        walks = len(out.logits) // len(target)  # of each picture
        target = target.repeat_interleave(walks, 0)
        part, label = self.part, target.argmax(1) if target.ndim > 1 else target
        logits, each, log_p = out.logits.float(), out.each.float(), out.log_probability.float()
        loss = part.whole * F.cross_entropy(logits, target, label_smoothing=part.smoothing)
        upto = len(out.levels) if part.upto is None else sum(level <= part.upto for level in out.levels)
        if upto == 0 and part.whole < 1:
            raise BadChoice(f"loss.upto = {part.upto}: this network reads nothing at such levels to judge alone")
        if part.whole < 1:
            repeated = target.repeat_interleave(upto, 0)
            alone = F.cross_entropy(each[:, :upto].flatten(0, 1), repeated, label_smoothing=part.smoothing)
            loss = loss + (1 - part.whole) * alone
        if not out.glimpses:
            return loss
        first = len(out.levels) - out.glimpses
        reward = self._rewards(logits, label)  # N
        rewards = self._rewards(each[:, first:], label.unsqueeze(1))  # N,G
        judged = upto - first  # glimpses whose own answer has a say
        whole = part.whole_reward if judged > 0 else 1.0
        if part.policy and whole == 0 and judged < out.glimpses:
            raise BadChoice(
                f"loss.upto = {part.upto} with loss.whole_reward = 0: nothing rewards glimpses of deeper levels; give "
                "loss.whole_reward above 0, or leave loss.upto out"
            )
        mean = whole * reward.mean() + ((1 - whole) * rewards[:, :judged].mean() if whole < 1 else 0)
        reward = self._compared(reward.unsqueeze(1), mean, walks)[:, 0] if whole else reward
        if whole < 1:
            counts = list(Counter(out.levels[first:upto]).values())  # level by level, as glimpses come
            parts = torch.split(rewards[:, :judged], counts, 1)
            rewards = torch.cat([self._compared(part, mean, walks) for part in parts], 1)
        gain = whole * reward * (log_p.sum(1) if part.over == "sum" else log_p.mean(1))
        if whole < 1:
            gain = gain + (1 - whole) * (rewards * log_p[:, :judged]).mean(1)
        loss = loss - part.policy * gain.mean()
        if self.training:
            self.baseline.lerp_(mean.detach().to(self.baseline), 1 - FORGETS)
        return loss

    def _rewards(self, logits: Tensor, label: Tensor) -> Tensor:
        if self.part.reward == "right":
            return (logits.argmax(-1) == label).float()
        label = label.expand(logits.shape[:-1]).unsqueeze(-1)
        return logits.detach().softmax(-1).gather(-1, label).squeeze(-1)

    def _compared(self, rewards: Tensor, mean: Tensor, walks: int) -> Tensor:
        """Rewards (N,G) of answers as a whole, or of glimpses of one level, less what they are compared with; `mean` is
        that of all."""
        if self.part.baseline != "picture":
            return rewards - (mean if self.part.baseline == "batch" else self.baseline)
        own = rewards.reshape(-1, walks * rewards.shape[1])  # pictures, walks and glimpses
        if own.shape[1] == 1:
            raise BadChoice(
                'loss.baseline = "picture" compares walks of a picture: give network.options.samples above 1'
            )
        others = (own.sum(1, keepdim=True) - own) / (own.shape[1] - 1)
        return (own - others).view_as(rewards)
