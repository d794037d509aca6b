"""Eight ways to resize, one drawn for each picture, as TNet's training does (B.2), so that a network does not rest on
what one of them does to pixels; and hues turned. The kernels are those of TensorFlow's `tf.image.resize`, of which
`area` alone averages all that a smaller picture leaves out."""

from collections.abc import Callable

import torch
from torch import Tensor

Kernel = Callable[[Tensor, Tensor], Tensor]  # of how far pixels lie behind a wanted one's middle, and half its width


def _cubic(b: float, c: float) -> Kernel:
    """Mitchell and Netravali 1988."""

    def weigh(apart: Tensor, half: Tensor) -> Tensor:
        x = apart.abs()
        near = (12 - 9 * b - 6 * c) * x**3 + (12 * b + 6 * c - 18) * x**2 + 6 - 2 * b
        far = -(b + 6 * c) * x**3 + (6 * b + 30 * c) * x**2 - (12 * b + 48 * c) * x + 8 * b + 24 * c
        return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x))) / 6

    return weigh


def _lanczos(radius: int) -> Kernel:
    return lambda x, half: torch.where(x.abs() < radius, torch.sinc(x) * torch.sinc(x / radius), torch.zeros_like(x))


KERNELS: dict[str, Kernel] = {
    "bilinear": lambda x, half: (1 - x.abs()).clamp_min(0),
    "nearest": lambda x, half: ((x > -0.5) & (x <= 0.5)).to(x.dtype),  # the pixel that the middle lies in
    "bicubic": _cubic(0, 0.5),  # Keys
    "area": lambda x, half: (half + 0.5 - x.abs()).clamp_min(0).minimum((2 * half).clamp_max(1)),  # what is covered
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
    "mitchell": _cubic(1 / 3, 1 / 3),
    "gaussian": lambda x, half: torch.where(x.abs() < 1.5, torch.exp(-2 * x**2), torch.zeros_like(x)),  # σ = 0.5
}


def resized(pictures: Tensor, windows: Tensor, flips: Tensor, size: tuple[int, int], draws: Tensor) -> Tensor:
    """Windows of N,C,h,w (x0 y0 x1 y1 in shares), each resized by a kernel that its number in [0, 1) draws, and flipped
    where asked: N,C,H,W, in 0..255."""
    chosen = (draws * len(KERNELS)).long().clamp(max=len(KERNELS) - 1)
    x0, y0, x1, y1 = windows.unbind(1)
    across = _weights(x0, x1, pictures.shape[3], size[1], chosen)  # N,W,w
    down = _weights(y0, y1, pictures.shape[2], size[0], chosen)  # N,H,h
    across = torch.where(flips[:, None, None], across.flip(1), across)
    return torch.einsum("nyh,nchw,nxw->ncyx", down, pictures.to(down.dtype), across).clamp(0, 255)


def _weights(start: Tensor, end: Tensor, length: int, wanted: int, chosen: Tensor) -> Tensor:
    """What each of the `length` pixels along a side adds to each of the `wanted` ones of a window: N,wanted,length."""
    steps = (torch.arange(wanted, device=start.device) + 0.5) / wanted
    middles = (start[:, None] + steps * (end - start)[:, None]) * length  # N,wanted
    apart = torch.arange(length, device=start.device) + 0.5 - middles[:, :, None]  # N,wanted,length
    half = ((end - start) * length / wanted)[:, None, None] / 2
    found = torch.zeros_like(apart)
    for number, kernel in enumerate(KERNELS.values()):
        found = torch.where((chosen == number)[:, None, None], kernel(apart, half), found)
    return found / found.sum(2, keepdim=True)


def turned(pixels: Tensor, shift: Tensor) -> Tensor:
    """Color pictures (N,3,H,W in 0..255), their hue turned by a share of the circle (N); the rest stays as it is."""
    most, least = pixels.amax(1), pixels.amin(1)  # N,H,W
    spread = most - least
    red, green, blue = pixels.unbind(1)
    divisor = torch.where(spread > 0, spread, torch.ones_like(spread))
    hue = torch.where(
        most == red,
        (green - blue) / divisor,
        torch.where(most == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )  # in sixths of the circle
    place = torch.stack([hue + shift.view(-1, 1, 1) * 6 + own for own in (5, 3, 1)], 1) % 6  # of red, green and blue
    strength = torch.minimum(place, 4 - place).clamp(0, 1)
    return most.unsqueeze(1) - spread.unsqueeze(1) * strength
