"""The control that a map has to beat: random values in the cells that every other method has, too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fovea.basics import REFERENCE, BadChoice, nearest
from fovea.heatmaps import ALL, Aim, Finding, Look, Method, MethodLike, chosen, find, names, parted

RANDOM = "random"


@dataclass(frozen=True)
class Random:
    """One stream of numbers, picture after picture, so that it does not matter how they are batched."""

    generator: np.random.Generator
    name: str = RANDOM
    oblivious: bool = True

    def __call__(self, look: Look, aim: Aim) -> Finding:
        drawn = self.generator.random((len(look.opened.features), look.opened.layout.cells))
        values = torch.from_numpy(drawn).to(look.output.device, torch.float32)
        return Finding(values, values, solver=RANDOM)


def methods_or_control(given: Sequence[MethodLike], seed: int) -> list[Method]:
    """Methods, all where "all" is said, and the control where it is named; those are left out that do not apply."""
    found = [one for item in given for one in (chosen(ALL) if item == ALL else [_method_or_control(item, seed)])]
    return [replace(one, optional=True) for one in found]


def _method_or_control(given: MethodLike, seed: int) -> Method:
    known = (*names(), RANDOM, ALL)
    if isinstance(given, str) and parted(given)[0] not in known and not REFERENCE.fullmatch(parted(given)[0]):
        raise BadChoice(f"no method {given!r}{nearest(given, known)} (there are: {', '.join(known)})")
    return find(Random(np.random.default_rng(seed)) if given == RANDOM else given)
