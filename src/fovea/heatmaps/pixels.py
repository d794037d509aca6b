"""What methods that work on the network's input share: its pixels, a target's score for other pixels, captum."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import DoesNotApply
from fovea.heatmaps.look import Finding, Look, score_of
from fovea.heatmaps.targets import Aim, Score
from fovea.networks import Network


def pixels_of(look: Look) -> Tensor:
    """The input, frame by frame where it has frames: B,C,*space."""
    given = look.input
    if not given.is_floating_point():
        raise DoesNotApply("this method works on pixels, and the network's input is words: use gradcam")
    if look.differentiable:
        raise DoesNotApply("the values of this method carry no gradient to the weights: use gradcam")
    return given if look.opened.frames is None else given.flatten(0, 1)


def at_frame(look: Look, changed: Tensor, step: int) -> Tensor:
    """Versions of one frame's pixels (M,N,C,*space) as inputs of the network, the other frames as they are."""
    if look.opened.frames is None:
        return changed
    inputs = look.input.repeat(len(changed), *[1] * look.input.ndim)
    inputs[:, :, step] = changed
    return inputs


def confidence(look: Look, aim: Aim) -> Score:
    """What is followed when pixels are hidden: a class's probability; of a whole output, such as an embedding, its
    cosine to that of the picture with nothing hidden; any other score as it is."""
    classes, whole = aim.classes, look.output.detach()
    if classes is not None and whole.shape[1] > 1:
        return lambda out: out.float().softmax(1).gather(1, classes.unsqueeze(1)).squeeze(1)
    if aim.score is None:
        return lambda out: F.cosine_similarity(out.flatten(1).float(), whole.flatten(1).float())
    return aim.score


class Scored(nn.Module):
    """A network that gives the target's score: any number of versions of the batch, one after the other, to as many
    numbers per picture. `total` versions are expected, and progress is told."""

    def __init__(self, look: Look, aim: Aim, total: int = 1, module: nn.Module | None = None) -> None:
        super().__init__()
        network = cast(Network, look.network)
        self.network = network if module is None else replace(network, module=module)
        self.module, self.score = self.network.module, score_of(aim)[0]  # a part of this one, for captum to find
        self.look, self.rows, self.done, self.total = look, len(look.input), 0, total

    def forward(self, inputs: Tensor) -> Tensor:
        parts = torch.split(self.network(inputs), self.rows)
        self.done += len(parts)
        self.look.tell(self.done, self.total)
        return torch.cat([self.score(part) for part in parts])


def captum() -> Any:
    """captum.attr, which is an extra."""
    try:
        import captum.attr
    except ImportError:
        mend = "pip install 'fovea[attributions]'"
        raise DoesNotApply(f"this method comes with captum, which is not installed: {mend}") from None
    warnings.filterwarnings("ignore", "Setting (forward, )?backward hooks", UserWarning)  # on a copy, and taken off
    return captum.attr


def attributed(look: Look, attribute: Callable[[Tensor], Tensor], signed: bool) -> Finding:
    """What captum attributes to every value of the input, as one number per pixel: the sum over its channels, of
    values with their signs or without."""
    space = tuple(pixels_of(look).shape[2:])
    values = attribute(look.input.detach().clone().requires_grad_()).detach()
    values = values.reshape(-1, *values.shape[-len(space) - 1 :])  # B,C,*space
    raw = (values if signed else values.abs()).sum(1).flatten(1)
    return Finding(raw, raw, grid=space)
