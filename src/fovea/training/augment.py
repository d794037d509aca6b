"""Random crops, flips and colors of a batch, on the device that holds it.

Everything random is drawn as plain numbers per picture before anything is decoded, from the seed and the step alone: a
run that goes on after a kill, or in more processes, sees the same pictures. What is hidden of a batch is drawn by each
process from the common generator, which the step seeds, as mixing is."""

import math
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from fovea.pictures import constant, cut
from fovea.training.kernels import resized, turned
from fovea.training.recipe import AugmentPart
from fovea.training.repeatable import generator

FIRST = 8  # random numbers a picture: area, aspect, x, y, flip, brightness, contrast, saturation
THEN = 3  # then: added brightness, hue, the kernel that it is resized by


def draw(count: int, seed: int, step: int) -> Tensor:
    """Random numbers for every picture of a step, in [0, 1)."""
    first = torch.rand(count, FIRST, generator=generator(seed, step))
    return torch.cat([first, torch.rand(count, THEN, generator=generator(seed, step, 3))], 1)  # N,11


def draw_more(count: int, seed: int, step: int) -> Tensor:
    """Two more for every picture, beside which the others stay as they are."""
    return torch.rand(count, 2, generator=generator(seed, step, 2))  # N,2


def crops(draws: Tensor, sizes: Tensor, part: AugmentPart) -> Tensor:
    """Windows to cut out, as x0 y0 x1 y1 in shares of each picture's width and height; `sizes` are N,2 (w, h). Area and
    aspect are as in Inception's random crops; a window that would not fit is made as wide or high as fits."""
    area = part.area[0] + draws[:, 0] * (part.area[1] - part.area[0])
    aspect = torch.ones_like(area)  # in shares: the picture's own shape
    if part.aspect is not None:
        low, high = map(math.log, part.aspect)
        aspect = torch.exp(low + draws[:, 1] * (high - low)) * sizes[:, 1] / sizes[:, 0]
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    x, y = draws[:, 2] * (1 - width), draws[:, 3] * (1 - height)
    return torch.stack([x, y, x + width, y + height], 1)  # N,4


def kernels(draws: Tensor, part: AugmentPart) -> Tensor | None:
    """The numbers that draw each picture's kernel, where the recipe asks for any but the usual one."""
    return draws[:, 10] if part.kernels else None


def cut_out(
    pictures: Tensor, windows: Tensor, flips: Tensor, size: tuple[int, int], kernels: Tensor | None = None
) -> Tensor:
    """Windows of pictures held as bytes (N,C,h,w), resized to `size` and flipped where asked: N,C,H,W in 0..255.
    Bilinearly, or each by the kernel that its number of `kernels` (N) draws."""
    if kernels is not None:
        return resized(pictures, windows, flips, size, kernels)
    if windows.device.type == "cpu" and pictures.shape[2:] == size:  # a GPU would be waited for
        whole = windows.new_tensor([0.0, 0.0, 1.0, 1.0])
        if bool((windows == whole).all()) and not bool(flips.any()):
            return pictures.float()
    return cut(pictures.float(), windows, size, flips)


def recolor(pixels: Tensor, draws: Tensor, part: AugmentPart) -> Tensor:
    """Brightness, contrast and saturation of each picture by a factor in 1 ± its setting (N,C,H,W in 0..255), before
    contrast as much light added to all of it as `brightness_added` allows, at last the hue turned."""
    if not (part.brightness or part.contrast or part.saturation or part.brightness_added or part.hue):
        return pixels
    spread = constant((part.brightness, part.contrast, part.saturation), draws.device, draws.dtype)
    factor = 1 + (2 * draws[:, 5:8] - 1) * spread
    light, contrast, color = (one.view(-1, 1, 1, 1) for one in factor.unbind(1))
    pixels = pixels * light
    if part.brightness_added:
        pixels = pixels + ((2 * draws[:, 8] - 1) * part.brightness_added * 255).view(-1, 1, 1, 1)
    pixels = pixels.clamp(0, 255)
    mean = _gray(pixels).mean((2, 3), keepdim=True)
    pixels = (mean + (pixels - mean) * contrast).clamp(0, 255)
    gray = _gray(pixels)
    pixels = (gray + (pixels - gray) * color).clamp(0, 255)
    return turned(pixels, (2 * draws[:, 9] - 1) * part.hue) if part.hue and pixels.shape[1] == 3 else pixels


def hidden(inputs: Tensor, part: AugmentPart) -> Tensor:
    """Hide-and-Seek (Singh and Lee 2017): a grid over each picture, of a size drawn for it, whose squares are each
    hidden with the chance `hide`. Inputs are normalized, N,C,H,W: what is hidden has the mean color, 0."""
    if not part.hide:
        return inputs
    count, _, height, width = inputs.shape
    sizes = torch.randint(len(part.hide_sizes), (count,), device=inputs.device)
    shown = inputs.new_ones(count, 1, height, width)
    for i, side in enumerate(part.hide_sizes):
        if side:
            grid = torch.rand(count, 1, -(-height // side), -(-width // side), device=inputs.device) >= part.hide
            squares = grid.repeat_interleave(side, 2).repeat_interleave(side, 3)[:, :, :height, :width]
            shown = torch.where((sizes == i).view(-1, 1, 1, 1), squares.to(shown.dtype), shown)
    return inputs * shown


def mixing(part: AugmentPart, classes: int) -> Any:
    """Mixup, cutmix, or either in turn (torchvision); targets become shares of classes."""
    kinds = ((v2.MixUp, part.mixup), (v2.CutMix, part.cutmix))
    chosen = [kind(alpha=alpha, num_classes=classes) for kind, alpha in kinds if alpha > 0]
    return v2.RandomChoice(chosen) if chosen else lambda inputs, target: (inputs, target)


def _gray(pixels: Tensor) -> Tensor:
    """Luma (ITU-R 601)."""
    if pixels.shape[1] != 3:
        return pixels
    return (pixels * constant((0.299, 0.587, 0.114), pixels.device, pixels.dtype).view(1, 3, 1, 1)).sum(1, keepdim=True)
