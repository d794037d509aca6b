"""A localizer inside a two-stream network, trained through the patch that it cuts."""

import torch
from torch import Tensor, nn

SMALLEST = 0.15  # side of a window, as a share of what the global stream sees


class Localizer(nn.Module):
    """The thesis' future work: a localizer inside the network, trained through the patch that it cuts. A 1x1
    convolution of the global stream's map and a softmax give a probability a cell; the window is around its mean,
    `reach` standard deviations to each side, so that every pixel of the patch tells it where to move."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.score = nn.Conv2d(channels, 1, 1)
        nn.init.zeros_(self.score.weight)  # at first every cell alike: nearly all that the global stream sees
        self.reach = nn.Parameter(torch.tensor(0.9 * 3**0.5))  # of a uniform density, nine tenths of the way out

    def forward(self, features: Tensor) -> Tensor:
        """Windows in shares of what the map is of: N,4."""
        share = self.score(features)[:, 0].float().flatten(1).softmax(1).view(-1, *features.shape[2:])  # N,h,w
        spans = [_span(share.sum(axis), self.reach) for axis in (1, 2)]
        (x0, x1), (y0, y1) = spans
        return torch.stack([x0, y0, x1, y1], 1)


def _span(density: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """From where to where along one axis, inside 0 to 1; `density` is N,n over cells of the same width."""
    n = density.shape[1]
    places = (torch.arange(n, device=density.device) + 0.5) / n
    mean = (density * places).sum(1)
    variance = (density * (places - mean.unsqueeze(1)) ** 2).sum(1) + 1 / (12 * n**2)  # also within a cell
    half = (reach * variance.sqrt()).clamp(SMALLEST / 2, 0.5)
    mean = torch.minimum(torch.maximum(mean, half), 1 - half)
    return mean - half, mean + half
