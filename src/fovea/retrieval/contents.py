"""What the records of an index add up to: which network, which folder, which pictures with which embeddings."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.retrieval.records import Record

NAME = "index.fovea"  # of an index in a folder
Stamp = tuple[int, ...]  # what changes when a picture does: its size in bytes, when it was written


@dataclass(frozen=True)
class Kept:
    stamp: Stamp
    row: int  # among all embeddings in the file


@dataclass(frozen=True)
class Lost:
    stamp: Stamp
    reason: str


@dataclass
class Contents:
    """Pictures by their names, which are their paths below the folder."""

    identity: dict[str, Any] = field(default_factory=dict)  # what the embeddings hang on
    place: dict[str, Any] = field(default_factory=dict)  # what loads the network, and where the pictures are
    kept: dict[str, Kept] = field(default_factory=dict)
    lost: dict[str, Lost] = field(default_factory=dict)
    wanted: int | None = None  # pictures of a run that did not finish
    rows: int = 0  # embeddings in the file, those of pictures dropped since included
    parts: list[NDArray[np.float32]] = field(default_factory=list, repr=False)

    @property
    def folder(self) -> str:
        return str(self.place.get("folder", ""))

    def take(self, record: Record) -> None:
        about = record.about
        kind = about["is"]
        if kind == "network":
            self.identity = about
        elif kind == "place":
            self._move(about)
        elif kind == "pictures":
            self._add(about, record.values)
        elif kind == "dropped":
            self._drop(about["names"])
        else:
            self.wanted = about["wanted"] if kind == "begun" else None

    def _move(self, about: dict[str, Any]) -> None:
        """Pictures that stayed where they were have other names below another folder; those that moved with theirs
        have the same."""
        if about["stays"] and self.folder != about["folder"]:
            self.kept = {renamed(name, self.folder, about["folder"]): one for name, one in self.kept.items()}
            self.lost = {renamed(name, self.folder, about["folder"]): one for name, one in self.lost.items()}
        self.place = about

    def _add(self, about: dict[str, Any], values: bytes) -> None:
        self._drop([name for name, *_ in about["kept"] + about["lost"]])
        for name, *stamp in about["kept"]:
            self.kept[name] = Kept(tuple(stamp), self.rows)
            self.rows += 1
        for name, reason, *stamp in about["lost"]:
            self.lost[name] = Lost(tuple(stamp), reason)
        if values:
            self.parts.append(np.frombuffer(values, "<f4").reshape(len(about["kept"]), -1))

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.kept.pop(name, None)
            self.lost.pop(name, None)

    def embeddings(self, names: Iterable[str]) -> NDArray[np.float32]:
        """N,D, in the order of the names."""
        whole = np.concatenate(self.parts) if self.parts else np.zeros((0, self.identity["dimensions"]), np.float32)
        found: NDArray[np.float32] = whole[[self.kept[name].row for name in names]]
        return found

    def records(self) -> list[Record]:
        """The fewest records that add up to the same."""
        kept = [[name, *one.stamp] for name, one in self.kept.items()]
        lost = [[name, one.reason, *one.stamp] for name, one in self.lost.items()]
        values = self.embeddings(self.kept).astype("<f4").tobytes()
        first = [Record(self.identity), Record(self.place)]
        return [*first, Record(pictures(kept, lost), values), Record({"is": "finished"})]


def replayed(records: Iterable[Record]) -> Contents:
    found = Contents()
    for one in records:
        found.take(one)
    return found


def pictures(kept: list[list[Any]], lost: list[list[Any]]) -> dict[str, Any]:
    return {"is": "pictures", "kept": kept, "lost": lost}


def renamed(name: str, before: str, after: str) -> str:
    """The name below another folder of a file that stayed where it is."""
    return os.path.relpath(os.path.join(before, name), after)


def file_of(path: str | os.PathLike[str]) -> Path:
    """The index that a path stands for: the file itself, or the one in a folder."""
    given = Path(path).expanduser()
    return given / NAME if given.is_dir() or str(path).endswith(os.sep) else given
