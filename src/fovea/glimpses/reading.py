"""Where zooming gets its pixels: windows of one picture, and a count of what was read of any scene."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fovea.basics import area, clipped, union
from fovea.models.glimpsing import Scene
from fovea.pictures import Prepare, Windows

Box = tuple[int, int, int, int]  # x0 y0 x1 y1, half open


@dataclass(frozen=True)
class PictureScene:
    """One picture, decoded or in a file too large to load. No other way leads from a network to its pixels."""

    source: Windows  # upright, RGB
    prepare: Prepare  # how the network learned to see pictures
    device: torch.device
    dtype: torch.dtype
    antialias: bool = True  # as in Pixels

    @property
    def count(self) -> int:
        return 1

    @property
    def size(self) -> tuple[int, int]:
        return self.source.size[1], self.source.size[0]

    def read(self, corners: Tensor, extent: tuple[int, int], side: int) -> Tensor:
        height, width = extent
        boxes = [(int(x), int(y), int(x) + width, int(y) + height) for x, y in corners[0].tolist()]
        return torch.stack([self._window(box, side) for box in boxes]).to(self.device, self.dtype)  # G,C,side,side

    def _window(self, box: Box, side: int) -> Tensor:
        """As the network learned to see it: a window of the picture brought to the network's own size, but with all the
        detail that the picture has; then to side x side."""
        window, inner = (box[2] - box[0], box[3] - box[1]), clipped(box, self.source.size)
        (height, width), whole = self.prepare.size, self.source.size
        learned = (
            max(round(window[0] * width / whole[0]), min(side, window[0])),
            max(round(window[1] * height / whole[1]), min(side, window[1])),
        )
        if inner == box:
            return self._normalized(self.source.read(box, learned, self.prepare.resampling), side)
        # what lies over the edge blends into the border as zeros would, since the mean is 0 once normalized
        color = tuple(round(255 * mean) for mean in self.prepare.mean) * (3 if len(self.prepare.mean) == 1 else 1)
        coarse = [max(length // (2 * size), 1) for length, size in zip(window, learned, strict=True)] * 2
        canvas = Image.new("RGB", (-(-window[0] // coarse[0]), -(-window[1] // coarse[1])), color)
        inside = Image.new("L", canvas.size, 0)
        if area(inner)[0]:
            (x0, y0), (x1, y1) = (
                [(end - start) // by for end, start, by in zip(inner[:2], box, coarse, strict=False)],
                [-((start - end) // by) for end, start, by in zip(inner[2:], box, coarse, strict=False)],
            )
            canvas.paste(self.source.read(inner, (x1 - x0, y1 - y0), self.prepare.resampling), (x0, y0))
            inside.paste(255, (x0, y0, x1, y1))
        canvas, inside = (part.resize(learned, self.prepare.resampling) for part in (canvas, inside))
        any_of_it = np.asarray(self._shrunk(inside, side)) > 0
        return self._normalized(canvas, side) * torch.from_numpy(any_of_it)

    def _normalized(self, window: Image.Image, side: int) -> Tensor:
        small = self._shrunk(window, side)
        small = small.convert("L") if len(self.prepare.mean) == 1 else small
        return self.prepare.normalize(torch.from_numpy(np.array(small)).reshape(side, side, -1).permute(2, 0, 1))

    def _shrunk(self, window: Image.Image, side: int) -> Image.Image:
        if self.antialias:
            whole = window.width % side == 0 and window.height % side == 0  # as glimpsing.resized has it
            return window.resize((side, side), Image.Resampling.BOX if whole else Image.Resampling.BILINEAR)
        steps = (window.width / side, 0, 0, 0, window.height / side, 0)
        return window.transform((side, side), Image.Transform.AFFINE, steps, Image.Resampling.BILINEAR)


@dataclass(frozen=True)
class Blank:
    """A picture of any size with nothing on it, which takes no memory."""

    size: tuple[int, int]
    like: Tensor  # with the channels, type and device of what the network takes: 1,C,1,1
    count: int = 1

    def read(self, corners: Tensor, extent: tuple[int, int], side: int) -> Tensor:
        return self.like.new_zeros(corners.shape[0] * corners.shape[1], self.like.shape[1], side, side)


@dataclass(frozen=True)
class Read:
    """Windows that were asked for at once."""

    corners: Sequence[Sequence[Sequence[float]]]  # N,G,2
    extent: tuple[int, int]
    side: int

    @property
    def resolution(self) -> float:
        """1: every pixel of the picture has one of its own in what the network sees."""
        return min(1.0, self.side / self.extent[0], self.side / self.extent[1])

    def boxes(self, picture: int, size: tuple[int, int]) -> list[Box]:
        """What of one picture is in the windows."""
        height, width = self.extent
        return [
            clipped((int(x), int(y), int(x) + width, int(y) + height), size[::-1]) for x, y in self.corners[picture]
        ]


@dataclass
class Counted:
    """A scene, and all that was read of it."""

    scene: Scene
    reads: list[Read] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.scene.count

    @property
    def size(self) -> tuple[int, int]:
        return self.scene.size

    def read(self, corners: Tensor, extent: tuple[int, int], side: int) -> Tensor:
        self.reads.append(Read(corners.tolist(), extent, side))
        return self.scene.read(corners, extent, side)

    def size_of(self, picture: int, box: Box) -> tuple[int, int]:
        """Width and height in pixels that a part of a picture was read at: by the finest window around it."""
        scales = [(0.0, 0.0)]
        for read in self.reads:
            height, width = read.extent
            corners = read.corners[picture]
            if any(x <= box[0] and y <= box[1] and box[2] <= x + width and box[3] <= y + height for x, y in corners):
                scales.append((min(1.0, read.side / width), min(1.0, read.side / height)))
        across, down = max(scales)
        return max(round((box[2] - box[0]) * across), 1), max(round((box[3] - box[1]) * down), 1)

    def pixels(self, picture: int) -> int:
        """Pixels of the picture in all windows together, once for every window they are in."""
        boxes = [box for read in self.reads for box in read.boxes(picture, self.size)]
        return int(area(boxes).sum())

    @property
    def resolution(self) -> float:
        """The finest at which anything was read; 1 is the picture's own."""
        return max(read.resolution for read in self.reads)

    def share(self, picture: int) -> float:
        """How much of the picture was read at that resolution."""
        finest = [read for read in self.reads if read.resolution == self.resolution]
        boxes = [box for read in finest for box in read.boxes(picture, self.size)]
        return union(boxes) / (self.size[0] * self.size[1])
