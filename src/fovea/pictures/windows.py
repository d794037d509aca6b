"""Windows cut out of a batch of pictures, so that gradients reach the pictures and the windows."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def sent(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device, without waiting for what it does, as a plain copy to a GPU would."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def constant(
    values: Sequence[float] | Sequence[Sequence[float]], device: torch.device, dtype: torch.dtype | None = None
) -> Tensor:
    """Numbers on a device, which is not waited for."""
    return sent(torch.tensor(values, dtype=dtype), device)


def cut(pictures: Tensor, windows: Tensor, size: tuple[int, int], flips: Tensor | None = None) -> Tensor:
    """Windows x0 y0 x1 y1 (N,4, in shares of width and height) of N,C,h,w, resized to `size`, flipped where asked."""
    windows = windows.float() if windows.dtype in (torch.float16, torch.bfloat16) else windows
    x0, y0, x1, y1 = windows.unbind(1)
    sign = torch.ones_like(x0) if flips is None else 1 - 2 * flips.to(windows.dtype)
    zero = torch.zeros_like(x0)
    across = torch.stack([(x1 - x0) * sign, zero, x0 + x1 - 1], 1)
    down = torch.stack([zero, y1 - y0, y0 + y1 - 1], 1)
    grid = F.affine_grid(torch.stack([across, down], 1), [len(pictures), 1, *size], align_corners=False)
    # places are told apart in single precision at least, whatever pictures are in
    found = F.grid_sample(pictures.to(grid.dtype), grid, padding_mode="border", align_corners=False)
    return found.to(pictures.dtype)


def middle(count: int, share: float, like: Tensor) -> Tensor:
    """The window in the middle that is this share of each side: count,4."""
    edge = (1 - share) / 2
    return constant((edge, edge, 1 - edge, 1 - edge), like.device, like.dtype).expand(count, 4)


def inside(inner: Tensor, outer: Tensor) -> Tensor:
    """Windows given in shares of other windows, in shares of the pictures that those are of: N,4."""
    corner, extent = outer[:, :2].repeat(1, 2), (outer[:, 2:] - outer[:, :2]).repeat(1, 2)
    return corner + inner * extent


def pixels(batch: Tensor, which: Tensor, corners: Tensor, size: tuple[int, int]) -> Tensor:
    """Windows of whole pixels out of N,C,H,W: of picture `which` (M), from a top left corner x y (M,2): M,C,h,w.

    Zeros where a window reaches over the edge."""
    height, width = batch.shape[2:]
    which, corners = which.to(batch.device), corners.to(batch.device)
    rows = corners[:, 1, None] + torch.arange(size[0], device=batch.device)  # M,h
    columns = corners[:, 0, None] + torch.arange(size[1], device=batch.device)  # M,w
    rows_in, columns_in = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    found = batch.permute(0, 2, 3, 1)[which[:, None, None], rows_in[:, :, None], columns_in[:, None, :]]  # M,h,w,C
    inside = ((rows == rows_in)[:, :, None] & (columns == columns_in)[:, None, :]).unsqueeze(-1)
    return (found * inside).permute(0, 3, 1, 2)
