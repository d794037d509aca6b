"""MNIST: the four idx files, gzipped or not."""

import math
import struct
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BadChoice, within
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import at_most, unzipped
from fovea.data.samples import DataSet, of_arrays

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
AXES, MOST = 4, 1 << 30  # of an idx file: axes, and values


def is_mnist(folder: Path) -> bool:
    return any(_file(folder, name) for names in FILES.values() for name in names)


@layout("mnist", about="digits, 28 x 28: the four idx files", recognizes="is_mnist")
def open_mnist(folder: Path, *, split: str | None = None) -> DataSet:
    """28 x 28 digits, split=train (60,000) or test (10,000); white on black, no boxes."""
    return of_arrays("mnist", splits_asked("mnist", split, tuple(FILES)), partial(read_digits, folder), 5)


def read_digits(folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """N,28,28 and N."""
    found = [_file(folder, name) for name in FILES[split]]
    missing = [name for name, path in zip(FILES[split], found, strict=True) if path is None]
    if missing:
        raise BadChoice(f"mnist is incomplete: {', '.join(missing)} (or .gz) not in {folder}")
    images, labels = (read_idx(path) for path in found if path is not None)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise BadChoice(f"mnist in {folder} is inconsistent: {images.shape} pictures, {labels.shape} labels")
    return images, labels


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Two zero bytes, 8 for unsigned bytes, the number of axes, their lengths as big-endian 32 bits, the values."""
    try:
        with unzipped(path) as file:
            zero, kind, axes = struct.unpack(">HBB", file.read(4))
            if zero or kind != 8 or axes > AXES:
                raise ValueError("it does not begin as an idx file of bytes does")
            shape = struct.unpack(f">{axes}I", file.read(4 * axes))
            within("the number of values", math.prod(shape), 0, MOST)
            data = at_most(file, math.prod(shape) + 1)  # one more would be too many
        return np.frombuffer(data, np.uint8).reshape(shape)
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise BadChoice(f"{path} is damaged or cut short: {error}") from None


def _file(folder: Path, name: str) -> Path | None:
    """Also in raw/ or MNIST/raw/, where torchvision puts them, and as 'images.idx3', as some unpackers name them."""
    names = [name, name.replace("-idx", ".idx")]
    where = [folder / sub / (file + end) for sub in ("", "raw", "MNIST/raw") for file in names for end in ("", ".gz")]
    return next((path for path in where if path.is_file()), None)
