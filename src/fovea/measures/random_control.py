"""The control that a map has to beat: random values in the cells that every other method has, too."""

from dataclasses import dataclass

import numpy as np
import torch

from fovea.basics.errors import BadChoice, nearest
from fovea.heatmaps.explain import METHODS, Method, find
from fovea.heatmaps.look import Found, Look
from fovea.heatmaps.targets import Aim

RANDOM = "random"


@dataclass(frozen=True)
class Random:
    """One stream of numbers, picture after picture, so that it does not matter how they are batched."""

    generator: np.random.Generator
    name: str = RANDOM
    oblivious: bool = True

    def __call__(self, look: Look, aim: Aim) -> Found:
        drawn = self.generator.random((len(look.opened.features), look.opened.layout.cells))
        values = torch.from_numpy(drawn).to(look.output.device, torch.float32)
        return Found(values, values, solver=RANDOM)


def method_or_control(given: str | Method, seed: int) -> Method:
    """A method of fovea by name or as it is, or the control."""
    if not isinstance(given, str):
        return given
    known = (*METHODS, RANDOM)
    if given not in known:
        raise BadChoice(f"no method {given!r}{nearest(given, known)} (there are: {', '.join(known)})")
    return Random(np.random.default_rng(seed)) if given == RANDOM else find(given)
