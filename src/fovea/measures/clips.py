"""Clips: is the nearest clip of the same class, and do the maps of its frames sit on what moves? (L2-CAF 4.3)"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import BadChoice
from fovea.data import Box, Shot, Shots, boxes_of
from fovea.heatmaps import HeatMaps, Method, look_at
from fovea.measures import Figures, Run, measure
from fovea.measures.localized import named
from fovea.measures.patch_parts import inside_any
from fovea.measures.retrieval import distance_of
from fovea.models.videonet import video_of
from fovea.networks import Network
from fovea.pictures import Placement, Shown
from fovea.retrieval import STARTS, lengths, nmi, ranks


@measure(
    "clips",
    title="Clips: retrieval by motion, and maps on what moves",
    about="Whether the nearest clip is of the same class (recall at 1, NMI), and whether the heatmaps of its frames "
    "lie on what moves.",
    example="--net videonet-digits",
    data="clips",
    usual={"net": ("videonet-digits",), "data": "moving:split=test,count=500"},
    columns=("net", "clips", "frames", "classes", "recall_at_1", "nmi", "method", "in_box", "chance"),
)
def clips(
    run: Run,
    *,
    method: Sequence[str | Method] = ("l2caf-oblivious", "gradcam", "gradcam-abs"),  # Eqs. 1, 6 and 7
    batch: int = 32,
    seed: int = 0,
) -> Figures:
    """One row per method. `in_box`: the share of frames whose map has its maximum, on the frame's own pixels, in the
    box of what moves; `chance` is that of a cell chosen at random. A blank map has no maximum."""
    network, data, methods = run.network, run.opened, named(method)
    video_of(network)
    labels = np.array([shot.label for shot in data.samples])
    classes, members = np.unique(labels, return_counts=True)
    if min(len(classes), members.max()) < 2:
        raise BadChoice(f"retrieval needs two classes, and two clips of the same class; {data.name} has fewer")
    vectors: list[NDArray[np.float64]] = []
    hits: dict[str, list[list[bool]]] = {one.name: [] for one in methods}  # N of T
    chances: list[float] = []
    for shots, batch_of_clips, shown in _prepared(network, data, batch):
        maps, output = look_at(network, batch_of_clips, shown, methods, "output")
        vectors.append(output.double().cpu().numpy())
        for i, shot in enumerate(shots):
            boxes, placement = boxes_of(shot.frames), shown[i].placement
            if boxes is not None and placement is not None:
                grid = next(iter(maps.values())).grid
                chances += [float(cells_in(grid, placement, box).mean()) for box in boxes]
                for name, found in maps.items():
                    hits[name].append([_hit(found, i, frame, box) for frame, box in enumerate(boxes)])
        run.progress(sum(map(len, vectors)), len(data))
    unit = lengths(np.concatenate(vectors), True)
    about = {
        "net": network.name or "network",
        "data": data.name,
        "clips": len(data),
        "frames": len(data.samples[0].frames),
        "classes": len(classes),
        "recall_at_1": float((ranks(unit, labels) < 1).mean()),
        "nmi": nmi(unit, labels, seed),
    }
    chance = float(np.mean(chances)) if chances else None
    means = {name: float(np.mean(found)) if found else None for name, found in hits.items()}
    rows = [{**about, "method": name, "in_box": mean, "chance": chance} for name, mean in means.items()]
    shares = {name: np.mean(found, axis=0).tolist() for name, found in hits.items() if found}  # T each
    told = [(name, frame, share) for name, own in shares.items() for frame, share in enumerate(own)]
    by_frame = [dict(zip(("method", "frame", "in_box"), row, strict=True)) for row in told]
    settings = {
        "data": data.name,
        "distance": distance_of(True),
        "nmi": f"I / sqrt(H H), K-means with K the number of classes, best of {STARTS} starts, seed {seed}",
        "in_box": "of all frames, those whose map has its maximum on the frame's own pixels in the true box",
        "chance": "the mean share of a frame's cells that have their middle in the true box",
    }
    return Figures("clips", settings, rows, details={"by_frame": by_frame})


def _prepared(network: Network, data: Shots, batch: int) -> Iterator[tuple[tuple[Shot, ...], Tensor, list[Shown]]]:
    for start in range(0, len(data), batch):
        shots = data.samples[start : start + batch]
        clips, shown = [], []
        for shot in shots:
            ready = [network.prepare(frame.read()) for frame in shot.frames]
            clips.append(torch.stack([tensor for tensor, _ in ready]))
            shown.append(Shown(shot.name, ready[0][1], clips[-1]))
        yield shots, torch.stack(clips).to(network.device, network.dtype), shown  # N,T,C,H,W


def _hit(found: HeatMaps, clip: int, frame: int, box: Box) -> bool:
    values = found.pixels(clip, 0, frame)  # H,W
    y, x = np.unravel_index(values.argmax(), values.shape)
    return bool(values[y, x] > 0 and inside_any(np.array([[x + 0.5, y + 0.5]]), [box])[0])


def cells_in(grid: tuple[int, ...], placement: Placement, box: Box) -> NDArray[np.bool_]:
    """Which cells of a grid have their middle in a box of the user's pixels (h,w)."""
    ends = []
    for axis, cells, low, high in ((1, grid[0], box[1], box[3]), (0, grid[1], box[0], box[2])):
        middle = (np.arange(cells) + 0.5) * placement.input[axis] / cells * placement.scale[axis]
        middle += placement.offset[axis]
        ends.append((low <= middle) & (middle < high))
    return np.logical_and.outer(*ends)
