"""What bulk work leaves: one Parquet file per chunk, whole or not there, beside a note of what was asked.

Columns: `name`, `label`, `probability`; `row`, all that results.json would say of the picture, as JSON; `maps`, the
values of its maps; `reason`, why a picture could not be read, and nothing else in its row then."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BadChoice, Damaged, Record, Text, whole
from fovea.jobs.chunks import is_address, opened_at, rows_of

NOTE, END, FILES = "_job.json", ".parquet", "_files"  # names with _ are no data to whoever reads the folder
PART = re.compile(r"([0-9a-f]{24})\.parquet")  # a chunk's id
Maps = Mapping[str, NDArray[Any]]


class Note(Record):
    """What a folder's parts are of; `asked` tells one job from another."""

    what: Text
    settings: dict[Text, Any]
    asked: Text
    version: Text


@dataclass(frozen=True)
class Row:
    """Of one picture: what results.json says, and its maps by what they are of; or why it could not be read."""

    name: str
    row: Mapping[str, Any] | None = None
    maps: Maps | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Folder:
    """Where parts go: a folder, or the address of one in an object store."""

    place: str

    @staticmethod
    def at(given: str | Path) -> "Folder":
        """file:///folder is a folder."""
        return Folder(str(given).removeprefix("file://"))

    @property
    def local(self) -> Path | None:
        return None if is_address(self.place) else Path(self.place)

    def _at(self, name: str) -> tuple[Any, str]:
        fs, root = opened_at(self.place)
        return fs, f"{root.rstrip('/')}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all: object stores show what has come completely."""
        if self.local is not None:
            with whole(self.local / name) as part:
                part.write_bytes(data)
        else:
            fs, path = self._at(name)
            fs.pipe_file(path, data)

    def make(self) -> None:
        """The folder, where stores have such."""
        if self.local is not None:
            self.local.mkdir(parents=True, exist_ok=True)
            return
        fs, path = self._at("")
        with suppress(OSError):  # of one whose keys need none, and which may not be asked to make one
            fs.makedirs(path, exist_ok=True)

    def put(self, folder: Path, name: str) -> None:
        """Files that were made in a local folder."""
        fs, path = self._at(name)
        fs.makedirs(path, exist_ok=True)
        for file in folder.iterdir():
            fs.put_file(str(file), f"{path}/{file.name}")

    def read(self, name: str) -> bytes | None:
        fs, path = self._at(name)
        try:
            return bytes(fs.cat_file(path))
        except FileNotFoundError:
            return None

    def drop(self, name: str) -> None:
        fs, path = self._at(name)
        fs.rm_file(path)

    def parts(self) -> set[str]:
        """The ids of chunks that are done."""
        fs, path = self._at("")
        fs.invalidate_cache()
        try:
            found = fs.ls(path.rstrip("/"), detail=False)
        except FileNotFoundError:
            return set()
        names = (PART.fullmatch(str(name).rsplit("/", 1)[-1]) for name in found)
        return {name[1] for name in names if name}  # other Parquet files are not fovea's to count or drop

    def note(self) -> Note | None:
        data = self.read(NOTE)
        return None if data is None else Note.read(data, f"{self.place}/{NOTE}", "name another folder")

    def skipped(self, part: str) -> list[tuple[str, str]]:
        """The pictures of a chunk that could not be read, and why."""
        fs, path = self._at(f"{part}{END}")
        with fs.open(path, "rb") as file:
            rows = rows_of(file, ["name", "reason"]).to_pylist()
        return [(row["name"], row["reason"]) for row in rows if row["reason"] is not None]

    def rows(self) -> Iterator[Row]:
        """All rows, part after part."""
        for part in sorted(self.parts()):
            data = self.read(f"{part}{END}")
            for row in rows_of(io.BytesIO(data or b"")).to_pylist():
                content = None if row["row"] is None else json.loads(row["row"])
                maps = {
                    each["name"]: np.array(each["values"], np.float32).reshape(each["shape"]) for each in row["maps"]
                }
                yield Row(row["name"], content, maps, row["reason"])


def demand_parquet() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BadChoice("Parquet needs a package that is not installed: pip install 'fovea[parquet]'") from None


def table_of(rows: Iterable[Row]) -> bytes:
    """A part as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.struct([("name", pa.string()), ("shape", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("label", pa.string()),
            ("probability", pa.float64()),
            ("row", pa.string()),
            ("maps", pa.list_(values)),
            ("reason", pa.string()),
        ]
    )
    content = [
        {
            "name": _text(row.name),
            "label": (row.row or {}).get("label"),
            "probability": (row.row or {}).get("probability"),
            "row": None if row.row is None else json.dumps(row.row),
            "maps": [
                {"name": name, "shape": each.shape, "values": each.ravel()} for name, each in (row.maps or {}).items()
            ],
            "reason": None if row.reason is None else _text(row.reason),
        }
        for row in rows
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(content, schema), out, compression="zstd")
    return out.getvalue()


def _text(text: str) -> str:
    """What is no text in a file's name, as JSON writes it."""
    return text.encode(errors="backslashreplace").decode()


def demand_same(folder: Folder, wanted: Note, fresh: bool) -> None:
    """A folder holds the results of one job; a fresh start clears what another left."""
    try:
        found = folder.note()
    except Damaged:
        found = None
        if not fresh:
            raise
    parts = folder.parts()
    if fresh:
        for part in parts:
            folder.drop(f"{part}{END}")
    elif (found is None and parts) or (found is not None and found.asked != wanted.asked):
        theirs = "another job" if found is None else f"{found.what} with other settings or another network"
        raise BadChoice(
            f"{folder.place} holds the results of {theirs}: name another folder, or start anew with --fresh"
        )
    folder.write(NOTE, wanted.model_dump_json(indent=1).encode())
