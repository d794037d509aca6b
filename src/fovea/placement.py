"""Where the network's input lies in the user's picture, and maps carried over to the user's pixels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Placement:
    """Which part of the user's picture the network's input shows: user = input * scale + offset, in x and in y."""

    picture: tuple[int, int]  # width, height in the user's pixels
    input: tuple[int, int]  # width, height in the network's
    scale: tuple[float, float]
    offset: tuple[float, float]

    @staticmethod
    def identity(width: int, height: int) -> "Placement":
        return Placement((width, height), (width, height), (1.0, 1.0), (0.0, 0.0))

    @property
    def window(self) -> tuple[float, float, float, float]:
        """The box of the user's picture that the network was shown."""
        (sx, sy), (ox, oy), (w, h) = self.scale, self.offset, self.input
        xs, ys = sorted((ox, ox + sx * w)), sorted((oy, oy + sy * h))
        return max(xs[0], 0.0), max(ys[0], 0.0), min(xs[1], self.picture[0]), min(ys[1], self.picture[1])


def on_pixels(cells: NDArray[np.float32], placement: Placement) -> NDArray[np.float32]:
    """Bilinear between cell centres, held at the border cells, zero outside what the network was shown."""
    (width, height), (w, h) = placement.picture, placement.input
    rows = weights(height, cells.shape[0], h, placement.scale[1], placement.offset[1])  # H,h
    columns = weights(width, cells.shape[1], w, placement.scale[0], placement.offset[0])  # W,w
    return rows @ cells.astype(np.float32) @ columns.T


def weights(pixels: int, cells: int, length: int, scale: float, offset: float) -> NDArray[np.float32]:
    """How much each cell of an axis counts at each of the user's pixels."""
    inside = (np.arange(pixels) + 0.5 - offset) / scale  # in input pixels
    place = (inside / length * cells - 0.5).clip(0, cells - 1)
    left = np.floor(place).astype(int)
    right = np.minimum(left + 1, cells - 1)
    matrix = np.zeros((pixels, cells), dtype=np.float32)
    index = np.arange(pixels)
    np.add.at(matrix, (index, left), 1 - (place - left))
    np.add.at(matrix, (index, right), place - left)
    matrix[(inside < 0) | (inside > length)] = 0
    return matrix
