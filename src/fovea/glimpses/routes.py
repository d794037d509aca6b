"""Walks that follow a route: thing by thing, until the answer is certain or a budget is spent."""

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple, cast

import torch

from fovea.basics import BadChoice
from fovea.models.glimpsing import Route, Scene, Stepping, Walk, Walking
from fovea.networks import Network, as_found

LAST = 3  # glimpses whose time says how long the next one takes
Work = Callable[[Sequence[int]], int]  # multiplications of a walk that read things of these levels


class Ended(NamedTuple):
    walk: Walk  # of one picture
    why: str  # sure, budget, glimpses, or nothing left


def stepping(network: Network, route: Route) -> tuple[Stepping, Route]:
    """The module of a network that can follow the route, and the route with all that is usual."""
    if not network.can("steps"):
        raise BadChoice(
            f"{network.name or type(network.module).__name__} reads as many glimpses as it is asked for, at once; "
            "until, order, levels and budgets are for a TNet, and until for a Saccader and a DRAM, too"
        )
    module = cast(Stepping, network.module)
    return module, module.routed(route)


def followed(
    network: Network, scenes: Sequence[Scene], route: Route, work: Work, started: float | None = None
) -> list[Ended]:
    """Each picture's walk, all going on together until each has ended. The clock runs from `started` (perf_counter)."""
    module, route = stepping(network, route)
    started = perf_counter() if started is None else started
    with as_found(network), torch.no_grad():
        descents: list[Walking] = [module.descend(scene, route) for scene in scenes]
        ended, going, spent = dict[int, Ended](), list(range(len(scenes))), deque[float](maxlen=LAST)
        while going:
            before = perf_counter()
            module.advance([descents[i] for i in going])
            spent.append(perf_counter() - before)
            for i in going:
                walk = descents[i].walk
                certainty = float(module.certainty(walk.logits[0], len(walk.levels)).max())
                late = perf_counter() + max(spent) - started
                if enough := walk.glimpses >= module.least and _enough(route, descents[i], walk, certainty, work, late):
                    ended[i] = Ended(walk, enough)
            going = [i for i in going if i not in ended]
    return [ended[i] for i in range(len(scenes))]


def _enough(route: Route, descent: Walking, walk: Walk, certainty: float, work: Work, late: float) -> str | None:
    """Why the walk ends here, if it does; `late`: the seconds that would have passed after another glimpse."""
    if route.until is not None and certainty >= route.until:
        return "sure"
    if route.glimpses is not None and walk.glimpses >= route.glimpses:
        return "glimpses"
    if descent.pending is None:
        return "nothing left"
    if route.budget_ms is not None and late * 1000 > route.budget_ms:
        return "budget"
    if route.budget_macs is not None and work((*walk.levels, descent.pending)) > route.budget_macs:
        return "budget"
    return None
