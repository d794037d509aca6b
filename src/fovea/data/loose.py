"""Pictures that nobody labeled: files, globs, a folder without a folder per class."""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from fovea.basics import BOUNDS
from fovea.data.layouts import demand_layout, is_laid_out, open_data
from fovea.data.options import parsed, value_of
from fovea.data.places import at_home, called
from fovea.data.samples import UNLABELED, DataSet, Sample
from fovea.pictures import Given, files_of, gather, is_picture_name


def pictures_of(given: Given | Iterable[Given], name: str = "") -> DataSet:
    """Files, folders, globs, PIL pictures or arrays; what cannot be read is found out when it is asked for."""
    alone = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given
    name = name or (called(Path(alone)) if isinstance(alone, (str, Path)) else "pictures")
    return DataSet(name, tuple(Sample(picture.name, 0, picture) for picture in gather(given)), UNLABELED)


def open_loosely(given: Any, split: str | None = None, names: Sequence[str] | None = None) -> DataSet:
    """What `open_data` opens, and pictures without labels where it would not: several files, a glob, a flat folder."""
    if not isinstance(given, (str, Path)):
        return pictures_of(given)
    name, options = parsed(str(given))
    if set(options) - {"limit"} or split is not None or not _is_loose(name):
        return open_data(given, split, names)
    data = pictures_of(name, called(at_home(name)))
    limit = options.get("limit")
    return data if limit is None else data.first(value_of(f"{name}: limit=", limit, Annotated[int, BOUNDS["limit"]]))


def _is_loose(name: str) -> bool:
    path = at_home(name)
    if path.is_dir():
        return not is_laid_out(path) and bool(files_of(path, is_picture_name)[0])
    return path.is_file() or glob.has_magic(name)


def demand_data(given: str) -> None:
    """Refuses data that is not there, without opening it."""
    name, _ = parsed(given)
    if not (_is_loose(name) or at_home(name).is_dir()):
        demand_layout(given)
