"""The control that a map has to beat: random values in the cells that every other method has, too."""

from dataclasses import dataclass

import numpy as np
import torch

from fovea.basics import REFERENCE, BadChoice, nearest
from fovea.heatmaps import Aim, Finding, Look, MethodLike, names
from fovea.heatmaps.methods import Method, find

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


def method_or_control(given: MethodLike, seed: int) -> Method:
    """A method by name or as it is, or the control."""
    known = (*names(), RANDOM)
    if isinstance(given, str) and given not in known and not REFERENCE.fullmatch(given):
        raise BadChoice(f"no method {given!r}{nearest(given, known)} (there are: {', '.join(known)})")
    return find(Random(np.random.default_rng(seed)) if given == RANDOM else given)
