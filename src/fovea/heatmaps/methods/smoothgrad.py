"""SmoothGrad (Smilkov et al. 2017): the gradient of captum's Saliency, of noisy copies of the picture."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fovea.basics import Bound
from fovea.heatmaps import Aim, Finding, Look, method
from fovea.heatmaps.pixels import Scored, attributed, captum


@method(
    "smoothgrad",
    about="the mean gradient of noisy copies",
    costly=True,
    on="pixels",
    paper="Smilkov et al. 2017",
    takes="32 passes there and back",
    needs="captum (fovea[attributions])",
)
@dataclass(frozen=True)
class SmoothGrad:
    """1/n sum_1^n dy(x + g)/dx with g ~ N(0, σ²), over `samples` copies; a pixel's value is the sum of the sizes over
    its channels. σ is `noise` times the range of the picture's values. The same noise, drawn from `seed`, is added to
    every picture."""

    samples: Annotated[int, Bound(1, 100_000)] = 32
    noise: Annotated[float, Bound(0, 10, real=True)] = 0.15
    seed: Annotated[int, Bound(0, 2**32)] = 0

    name = "smoothgrad"

    def passes(self, look: Look) -> int:
        return 3 * self.samples

    def __call__(self, look: Look, aim: Aim) -> Finding:
        saliency = captum().Saliency(Scored(look, aim, self.samples))
        generator = torch.Generator().manual_seed(self.seed)

        def attribute(x: Tensor) -> Tensor:
            x = x.detach()
            spread = self.noise * (x.flatten(1).amax(1) - x.flatten(1).amin(1)).view(-1, *[1] * (x.ndim - 1))
            total = torch.zeros_like(x)
            for start in range(0, self.samples, look.at_once):
                count = min(look.at_once, self.samples - start)
                noise = torch.randn(count, 1, *x.shape[1:], generator=generator).to(x)
                noisy = (x + noise * spread).flatten(0, 1).requires_grad_()
                total += saliency.attribute(noisy, abs=False).view(count, *x.shape).sum(0)
            return total / self.samples

        return attributed(look, attribute, signed=False)
