"""What a costly method will take, said before it starts, to whoever listens."""

from collections.abc import Callable
from time import perf_counter
from typing import cast

import torch
from torch import Tensor

from fovea.basics import announce, duration, is_new
from fovea.heatmaps.look import MOST_ROWS, Look
from fovea.heatmaps.methods import Method

SHORT = 2.0  # seconds per picture that need no words


def announce_cost(method: Method, look: Look, targets: int) -> None:
    """By one timed pass, once per run: "scorecam: 1,280 passes through the whole network, about 40 s per picture"."""
    if not method.costly or not is_new(f"{method.name} {id(look.network)}"):
        return
    passes = method.passes_of(look) * look.steps
    spent = passes * targets * _seconds(method, look)
    if spent > SHORT:
        times = f"{targets} targets, " if targets > 1 else ""
        through = "the layers after the cut" if method.through == "head" else "the whole network"
        hint = f"; {method.instead} takes one" if method.instead else ""
        announce(
            f"{method.name}: {times}{passes:,} passes through {through} per picture, {duration(spent)} per picture"
            f"{hint}"
        )


def _seconds(method: Method, look: Look) -> float:
    """One pass of one picture."""
    device, opened = look.output.device, look.opened
    most = MOST_ROWS.get(device.type, 64)
    if method.through == "head" and not opened.whole:
        given, run = opened.features.detach(), opened.head
        rows = most * look.steps if opened.free else len(given)
    else:
        given, run, rows = look.input, cast(Callable[[Tensor], Tensor], look.network), most
    some = given[:rows]
    with torch.no_grad():
        start = perf_counter()
        run(some.clone()).sum().item()  # a number, so that a GPU is waited for
        return (perf_counter() - start) * look.steps / len(some)
