"""The file of an index: one row per picture, so that a kill costs no batch that is finished."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, Json, PlainValidator

from fovea.basics import BadChoice, Count, Database, Format, Record, Text, nearest
from fovea.basics.database import reading
from fovea.basics.database import writing as written

NAME = "index.fovea"  # of an index in a folder
FORMAT = Format(
    "index of pictures",
    0x464F5645,
    "(name BLOB PRIMARY KEY, stamp BLOB, vector BLOB, reason BLOB, checksum INTEGER) WITHOUT ROWID",
    "make it anew with fresh=True ('fovea index DIR --out {path} --fresh')",
    older=b"fovea index 1\n",
)
Stamp = tuple[int, ...]  # what changes when a picture does: its size in bytes, when it was written


class Identity(Record):
    """What embeddings hang on."""

    weights: Text
    transform: Text
    features: Annotated[str, Field(pattern="^(output|pooled)$")]
    dimensions: Annotated[int, Field(ge=1, lt=2**24)]


class About(Record):
    """What an index says about itself: its network, as it loads again, and where the pictures are."""

    identity: Identity
    net: Text | None
    weights: Text | None
    folder: Text
    beside: Text
    wanted: Count | None = None


def _text(cell: object) -> str:
    if not isinstance(cell, bytes):
        raise ValueError("Input should be bytes")
    return os.fsdecode(cell)


def _below(name: str) -> str:
    if not name or "\0" in name or os.path.isabs(name) or ".." in name.split("/"):
        raise ValueError(f"{name!r} is no path below a folder")
    return name


class Cells(Record):
    """A row but for its embedding."""

    name: Annotated[str, PlainValidator(_text), AfterValidator(_below)]
    stamp: Json[Annotated[tuple[int, ...], Field(min_length=2, max_length=4)]]
    reason: Annotated[str, PlainValidator(_text)]


@dataclass(frozen=True)
class Row:
    """A picture with its embedding, or with the reason why it has none."""

    stamp: Stamp
    vector: NDArray[np.float32] | None = field(default=None, repr=False)  # D
    reason: str = ""

    def packed(self, name: str) -> tuple[bytes | None, ...]:
        """Names and reasons as bytes, since a file's name need not be text."""
        vector = None if self.vector is None else self.vector.astype("<f4").tobytes()
        return os.fsencode(name), json.dumps(self.stamp).encode(), vector, os.fsencode(self.reason)


@dataclass
class Held:
    """What a file holds: about the whole index, None where it is new, and its pictures by their names, which are paths
    below its folder; `vectors` are the embeddings of those that have one, by their names in order."""

    about: About | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    vectors: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32), repr=False)  # N,D

    @property
    def kept(self) -> dict[str, Row]:
        return {name: row for name, row in self.rows.items() if row.vector is not None}

    @property
    def lost(self) -> dict[str, Row]:
        return {name: row for name, row in self.rows.items() if row.vector is None}


@dataclass(frozen=True)
class Store:
    """A file that is open for writing, by this process alone."""

    database: Database

    def read(self) -> Held:
        return _held(self.database)

    def write(self, about: About, rows: Mapping[str, Row], dropped: Iterable[str] = ()) -> None:
        """All of it or nothing; on the disk when this returns."""
        packed = (row.packed(name) for name, row in rows.items())
        self.database.write(json.dumps(about.model_dump()).encode(), packed, map(os.fsencode, dropped))


def demand_index(path: str | os.PathLike[str]) -> None:
    file = file_of(path)
    if not file.is_file():
        near = [other.name for other in file.parent.iterdir()] if file.parent.is_dir() else []
        raise BadChoice(f"no index {str(file)!r}{nearest(file.name, near)}; 'fovea index DIR --out {file}' makes one")


def file_of(path: str | os.PathLike[str]) -> Path:
    """The index that a path stands for: the file itself, or the one in a folder."""
    given = Path(os.path.expanduser(path))
    return given / NAME if given.is_dir() or str(path).endswith(os.sep) else given


def read(path: Path) -> Held:
    """What is finished of a file, while it is being written too."""
    with reading(path, FORMAT) as database:
        return _held(database)


@contextmanager
def writing(path: Path, fresh: bool = False) -> Iterator[Store]:
    """The file, made where there is none, until this process ends however it does; `fresh` forgets what it holds."""
    with written(path, FORMAT, fresh) as database:
        yield Store(database)


def _held(database: Database) -> Held:
    with database.reading() as text:
        if text is None:
            return Held()
        about = About.read(text, database.path, database.remedy)
        dimensions, rows = about.identity.dimensions, dict[str, Row]()
        named = database.rows("SELECT name FROM pictures WHERE vector IS NOT NULL")
        names = sorted({os.fsdecode(name) for (name,) in named if isinstance(name, bytes)})
        places = {name: place for place, name in enumerate(names)}
        if len(places) * 4 * dimensions > database.path.stat().st_size:  # before memory is taken for them
            raise database.damaged(f"{len(places):,} embeddings of {dimensions:,} numbers do not fit into it")
        vectors = np.empty((len(places), dimensions), np.float32)
        for name, stamp, vector, reason in database.checked():
            given = {"name": name, "stamp": stamp, "reason": reason}
            cells, embedding = Cells.read(given, database.path, database.remedy), None
            if vector is not None:
                if not isinstance(vector, bytes) or len(vector) != 4 * dimensions:
                    raise database.damaged(f"{cells.name} has an embedding of another width")
                embedding = vectors[places[cells.name]]
                embedding[:] = np.frombuffer(vector, "<f4")
            rows[cells.name] = Row(cells.stamp, embedding, cells.reason)
    if not (np.einsum("nd,nd->n", vectors, vectors) < 1.01).all():  # NaN is less than nothing
        raise database.damaged("an embedding that is not of unit length")
    return Held(about, rows, vectors)
