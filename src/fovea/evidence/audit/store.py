"""What was examined so far, in a file: one row per picture, so that a kill costs no batch that is finished, and memory
holds numbers of patches alone."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fovea.basics import Database, Format, FoveaError, Record, Text, shown
from fovea.basics.database import writing
from fovea.evidence.audit.examined import WIDTH, Examined, Vectors
from fovea.results import resuming

NAME = "audit.fovea"
FORMAT = Format(
    "audit",
    0x464F5641,
    "(name BLOB PRIMARY KEY, stamp BLOB, row BLOB, vectors BLOB, reason BLOB, checksum INTEGER) WITHOUT ROWID",
    "remove it, and audit again",
)


class AuditAsked(Record):
    """What rows hang on: they are of no use to an audit that differs in this."""

    asked: Text


@dataclass(frozen=True)
class AuditStore:
    """A file that is open, for this process alone."""

    database: Database
    asked: str

    def known(self) -> dict[str, str]:
        """The pictures that are done and have not changed since, by name, each with the reason why it could not be
        read, if so."""
        with self.database.reading() as about:
            if about is None:
                return {}
            rows = self.database.checked("SELECT * FROM pictures")
            return {
                os.fsdecode(name): os.fsdecode(reason or b"")
                for name, stamp, *_, reason in rows
                if stamp == _stamp(name)
            }

    def add(self, examined: Sequence[tuple[Examined, Vectors]], skipped: Mapping[str, str]) -> None:
        """On the disk when this returns."""
        rows = [
            (os.fsencode(one.name), json.dumps(one.model_dump()).encode(), vectors.astype("<f2").tobytes(), None)
            for one, vectors in examined
        ]
        lost = [(os.fsencode(name), None, None, os.fsencode(reason)) for name, reason in skipped.items()]
        stamped = [(name, _stamp(name), *cells) for name, *cells in [*rows, *lost]]
        self.database.write(json.dumps({"asked": self.asked}).encode(), stamped)

    def rows(self) -> Iterator[tuple[Examined, NDArray[np.float16]]]:
        """One after the other, by name."""
        with self.database.reading() as about:
            if about is None:
                return
            for _, _, row, packed, reason in self.database.checked("SELECT * FROM pictures ORDER BY name"):
                if reason is None:
                    one = Examined.read(row, self.database.path, self.database.remedy)
                    if len(packed) != 2 * WIDTH * len(one.patches):
                        raise self.database.damaged(f"{one.name} has vectors of another width")
                    yield one, np.frombuffer(packed, "<f2").reshape(-1, WIDTH)


def _stamp(name: bytes) -> bytes:
    """What changes when the picture's file does."""
    return json.dumps(resuming.stamp_of(os.fsdecode(name))).encode()


@contextmanager
def opened(folder: Path, asked: str) -> Iterator[AuditStore]:
    """The file in a folder; rows of an audit that was asked otherwise are forgotten."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a file, no permission, a name that no folder can have
        raise FoveaError(f"{shown(str(folder))} is no folder to write to: {error}; name another") from None
    with writing(path, FORMAT) as database:
        with database.reading() as about:
            same = about is None or AuditAsked.read(about, path, database.remedy).asked == asked
        if same:
            yield AuditStore(database, asked)
            return
    with writing(path, FORMAT, fresh=True) as database:
        yield AuditStore(database, asked)
