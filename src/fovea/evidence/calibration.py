"""fovea.calibrate: probabilities that come true as often as they say (Guo et al. 2017)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice, BadNetwork, Progress, bounded, demand_kinds, quiet
from fovea.data import DataSet, open_data
from fovea.glimpses import stepping, walks_of
from fovea.models.glimpsing import Route, Stepping
from fovea.networks import TEMPERATURES, Network, NetworkLike, as_network, blank, labeled, match, outputs, width_of

BINS = 15
WIDEST = 4.0  # of the rule's numbers: a network that is right on every picture would be infinitely certain


@dataclass(frozen=True)
class Calibrated:
    """How well probabilities are calibrated, before the fit and after it, over pictures and over what is read of each:
    the mean negative log-likelihood of the labels, and the expected calibration error."""

    pictures: int
    glimpses: int
    nll_before: float
    nll: float
    ece_before: float
    ece: float
    temperatures: tuple[float, ...]  # one; of a network that reads glimpses, after one, two, … things read
    skipped: tuple[tuple[str, str], ...] = ()


@bounded
def calibrate(
    net: NetworkLike,
    data: str | Path | DataSet,
    *,
    split: str | None = None,
    limit: int | None = None,
    batch: int = 16,
    device: str | None = None,
    progress: Progress = quiet,
) -> Calibrated:
    """Fits the temperature that a classifier's logits are divided by. A Network has it from then on (`.temperature`):
    every verb tells calibrated probabilities, and it is saved with it. Of a name or a module only the figures come out.
    A network that reads glimpses has one for each of them, in its module.

    `data` are pictures with labels that it was not tested on: of the training split, or better apart from both. Where
    classes do not exclude each other, a picture's label is taken for the only class that is there."""
    demand_kinds(calibrate, locals())
    network, skipped = as_network(net, device), list[tuple[str, str]]()
    if labeled(network, blank(network)).labels is None:
        raise BadChoice(
            f"{network.name or type(network.module).__name__} has no classes whose probabilities could be calibrated: "
            "name a classifier, or say what its outputs are, fovea.wrap(module, labels=[...])"
        )
    given = (data if isinstance(data, DataSet) else open_data(data, split, network.labels)).first(limit)
    if not given.labeled:
        raise BadChoice(f"{given.name} has no labels, and calibration needs the true class of each picture")
    answer, glimpses = _reading(network)
    found, labels = list[Tensor](), list[Tensor]()
    for samples, after in outputs(network.fitted(), given, batch, skipped, progress, answer):
        labels.append(match(network, given, width_of(after[:, -1])).of(samples))
        found.append(after.cpu().double())
    logits, truth, several = torch.cat(found), torch.cat(labels), network.can("several")  # N,V,classes  N
    if not logits.isfinite().all():
        raise BadNetwork(f"{network.name or 'the network'} gives values that are not numbers: train it anew")
    before = scored(logits, truth, several)
    temperatures = _fitted(network, logits, truth)
    now = scored(logits / torch.tensor(temperatures, dtype=logits.dtype)[:, None], truth, several)
    errors = before[0], now[0], before[1], now[1]
    return Calibrated(len(truth), glimpses, *errors, temperatures, tuple(skipped))


def _reading(network: Network) -> tuple[Callable[[Tensor], Tensor], int]:
    """What gives the logits of pictures after each thing read, N,V,classes, and how many of these are glimpses. Without
    glimpses, a picture is the one thing read."""
    if not network.can("steps"):
        return lambda batch: network(batch).unsqueeze(1), 0
    _, route = stepping(network, Route())
    return lambda batch: torch.cat([walk.after for walk in walks_of(network, batch, route)]), route.glimpses or 0


def _fitted(network: Network, logits: Tensor, labels: Tensor) -> tuple[float, ...]:
    """The temperatures of the greatest likelihood, which the network has from then on: V."""
    if not network.can("steps"):
        network.temperature = fit_temperature(logits[:, 0], labels, network.can("several"))
        return (network.temperature,)
    certainty = cast(Stepping, network.module).certainty
    certainty.rule.copy_(torch.tensor(fit(logits, labels)))
    return tuple(certainty.temperature(things) for things in range(1, logits.shape[1] + 1))


def fit_temperature(logits: Tensor, labels: Tensor, several: bool = False) -> float:
    """The temperature of the greatest likelihood: N,classes logits, N labels."""
    found = minimize_scalar(
        lambda log: float(surprise(logits / math.exp(log), labels, several)),
        bounds=[math.log(bound) for bound in TEMPERATURES],
        method="bounded",
    )
    return math.exp(found.x)


def fit(after: Tensor, labels: Tensor) -> list[float]:
    """The rule of Certainty of the greatest likelihood: N,V,classes logits after one, two, … things read, N labels."""
    share = 1 / torch.arange(1, after.shape[1] + 1, dtype=torch.float64)
    truth = labels.repeat_interleave(after.shape[1])

    def loss(rule: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        numbers = torch.tensor(rule, requires_grad=True)
        with torch.enable_grad():
            scaled = after / (numbers[0] + numbers[1] * share).exp()[None, :, None]
            value = surprise(scaled.flatten(0, 1), truth)
            (slope,) = torch.autograd.grad(value, numbers)
        return value.item(), slope.numpy()

    found = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-WIDEST, WIDEST)] * 2)
    return [float(number) for number in found.x]


def surprise(logits: Tensor, labels: Tensor, several: bool = False) -> Tensor:
    """The mean negative log-likelihood of labels, N, by logits, N,classes."""
    if not several:
        return F.cross_entropy(logits, labels)
    truth = F.one_hot(labels, logits.shape[1]).to(logits)
    return F.binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(1).mean()


def scored(logits: Tensor, labels: Tensor, several: bool = False) -> tuple[float, float]:
    """Negative log-likelihood and expected calibration error, over pictures and things read: N,V,classes, N labels."""
    each, truth = logits.flatten(0, 1), labels.repeat_interleave(logits.shape[1])
    best, answer = (each.sigmoid() if several else each.softmax(1)).max(1)
    return float(surprise(each, truth, several)), calibration_error(best.numpy(), (answer == truth).numpy())


def reliability(certainty: NDArray[Any], right: NDArray[Any]) -> list[tuple[int, float, float]]:
    """Of each bin of certainty that has any: how many, their mean certainty, and how many of them were right."""
    bins = np.minimum((certainty.ravel() * BINS).astype(int), BINS - 1)
    chosen = [(certainty.ravel()[bins == i], right.ravel()[bins == i]) for i in range(BINS)]
    return [(len(sure), float(sure.mean()), float(true.mean())) for sure, true in chosen if len(sure)]


def calibration_error(certainty: NDArray[Any], right: NDArray[Any]) -> float:
    """Expected: how far certainty is from the share that was right, over 15 bins of equal width."""
    return sum(count * abs(sure - true) for count, sure, true in reliability(certainty, right)) / certainty.size
