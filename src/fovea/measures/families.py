"""L2-CAF's time over families of networks (paper Fig. 12): vanilla, fast and exact, and Grad-CAM.

Vanilla and fast descend alike, so the fast one tells how many iterations both take; the vanilla one, which runs the
whole network at each, is timed over a few and multiplied. The exact one has no iterations.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice
from fovea.heatmaps.explain import METHODS, explain
from fovea.heatmaps.heatmap import HeatMap
from fovea.heatmaps.iterative import PAPER
from fovea.heatmaps.methods.l2caf import L2CAF
from fovea.measures.figures import Figures
from fovea.measures.speed import threads
from fovea.networks.loading import OFFLINE, load, ours
from fovea.networks.network import Network

FAMILIES = (
    "torchvision/vgg16",
    "gap/torchvision/vgg16",
    "torchvision/googlenet",
    "torchvision/resnet50",
    "torchvision/densenet161",
    "efficientnet_lite0",
)
WAYS = ("vanilla l2caf", "fast l2caf", "exact l2caf", "gradcam")
FEW, HUNDRED, MOST = 10, 100, 300  # iterations: timed of the vanilla one, that families are compared by, of a descent
CLASSES = 1000  # of the networks that are untrained
Call = Callable[[], HeatMap]


@dataclass(frozen=True)
class Timed:
    """Seconds of a call with n iterations are `first` + (n - 1) `each`."""

    first: float
    each: float = 0.0

    def of(self, iterations: int) -> float:
        return self.first + (iterations - 1) * self.each


def measure(
    nets: Sequence[str] = FAMILIES,
    rounds: int = 5,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Figures:
    """A row a network and way. Networks without weights at hand are untrained, which changes iterations, not times."""
    if not nets or rounds < 1:
        raise BadChoice(f"name one or more networks, and one round or more; got {list(nets)} and {rounds}")
    rows: list[dict[str, Any]] = []
    counter = itertools.count(1)

    def counted() -> None:
        progress(next(counter), len(nets) * len(WAYS))

    for name in nets:
        network = _loaded(name, seed)
        pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(seed))
        rows += _rows(network, pixels, rounds, counted)
    settings = {
        "input": "one picture, 224 x 224",
        "problem": "Eq. 1, the whole output",
        "stop": f"the loss changes by less than {PAPER.tolerance:g} over {PAPER.window} iterations (paper 3.1), {MOST} "
        "at the most",
        "seconds": "the whole call, with the iterations that the rule takes",
        f"seconds_{HUNDRED}": f"the same with {HUNDRED} iterations, so that families compare",
        "x_forward": f"of seconds_{HUNDRED}, to a bare forward",
        "untrained": "networks without weights at hand: times do not depend on weights, iterations do",
        "rounds": rounds,
        "threads": threads(),
        "device": "cpu",
    }
    return Figures("bench families", settings, rows)


def _loaded(name: str, seed: int) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        at_hand = name in OFFLINE or name in ours()
        return load(name, pretrained=at_hand, classes=None if at_hand else CLASSES)


def _rows(network: Network, pixels: Tensor, rounds: int, done: Callable[[], None]) -> list[dict[str, Any]]:
    """`done` is called after each of the ways."""
    oblivious = METHODS["l2caf-oblivious"]
    assert isinstance(oblivious, L2CAF)
    bare: list[float] = []

    def descending(solver: Any, most: int) -> Call:
        return partial(explain, network, pixels, replace(oblivious, solver=solver, descent=replace(PAPER, most=most)))

    def finished() -> None:
        bare.extend(_seconds(partial(_forward, network, pixels))[0] for _ in range(rounds))  # as busy as it is by now
        done()

    found: dict[str, tuple[Timed, int | None, str | None]] = {}
    gradcam: Call = partial(explain, network, pixels, "gradcam", "output")
    gradcam()  # the network is cut, which is done once
    found["gradcam"] = Timed(_median(gradcam, rounds)), None, None
    finished()
    if explain(network, pixels, oblivious).solver == "exact":
        found["exact l2caf"] = Timed(_median(partial(explain, network, pixels, oblivious), rounds)), None, None
    finished()
    one = _median(descending("iterative", 1), rounds)
    seconds, seen = _seconds(descending("iterative", MOST))
    count = int(seen.iterations)
    told = None if count < MOST else f"stopped at {MOST} iterations"
    found["fast l2caf"] = Timed(one, max(seconds - one, 0.0) / max(count - 1, 1)), count, told
    finished()
    one = _median(descending("vanilla", 1), min(rounds, 3))
    seconds, _ = _seconds(descending("vanilla", FEW + 1))
    told = f"timed {FEW} of {count} iterations" if count > FEW else None
    found["vanilla l2caf"] = Timed(one, max(seconds - one, 0.0) / FEW), count, told
    finished()
    return [_row(network, way, median(bare), *found[way]) for way in WAYS if way in found]


def _forward(network: Network, pixels: Tensor) -> Tensor:
    with torch.no_grad():
        return network(pixels)


def _row(network: Network, way: str, bare: float, found: Timed, count: int | None, told: str | None) -> dict[str, Any]:
    hundred = found.of(HUNDRED)
    return {
        "net": network.name,
        "method": way,
        "iterations": count,
        "seconds": found.of(count or 1),
        f"seconds_{HUNDRED}": hundred,
        "ms_per_iteration": found.each * 1e3 if count is not None else None,
        "x_forward": hundred / bare,
        "note": told,
    }


def _median(call: Callable[[], Any], rounds: int) -> float:
    return median(_seconds(call)[0] for _ in range(rounds))


def _seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found
