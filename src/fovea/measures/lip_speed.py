"""What LIP costs, beside Algorithm 1 as a plain loop over the same maps in the same minute."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fovea.measures import Figures, Run, measure
from fovea.measures.timing import seconds
from fovea.patches import lip

MAPS, GRID, SIDE, STEP = 256, (21, 21), 63, 8  # AnchorNet's finest branch at 224 x 224

Box = Sequence[float]


@measure(
    "bench lip",
    title="Time of LIP",
    about="Time of LIP, the rule that picks patches, on 256 maps of 21 x 21 cells, beside the paper's Algorithm 1 as "
    "a plain loop.",
    example="--rounds 9",
    nets="none",
    data="none",
)
def bench_lip(run: Run, *, rounds: int = 9) -> Figures:
    """Both of the paper's settings, on noise and on smooth maps: the median of the rounds' ratios, and equal picks."""
    boxes = lattice(GRID, SIDE, STEP)
    noise = torch.randn(MAPS, 25, 25, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.avg_pool2d(noise[:, None], 5, 1)[:, 0]  # N,21,21
    rows = [
        {"settings": name, "values": kind} | _row(maps, boxes, settings, rounds)
        for name, settings in (("test", lip.for_test(SIDE)), ("training", lip.for_training(SIDE)))
        for kind, maps in (("noise", noise[:, :21, :21].contiguous()), ("smooth", smooth))
    ]
    settings = {
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "box": SIDE,
        "stride": STEP,
        "ratio": "median over rounds of plain loop / fovea.patches.lip.pick",
    }
    return Figures("bench lip", settings, rows)


def lattice(grid: tuple[int, int], side: int, step: int) -> Tensor:
    """A box of this side for each cell: P,4."""
    y, x = (one.reshape(-1) * step for one in torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    return torch.stack([x, y, x + side, y + side], dim=1)


def _row(maps: Tensor, boxes: Tensor, settings: lip.Settings, rounds: int) -> dict[str, Any]:
    tuples = [tuple(box) for box in boxes.tolist()]
    loop = [plain(one, tuples, settings) for one in maps]
    picks = lip.pick(maps, boxes, settings)
    times = []
    for _ in range(rounds):
        slow = seconds(lambda: [plain(one, tuples, settings) for one in maps])
        times.append((slow, seconds(lambda: lip.pick(maps, boxes, settings), rounds=5)))
    return {
        "maps": len(maps),
        "grid": " x ".join(map(str, maps.shape[1:])),
        "k": settings.count,
        "t": settings.overlap,
        "p": settings.share,
        "ms_plain": round(median(slow for slow, _ in times) * 1e3, 3),
        "ms": round(median(fast for _, fast in times) * 1e3, 3),
        "ratio": round(median(slow / fast for slow, fast in times), 1),
        "equal": [[cell for cell in row if cell >= 0] for row in picks.cells.tolist()] == loop,
    }


def plain(values: Tensor, boxes: Sequence[Box], settings: lip.Settings) -> list[int]:
    """Algorithm 1 on one map as it is printed: the cells that are picked."""
    flat = values.flatten().tolist()
    order = sorted(range(len(flat)), key=lambda cell: flat[cell], reverse=True)  # ties stay in reading order
    picked = [order[0]]
    for cell in order[1 : settings.candidates(len(flat))]:
        if len(picked) == settings.count:
            break
        if all(iou(boxes[cell], boxes[other]) < settings.overlap for other in picked):
            picked.append(cell)
    return picked


def iou(a: Box, b: Box) -> float:
    """Eq. 5 for boxes x0 y0 x1 y1."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)
