"""Columns of MATLAB files, as Stanford publishes its lists."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fovea.basics import BadChoice


def columns(path: Path, names: Sequence[str], within: str | None = None) -> list[list[str]]:
    """Variables, or the fields of one struct array, as text, row by row in the order of the file."""
    from scipy.io import loadmat

    try:
        found = loadmat(path, squeeze_me=True)
        found = found if within is None else np.atleast_1d(found[within])
        return [[str(cell) for cell in np.atleast_1d(found[name])] for name in names]
    except KeyError as lacking:
        raise BadChoice(f"{path} has no {lacking}: expected {', '.join(filter(None, (within, *names)))}") from None
    except Exception as error:  # scipy raises many kinds for a damaged file, the fields of a struct array others
        raise BadChoice(f"{path} cannot be read as a MATLAB file with {', '.join(names)}: {error}") from None
