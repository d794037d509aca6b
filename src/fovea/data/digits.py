"""scikit-learn's digits: 1,797 handwritten digits of 8 x 8 pixels that come with the package, so need no download."""

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BadChoice
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.samples import DataSet, of_arrays

TRAIN = 1437  # four fifths; in the package's order, since neighbors are of one writer


@layout("digits", about="digits, 8 x 8, of scikit-learn")
def open_digits(*, split: str | None = None) -> DataSet:
    """8 x 8 digits, split=train (the first 1,437) or test (the last 360); white on black, no boxes."""
    return of_arrays("digits", splits_asked("digits", split, ("train", "test")), read_digits, 4)


def read_digits(split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """N,8,8 and N."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise BadChoice("these digits come with scikit-learn: pip install 'fovea[offline]', or take mnist") from None
    found = load_digits()
    part = slice(0, TRAIN) if split == "train" else slice(TRAIN, None)
    images = np.rint(found.images[part] * (255 / 16)).astype(np.uint8)  # it counts from 0 to 16
    return images, found.target[part].astype(np.uint8)
