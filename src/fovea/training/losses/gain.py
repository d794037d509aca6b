"""How a TNet learns where to look from all places at once: by what the answer gains from each."""

import torch
from torch import Tensor

from fovea.models.glimpsing import Walk
from fovea.networks import Network
from fovea.training.losses import Loss, loss
from fovea.training.losses.cross_entropy import Teacher, teacher_of
from fovea.training.parts import Positive


@loss(
    "gain",
    about="where to look, by what the answer gains from every place: read them all (while_training)",
    reads="output",
    needs=("each", "log_probability", "parents"),
    such_as="tnet-classifier/NAME",
)
class Gain(Loss):
    """Of the places c below a window, the value of reading c, and what is minimized, summed over windows:

        v_c = log softmax(mean of the logits of c, the window, and those above it) at the class
        -sum over c of softmax(v / temperature)_c * log softmax(sharpness * log p)_c

    averaged over the batch. The class is the picture's, or what a teacher takes the whole picture for, which needs no
    labels. A TNet's p lies within narrow bounds (its logits are of length 1), which `sharpness` widens. Every place is
    read while training, so what REINFORCE must try and wait for is known. Only locations learn by it.
    """

    temperature: Positive = 1.5  # of the values: near 0, the best place alone counts
    sharpness: Positive = 6.0
    taught_by: str | None = None  # a network whose answer for the whole picture is the class

    def __call__(self, out: Walk, target: Tensor, taught: Tensor | None = None) -> Tensor:
        each, logs = out.each.detach().float(), out.log_probability.float()
        label = taught.argmax(1) if taught is not None else target.argmax(1) if target.ndim > 1 else target
        first, losses = len(out.levels) - out.glimpses, list[Tensor]()
        for window in dict.fromkeys(out.parents[first:]):
            below = [i for i, parent in enumerate(out.parents) if parent == window and i >= first]
            above = _path(out, window)
            answers = (each[:, above].sum(1, keepdim=True) + each[:, below]) / (len(above) + 1)  # N,C,classes
            value = answers.log_softmax(2).gather(2, label.view(-1, 1, 1).expand(-1, len(below), 1))[..., 0]  # N,C
            chosen = (self.sharpness * logs[:, [i - first for i in below]]).log_softmax(1)
            losses.append(-((value / self.temperature).softmax(1) * chosen).sum(1).mean())
        return torch.stack(losses).sum() if losses else logs.sum()

    def teacher(self, student: Network, device: torch.device) -> Teacher | None:
        return None if self.taught_by is None else teacher_of(self.taught_by, student, device)


def _path(out: Walk, window: int) -> list[int]:
    """A window and those that it was chosen in."""
    path = list[int]()
    while window >= 0:
        path.append(window)
        window = out.parents[window]
    return path
