"""fovea.calibrate: what a network that zooms is certain of comes true as often as it says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from fovea.basics import BadChoice, BadPicture, bounded, demand_kinds
from fovea.data import DataSet, open_data
from fovea.glimpses.routes import stepping
from fovea.models.glimpsing import Certainty, Pixels, Route, Stepping, Walk
from fovea.networks import Network, NetworkLike, as_found, as_network, groups, match

BINS = 15
WIDEST = 4.0  # of the rule's numbers: a network that is right on every picture would be infinitely certain


@dataclass(frozen=True)
class Calibrated:
    """How well certainty is calibrated after each thing read, before the fit and after it: the mean negative
    log-likelihood of the labels, and the expected calibration error."""

    pictures: int
    glimpses: int
    nll_before: float
    nll: float
    ece_before: float
    ece: float
    temperatures: tuple[float, ...]  # after one, two, … things read
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Calibrated:
    """Fits the temperatures of `net`, a Network or module, which has them from then on and is saved with them.

    `data` are pictures with labels that it was not tested on: of the training split, or better apart from both.
    """
    demand_kinds(calibrate, locals())
    network = as_network(net, device)
    module, route = stepping(network, Route())
    given = (data if isinstance(data, DataSet) else open_data(data, split, network.labels)).first(limit)
    if not given.labeled:
        raise BadChoice(f"{given.name} has no labels to calibrate by")
    logits, labels, skipped, walks = list[Tensor](), list[Tensor](), list[tuple[str, str]](), list[Walk]()
    for group in groups(network, given, batch):
        skipped += group.skipped
        if group.batch is not None:
            walks = walks_of(network, group.batch, route)
            logits.append(torch.cat([walk.after for walk in walks]).double().cpu())
            labels.append(match(network, given, logits[0].shape[2]).of(group.of(given.samples)).cpu())
        progress(group.done, group.total)
    if not logits:
        raise BadPicture(f"no picture of {given.name} could be read: {skipped[0][1] if skipped else 'it is empty'}")
    after, truth = torch.cat(logits), torch.cat(labels)
    before = scored(after, truth, Certainty())
    module.certainty.rule.copy_(torch.tensor(fit(after, truth)))
    now = scored(after, truth, module.certainty)
    temperatures = tuple(module.certainty.temperature(things) for things in range(1, after.shape[1] + 1))
    errors = before[0], now[0], before[1], now[1]
    return Calibrated(len(truth), walks[0].glimpses, *errors, temperatures, tuple(skipped))


def walks_of(network: Network, batch: Tensor, route: Route) -> list[Walk]:
    """The walks of pictures, N,C,H,W, along a route to its last glimpse; of each picture one."""
    (module, route), antialias = stepping(network, route), bool(getattr(network.module, "antialias", True))
    with as_found(network), torch.no_grad():
        walks = [module.descend(Pixels(picture, antialias), route) for picture in batch.unsqueeze(1)]
        module.advance(walks)
        while going := [
            walk for walk in walks if walk.pending is not None and walk.walk.glimpses < (route.glimpses or 0)
        ]:
            module.advance(going)
    return [walk.walk for walk in walks]


def certain(network: Network, walk: Walk, certainty: Certainty | None = None) -> Tensor:
    """Calibrated probabilities after each thing read: N,V,classes; by another calibration than the network's, maybe."""
    known = cast(Stepping, network.module).certainty if certainty is None else certainty
    return _shares(walk.after, known)


def _shares(after: Tensor, certainty: Certainty) -> Tensor:
    return torch.stack([certainty(logits, things) for things, logits in enumerate(after.unbind(1), 1)], 1)


def fit(after: Tensor, labels: Tensor) -> list[float]:
    """The rule of Certainty of the greatest likelihood: N,V,classes logits after one, two, … things read, N labels."""
    share = 1 / torch.arange(1, after.shape[1] + 1, dtype=torch.float64)
    truth = labels.repeat_interleave(after.shape[1])

    def loss(rule: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        numbers = torch.tensor(rule, requires_grad=True)
        with torch.enable_grad():
            scaled = after / (numbers[0] + numbers[1] * share).exp()[None, :, None]
            value = torch.nn.functional.cross_entropy(scaled.flatten(0, 1), truth)
            (slope,) = torch.autograd.grad(value, numbers)
        return value.item(), slope.numpy()

    found = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-WIDEST, WIDEST)] * 2)
    return [float(number) for number in found.x]


def scored(after: Tensor, labels: Tensor, certainty: Certainty) -> tuple[float, float]:
    """Negative log-likelihood and expected calibration error, over pictures and things read."""
    shares = _shares(after, certainty)
    best, answer = shares.max(2)  # N,V  N,V
    of_truth = shares.gather(2, labels.view(-1, 1, 1).expand(-1, shares.shape[1], 1))
    right = answer == labels[:, None]
    return float(-of_truth.clamp_min(1e-30).log().mean()), calibration_error(best.numpy(), right.numpy())


def reliability(certainty: NDArray[Any], right: NDArray[Any]) -> list[tuple[int, float, float]]:
    """Of each bin of certainty that has any: how many, their mean certainty, and how many of them were right."""
    bins = np.minimum((certainty.ravel() * BINS).astype(int), BINS - 1)
    chosen = [(certainty.ravel()[bins == i], right.ravel()[bins == i]) for i in range(BINS)]
    return [(len(sure), float(sure.mean()), float(true.mean())) for sure, true in chosen if len(sure)]


def calibration_error(certainty: NDArray[Any], right: NDArray[Any]) -> float:
    """Expected: how far certainty is from the share that was right, over 15 bins of equal width."""
    return sum(count * abs(sure - true) for count, sure, true in reliability(certainty, right)) / certainty.size
