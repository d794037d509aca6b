"""What the AnchorNets of every medium share: branches with attention (Eqs. 6 to 10) and their decision (Eqs. 1 to 4).

Nothing here knows how many spatial axes there are: maps are N,C,H,W for pictures and N,C,L for text and sounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class BranchOutput:
    """What one branch saw. `evidence` of a cell comes from the cell's own patch; `attention` weighs cells."""

    evidence: Tensor  # N,classes,*grid
    attention: Tensor | None  # N,*grid, sums to 1: S of Eq. 10; a branch without attention has none
    logits: Tensor  # N,classes
    auxiliary: Tensor | None  # N,classes, in training only
    scale: float = 1.0  # H W, where attention is rescaled so that it is 1 on average

    @property
    def activation(self) -> Tensor:
        """F: evidence times attention, whose mean over the cells is the logits. LIP sorts this."""
        if self.attention is None:
            return self.evidence
        return self.evidence * self.attention.unsqueeze(1) * self.scale


@dataclass(frozen=True)
class Decision:
    label: Tensor  # N: Y, Eq. 3
    branch: Tensor  # N: the number of the branch that localizes, Eq. 4
    probability: Tensor  # N: that this branch gives the label


@dataclass(frozen=True)
class AnchorNetOutput:
    logits: Tensor  # N,classes: of the branch that localizes, so that their maximum is the decision
    branches: tuple[BranchOutput, ...]
    decision: Decision

    def heads(self) -> dict[str, tuple[Tensor, ...]]:
        """Every output that is trained, by the name of its weight in the loss."""
        auxiliary = tuple(branch.auxiliary for branch in self.branches if branch.auxiliary is not None)
        return {"branches": tuple(branch.logits for branch in self.branches), "auxiliary": auxiliary}


def decide(logits: Sequence[Tensor]) -> Decision:
    """A class that two branches agree on wins, even against a more confident third; else the most confident branch's.
    The branch that localizes is the most confident of those that chose the class."""
    probability, label = torch.stack(tuple(logits)).float().softmax(2).max(2)  # J,N each: Eq. 1
    votes = (label.unsqueeze(0) == label.unsqueeze(1)).sum(0)  # J,N: who agrees with j, itself included; Eq. 2
    agreed = torch.where(votes >= 2, votes, 0) + probability / 2  # a vote outweighs any probability
    branch = agreed.argmax(0)  # N: Eqs. 3 and 4 at once, since its own class is the decided one
    chosen = branch.unsqueeze(0)
    return Decision(label.gather(0, chosen)[0], branch, probability.gather(0, chosen)[0])


def output_of(branches: Sequence[BranchOutput]) -> AnchorNetOutput:
    decision = decide([branch.logits for branch in branches])
    logits = torch.stack([branch.logits for branch in branches])  # J,N,classes
    rows = torch.arange(logits.shape[1], device=logits.device)
    return AnchorNetOutput(logits[decision.branch, rows], tuple(branches), decision)


class Branched(nn.Module):
    """A network whose branches each have a classifier."""

    branches: nn.ModuleList

    def reset_classifier(self, classes: int) -> None:
        """New, untrained classifiers for so many classes."""
        for branch in self.branches:
            branch.reset_classifier(classes)  # type: ignore[operator]


class Attention(nn.Module):
    """Where a branch attends to, Eqs. 6 to 10: weigh cells, read off which channels matter, weigh cells by these."""

    def __init__(self, channels: int, conv: type[nn.Conv1d] | type[nn.Conv2d]) -> None:
        super().__init__()
        self.compact = conv(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        g = self.scores(x).softmax(1)  # N,P  Eq. 6
        c = (x.flatten(2) * g.unsqueeze(1)).sum(2).softmax(1)  # N,C  Eqs. 7, 8
        return self.weighed(x, c).softmax(1).view(x.shape[0], *x.shape[2:])  # Eq. 10

    def scores(self, x: Tensor) -> Tensor:
        """N,P, whose softmax over all cells is Eq. 6."""
        compact: Tensor = self.compact(x)
        return compact.flatten(1)

    @staticmethod
    def weighed(x: Tensor, c: Tensor) -> Tensor:
        """Eq. 9: cells by the channels' weights, N,P."""
        return (x.flatten(2) * c.unsqueeze(2)).sum(1)


@dataclass(frozen=True)
class BranchOptions:
    """`attention`, `auxiliary`: with the attention branch, and with its own classifiers while training. `rescale`:
    attention is multiplied by H W before the average over the cells, so that logits keep their size."""

    attention: bool = True
    auxiliary: bool = True
    rescale: bool = True


PAPER = BranchOptions()


class Branch(nn.Module):
    """Features whose cells see a known patch, evidence for each class by a linear 1x1 convolution, attention. `widths`
    are the channels of the features, those of the attention's, and the classes. `attended` makes the attention's
    features out of the branch's; None is a branch without attention."""

    def __init__(
        self,
        features: nn.Module,
        widths: tuple[int, int, int],
        attended: nn.Module | None,
        conv: type[nn.Conv1d] | type[nn.Conv2d],
        form: BranchOptions = PAPER,
    ) -> None:
        super().__init__()
        channels, attended_channels, classes = widths
        self.features, self.attended, self.rescale = features, attended, form.rescale
        self.classify = conv(channels, classes, 1)
        self.attention = None if attended is None else Attention(attended_channels, conv)
        has_auxiliary = form.auxiliary and attended is not None
        self.auxiliary = nn.Linear(attended_channels, classes) if has_auxiliary else None

    def forward(self, x: Tensor) -> BranchOutput:
        evidence, attended = self.cells(x)
        if attended is None or self.attention is None:
            return BranchOutput(evidence, None, evidence.flatten(2).mean(2), None)
        attention = self.attention(attended)
        cells = attention[0].numel()
        scale = float(cells) if self.rescale else 1.0
        logits = (evidence * attention.unsqueeze(1)).flatten(2).sum(2) * (scale / cells)  # the mean of F
        auxiliary = None
        if self.training and self.auxiliary is not None:
            auxiliary = self.auxiliary(attended.flatten(2).mean(2))
        return BranchOutput(evidence, attention, logits, auxiliary, scale)

    def cells(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What each cell has by itself: evidence, N,classes,*grid, and the attention's features, N,C,*grid."""
        features = self.features(x)
        return self.classify(features), None if self.attended is None else self.attended(features)

    def reset_classifier(self, classes: int) -> None:
        """New, untrained layers for so many classes."""
        old = self.classify
        self.classify = type(old)(old.in_channels, classes, 1).to(old.weight)
        if self.auxiliary is not None:
            self.auxiliary = nn.Linear(self.auxiliary.in_features, classes).to(old.weight)
