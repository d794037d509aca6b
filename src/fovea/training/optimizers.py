"""Optimizers, groups of parameters with settings of their own, and learning rates as a function of the step alone."""

import math
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from fovea.basics import BadChoice, nearest
from fovea.training.recipe import OptimizerPart, SchedulePart

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], frozenset[str]]] = {
    "sgd": (torch.optim.SGD, frozenset({"momentum", "nesterov"})),
    "adam": (torch.optim.Adam, frozenset({"betas", "eps"})),
    "adamw": (torch.optim.AdamW, frozenset({"betas", "eps"})),
    "adadelta": (torch.optim.Adadelta, frozenset({"rho", "eps"})),
    "rmsprop": (torch.optim.RMSprop, frozenset({"momentum", "eps"})),
}
FUSED = ("sgd", "adam", "adamw")


def optimizer_of(part: OptimizerPart, module: nn.Module, fused: bool = False) -> torch.optim.Optimizer:
    """Each group keeps its learning rate as `base_lr`, which the schedule multiplies. `fused`: all weights of a group
    in one kernel of the GPU, where the optimizer has one."""
    kind, known = OPTIMIZERS[part.name]
    given = {key: getattr(part, key) for key in ("momentum", "nesterov", "betas", "rho", "eps")}
    given = {key: tuple(value) if key == "betas" else value for key, value in given.items() if value is not None}
    unknown = sorted(set(given) - known)
    if unknown:
        raise BadChoice(f"{part.name} takes no {unknown[0]} (it takes {', '.join(sorted(known))})")
    groups = parameter_groups(part, module)
    given |= {"fused": True} if fused and part.name in FUSED else {}
    try:
        return kind(groups, lr=part.lr, **given)  # type: ignore[call-arg]
    except ValueError as error:  # values that do not go together, as nesterov without momentum
        raise BadChoice(f"optimizer {part.name}: {error}") from None


def parameter_groups(part: OptimizerPart, module: nn.Module) -> list[dict[str, Any]]:
    """Parameters by learning rate and weight decay: the first group whose pattern matches, else the recipe's own.
    Biases and norms (fewer than two dimensions) are not decayed unless the recipe says so."""
    # in training, the network stands beside its loss, under a name that its user does not know
    named = [(name.removeprefix("module."), parameter) for name, parameter in module.named_parameters()]
    for group in part.groups:
        if not any(fnmatchcase(name, group.match) for name, _ in named):
            tops = {name.partition(".")[0] for name, _ in named}
            why = f"(patterns are such as 'classifier.*'; the network has {', '.join(sorted(tops))})"
            raise BadChoice(f"no parameter is called {group.match!r}{nearest(group.match.rstrip('.*'), tops)} {why}")
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in named:
        own = next((group for group in part.groups if fnmatchcase(name, group.match)), None)
        lr = part.lr if own is None or own.lr is None else own.lr
        decay = part.weight_decay if own is None or own.weight_decay is None else own.weight_decay
        if lr == 0:
            parameter.requires_grad_(False)
            continue
        decay = decay if parameter.ndim > 1 or part.decay_all else 0.0
        found.setdefault((lr, decay), []).append(parameter)
    if not found:
        raise BadChoice("every parameter is frozen (lr = 0): nothing would be trained")
    settings = ({"lr": lr, "base_lr": lr, "weight_decay": decay} for lr, decay in found)
    return [{"params": parameters, **own} for parameters, own in zip(found.values(), settings, strict=True)]


def share(part: SchedulePart, epoch: float, epochs: float) -> float:
    """What the learning rates are multiplied by after so many epochs, of so many in all."""
    if epoch < part.warmup:
        return epoch / part.warmup
    if part.name == "constant":
        return 1.0
    if part.name == "step":
        return part.factor ** sum(epoch >= at for at in part.at)
    past = (epoch - part.warmup) / max(epochs - part.warmup, 1e-9)
    return part.floor + (1 - part.floor) * (1 + math.cos(math.pi * min(past, 1.0))) / 2


def set_rates(optimizer: torch.optim.Optimizer, by: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * by
