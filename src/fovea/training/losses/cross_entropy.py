"""Cross-entropy, beside a teacher where there is one."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice
from fovea.networks import Network, load, normalization_of
from fovea.training.losses import Loss, loss
from fovea.training.parts import Part, Positive, Share, Smoothing


class DistilPart(Part):
    teacher: str  # a name that fovea.load knows, or a weights file
    weight: Share = 0.5  # of the teacher's part in the loss
    temperature: Positive = 1.0


@loss("cross_entropy", about="with the classes, smoothed where asked, beside a teacher's answer where there is one")
class CrossEntropy(Loss):
    """Cross-entropy with the classes, given as numbers or, after mixing, as shares; smoothed where asked. With a
    teacher (Hinton et al. 2015): (1 - w) * loss + w * T² * KL(teacher || student), both softened by the temperature
    T."""

    smoothing: Smoothing = 0.0
    distil: DistilPart | None = None

    def __call__(self, logits: Tensor, target: Tensor, taught: Tensor | None = None) -> Tensor:
        entropy = F.cross_entropy(logits, target, label_smoothing=self.smoothing)
        if self.distil is None or taught is None:
            return entropy
        weight, temperature = self.distil.weight, self.distil.temperature
        ours, theirs = (F.log_softmax(one / temperature, 1) for one in (logits, taught))
        match = F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * temperature**2
        return (1 - weight) * entropy + weight * match

    def teacher(self, student: Network, device: torch.device) -> "Teacher | None":
        return None if self.distil is None else teacher_of(self.distil.teacher, student, device)


def teacher_of(name: str, student: Network, device: torch.device) -> "Teacher":
    """The network of a name as a teacher, once it is known that it can be one of the student."""
    network = load(name)
    for who, each in (("the network", student), (name, network)):
        other = next((ability for ability in ("texts", "sounds", "frames") if each.can(ability)), None)
        if other is not None:
            raise BadChoice(f"a teacher is for pictures, and {who} is for {other}: leave it out")
    _same_classes(name, network.labels or (), student.labels or ())
    return Teacher(network, student, device)


class Teacher:
    """Any loaded network as a teacher of another: its outputs for batches prepared for the student."""

    def __init__(self, network: Network, student: Network, device: torch.device) -> None:
        self.network, self.ours, self.theirs = network, normalization_of(student), normalization_of(network)
        network.module.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> Tensor:
        inputs = inputs.float()
        if (self.ours.scale, self.ours.shift) != (self.theirs.scale, self.theirs.shift):
            inputs = self.theirs.to_tensors(self.ours.to_pixels(inputs))
        if inputs.shape[2:] != self.theirs.size:
            inputs = F.interpolate(inputs, self.theirs.size, mode="bilinear", antialias=True)
        return self.network(inputs).float()


def _same_classes(name: str, theirs: tuple[str, ...], ours: tuple[str, ...]) -> None:
    if len(theirs) != len(ours):
        why = "a teacher must know the same classes"
        raise BadChoice(f"the teacher {name} has {len(theirs)} classes and the data {len(ours)}: {why}")
    numbers = tuple(map(str, range(len(ours))))  # of a network whose classes have no names
    if theirs not in (ours, numbers) and ours != numbers:
        odd = next((a, b) for a, b in zip(ours, theirs, strict=True) if a != b)
        raise BadChoice(f"the teacher {name} knows other classes: {odd[1]!r} where the data has {odd[0]!r}")
