"""Integrated gradients (Sundararajan et al. 2017), by captum."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fovea.basics import Bound
from fovea.heatmaps import Aim, Finding, Look, method
from fovea.heatmaps.pixels import Scored, attributed, captum


@method(
    "integrated-gradients",
    about="gradients added up on the way from gray to the picture",
    costly=True,
    on="pixels",
    paper="Sundararajan et al. 2017",
    takes="32 passes there and back",
    needs="captum (fovea[attributions])",
)
@dataclass(frozen=True)
class IntegratedGradients:
    """IG_i = (x_i - x'_i) times the integral over a in [0, 1] of dy(x' + a (x - x')) / dx_i (Eq. 1), in `steps` steps
    by Gauss-Legendre; a pixel's value is the sum over its channels. The baseline x' is 0 after normalization, the mean
    gray. All pixels together make up y(x) - y(x')."""

    steps: Annotated[int, Bound(1, 10_000)] = 32

    name = "integrated-gradients"

    def passes(self, look: Look) -> int:
        return 3 * self.steps  # a backward pass takes about two forward ones

    def __call__(self, look: Look, aim: Aim) -> Finding:
        method = captum().IntegratedGradients(Scored(look, aim, self.steps))

        def attribute(x: Tensor) -> Tensor:
            at_once = look.at_once * len(x)
            return method.attribute(x, n_steps=self.steps, internal_batch_size=at_once)

        return attributed(look, attribute, signed=True)
