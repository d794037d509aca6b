"""Labelled data to train on and to measure with. `open_data("cub100:split=test,labels=50-99")` opens any of it."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from fovea.data.folders import open_folder
from fovea.data.packs import open_pack
from fovea.data.samples import Box, DataSet, File, Member, Sample, Unreadable
from fovea.errors import BadChoice, nearest

__all__ = ["Box", "DataSet", "File", "Member", "Sample", "Unreadable", "open_data", "open_folder", "open_pack"]


def open_data(given: str | Path, split: str | None = None, names: Sequence[str] | None = None) -> DataSet:
    """A pack or a folder by path, or by name below the folder that FOVEA_DATA names.

    Options follow a colon: `split=`, `labels=` (classes kept, as 0-49 or 3+5+8), `limit=`.
    A folder's classes are matched to `names` where they all occur there.
    """
    name, options = _parsed(str(given))
    split = options.pop("split", split)
    kept, limit = options.pop("labels", None), options.pop("limit", None)
    unknown = next(iter(options), None)
    if unknown is not None:
        raise BadChoice(f"data {name!r} has no option {unknown!r}{nearest(unknown, ('split', 'labels', 'limit'))}")
    path = _folder(name)
    data = open_pack(path, split) if (path / "manifest.csv").is_file() else open_folder(path, names)
    data = data if kept is None else data.only(_numbers(kept))
    return data.first(None if limit is None else int(limit))


def _parsed(given: str) -> tuple[str, dict[str, str]]:
    """'name:key=value,key=value' in its parts; a path that exists is taken as it is."""
    name, colon, rest = given.partition(":")
    if not colon or Path(given).expanduser().exists():
        return given, {}
    options = {}
    for one in filter(None, map(str.strip, rest.split(","))):
        key, equals, value = one.partition("=")
        if not equals:
            raise BadChoice(f"options of data are written name:key=value,key=value; got {one!r} in {given!r}")
        options[key.strip()] = value.strip()
    return name, options


def _numbers(text: str) -> set[int]:
    """'0-49' or '3+5+8-10' as numbers."""
    found: set[int] = set()
    for part in text.split("+"):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None:
            raise BadChoice(f"labels are written 0-49 or 3+5+8; got {text!r}")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def _folder(given: str) -> Path:
    path, home = Path(given).expanduser(), os.environ.get("FOVEA_DATA")
    if not path.is_dir() and home and Path(home, given).is_dir():
        path = Path(home, given)
    if not path.is_dir():
        names = [one.name for one in Path(home).iterdir() if one.is_dir()] if home and Path(home).is_dir() else []
        where = f"here or in {home}" if home else "here; FOVEA_DATA, where data is looked for by name, is not set"
        raise BadChoice(f"no data {str(given)!r} {where}{nearest(path.name, names)}")
    return path
