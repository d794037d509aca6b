"""One forward pass of training, and what is looked at of it."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice, FoveaError, nearest
from fovea.networks import Network
from fovea.training.losses import Loss, loss


@runtime_checkable
class ManyHeaded(Protocol):
    """The output of a network that is trained at several places, each group of them with a name."""

    def heads(self) -> Mapping[str, tuple[Tensor, ...]]: ...


HALF = (torch.float16, torch.bfloat16)


class Step(nn.Module):
    """The loss of a batch, and the logits. This is what is wrapped for many processes. Of a network with several heads
    the loss is the sum of theirs, each times the weight of its group."""

    def __init__(self, network: Network, part: Loss, device: torch.device | None = None) -> None:
        super().__init__()
        try:
            settings = loss.get(part.name).model_validate(part.model_dump())
        except ModuleNotFoundError as error:
            needs = f"the loss {part.name!r} needs the package {error.name}"
            raise FoveaError(f"{needs}: pip install 'fovea[train]'") from None
        self.module, self.loss = network.module, settings.made()
        self._name, self._weights, self._traits = part.name, part.weights, part.traits
        self._read = network.read
        self._teacher = settings.teacher(network, device or network.device)  # no part of what is trained or saved

    def forward(self, inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        out = self.module(inputs)
        logits = _added(self._read(out), len(target))
        more: tuple[Any, ...] = () if self._teacher is None else (_added(self._teacher(inputs), len(target)),)
        if self._traits["reads"] == "output":
            self._fits(out)
            with torch.autocast(inputs.device.type, enabled=False):
                return self._number(self.loss(out, target, *more)), logits
        groups = out.heads() if isinstance(out, ManyHeaded) else {"logits": (logits,)}
        stray = [name for name in self._weights if name not in groups]
        if stray:
            raise BadChoice(f"loss.weights: the network has no output {stray[0]!r}{nearest(stray[0], groups)}")
        with torch.autocast(inputs.device.type, enabled=False):
            weighed = [(self._weights.get(name, 1.0), head) for name, heads in groups.items() for head in heads]
            losses = [
                weight * self._number(self.loss(head.float() if head.dtype in HALF else head, target, *more))
                for weight, head in weighed
                if weight > 0
            ]
            return torch.stack(losses).sum(), logits

    def _fits(self, out: Any) -> None:
        """Whether the network's output has what the loss reads of it."""
        needs: Iterable[str] = self._traits.get("needs", ())
        if not all(hasattr(out, name) for name in needs):
            such_as = f": network.name is {self._traits['such_as']}" if "such_as" in self._traits else ""
            why = f"and this network gives a {type(out).__name__} without{such_as}"
            raise BadChoice(f"the loss {self._name!r} reads {', '.join(needs)} of the network's output, {why}")

    def _number(self, value: Any) -> Tensor:
        """What a loss gave, once it is known to be something that can be minimized."""
        if not isinstance(value, Tensor):
            raise BadChoice(f"the loss {self._name!r} gives a {type(value).__name__}: a loss is a tensor of one number")
        if value.ndim:
            why = "a loss is one number per batch, so take their mean() or sum()"
            raise BadChoice(f"the loss {self._name!r} gives {tuple(value.shape)} numbers: {why}")
        if torch.is_grad_enabled() and not value.requires_grad:
            raise BadChoice(
                f"the loss {self._name!r} has no gradient: it does not depend on what the network gave, or only by "
                "detach(), item(), argmax() or torch.no_grad()"
            )
        return value


def _added(logits: Tensor, count: int) -> Tensor:
    """Of as many pictures, each with several inputs side by side: the logarithm of the mean of their probabilities."""
    if len(logits) == count:
        return logits
    shares = logits.float().log_softmax(1).view(count, -1, logits.shape[1])
    return shares.logsumexp(1) - math.log(shares.shape[1])


@torch.no_grad()
def hits(part: Loss, output: Tensor, target: Tensor) -> Tensor:
    """The share of a batch that is right: of embeddings, whose nearest other one in the batch is of the same class."""
    if part.reads == "embedding":
        unit = F.normalize(output.float())
        likeness = (unit @ unit.T).fill_diagonal_(-torch.inf)
        return (target[likeness.argmax(1)] == target).float().mean()
    return (output.argmax(1) == (target.argmax(1) if target.ndim > 1 else target)).float().mean()
