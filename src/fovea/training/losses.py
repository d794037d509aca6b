"""What is minimised. A loss takes the network's output and the classes and gives one number."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics.errors import BadChoice, nearest
from fovea.networks.network import Network
from fovea.pictures.transforms import Prepare
from fovea.training.complementary import Complementary
from fovea.training.prototypes import Prototypes
from fovea.training.ranking import nearest_alike, ranking_loss
from fovea.training.recipe import RANKING, DistilPart, LossPart
from fovea.training.reinforce import Reinforce
from fovea.training.sorted_locations import SortedLocations
from fovea.training.two_streams import TwoStreams


class CrossEntropy(nn.Module):
    """Cross-entropy with the classes, given as numbers or, after mixing, as shares; smoothed where asked."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target, label_smoothing=self.smoothing)


class Distilled(nn.Module):
    """Hinton et al. 2015: (1 - w) * loss + w * T² * KL(teacher || student), both softened by the temperature T."""

    def __init__(self, loss: nn.Module, weight: float, temperature: float) -> None:
        super().__init__()
        self.loss, self.weight, self.temperature = loss, weight, temperature

    def forward(self, logits: Tensor, target: Tensor, taught: Tensor) -> Tensor:
        ours, theirs = (F.log_softmax(one / self.temperature, 1) for one in (logits, taught))
        match = F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * self.temperature**2
        mixed: Tensor = (1 - self.weight) * self.loss(logits, target) + self.weight * match
        return mixed


class Teacher:
    """Any loaded network as a teacher of another: its outputs for batches prepared for the student."""

    def __init__(self, network: Network, student: Prepare, device: torch.device) -> None:
        if not isinstance(network.transform, Prepare):
            raise BadChoice(f"the teacher {network.name} has no transform that batches could be turned into")
        self.network, self.own, self.student = network, network.transform, student
        network.module.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> Tensor:
        inputs = inputs.float()
        if (self.own.mean, self.own.std) != (self.student.mean, self.student.std):
            mean, std = (inputs.new_tensor(one).view(-1, 1, 1) for one in (self.student.mean, self.student.std))
            inputs = self.own.normalise((inputs * std + mean) * 255)
        if inputs.shape[2:] != self.own.size:
            inputs = F.interpolate(inputs, self.own.size, mode="bilinear", antialias=True)
        return self.network(inputs).float()


@runtime_checkable
class ManyHeaded(Protocol):
    """The output of a network that is trained at several places, each group of them with a name."""

    def heads(self) -> Mapping[str, tuple[Tensor, ...]]: ...


# losses of all that a network's output holds, and not of its logits alone
OF_OUTPUTS: dict[str, Callable[[LossPart], nn.Module]] = {
    "acol": Complementary,
    "prototypes": Prototypes,
    "reinforce": Reinforce,
    "sorted_locations": lambda part: SortedLocations(),
    "two_streams": TwoStreams,
}


class Step(nn.Module):
    """One forward pass of training: the loss of a batch, and the logits. This is what is wrapped for many processes.

    Of a network with several heads the loss is the sum of theirs, each times the weight of its group.
    """

    def __init__(self, network: Network, part: LossPart, teacher: Teacher | None) -> None:
        super().__init__()
        self.module = network.module
        self.loss = loss_of(part)
        self._own = part.name in OF_OUTPUTS
        self._weights = part.weights
        self._read = network.read
        self._teacher = teacher  # no part of what is trained or saved

    def forward(self, inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        out = self.module(inputs)
        logits = self._read(out)
        if self._own:
            with torch.autocast(inputs.device.type, enabled=False):
                return self.loss(out, target), logits
        groups = out.heads() if isinstance(out, ManyHeaded) else {"logits": (logits,)}
        stray = [name for name in self._weights if name not in groups]
        if stray:
            raise BadChoice(f"loss.weights: the network has no output {stray[0]!r}{nearest(stray[0], groups)}")
        more: tuple[Any, ...] = () if self._teacher is None else (self._teacher(inputs),)
        with torch.autocast(inputs.device.type, enabled=False):
            weighed = [(self._weights.get(name, 1.0), head) for name, heads in groups.items() for head in heads]
            losses = [weight * self.loss(_whole(head), target, *more) for weight, head in weighed if weight > 0]
            return torch.stack(losses).sum(), logits


def hits(part: LossPart, output: Tensor, target: Tensor) -> Tensor:
    """The share of a batch that is right: of embeddings, whose nearest in the batch is of the same class."""
    if part.name in RANKING:
        return nearest_alike(output, target)
    return (output.detach().argmax(1) == (target.argmax(1) if target.ndim > 1 else target)).float().mean()


def _whole(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def loss_of(part: LossPart) -> nn.Module:
    if part.name in OF_OUTPUTS:
        return OF_OUTPUTS[part.name](part)
    if part.name in RANKING:
        return ranking_loss(part)
    loss = CrossEntropy(part.smoothing)
    if part.distil is None:
        return loss
    return Distilled(loss, part.distil.weight, part.distil.temperature)


def teacher_of(part: DistilPart | None, student: Network, device: torch.device) -> Teacher | None:
    if part is None:
        return None
    from fovea.networks.loading import load
    from fovea.training.feed import preparing

    network = load(part.teacher)
    ours, theirs = student.labels or (), network.labels or ()
    if len(theirs) != len(ours):
        raise BadChoice(
            f"the teacher {part.teacher} has {len(theirs)} classes and the data {len(ours)}: "
            "a teacher must know the same classes"
        )
    numbers = tuple(map(str, range(len(ours))))  # of a network whose classes have no names
    if theirs not in (ours, numbers) and ours != numbers:
        odd = next((a, b) for a, b in zip(ours, theirs, strict=True) if a != b)
        raise BadChoice(f"the teacher {part.teacher} knows other classes: {odd[1]!r} where the data has {odd[0]!r}")
    return Teacher(network, preparing(student), device)
