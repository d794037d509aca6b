"""The patches of a data set in one file that grows by a batch at a time, so that a kill costs no finished batch.

A SQLite database: the settings, and one row per picture. A batch is one transaction; batches have fixed borders, so
the rows are the same however often the work was stopped.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fovea.basics import BadChoice, BadPicture, FoveaError, plain
from fovea.data import DataSet, Sample
from fovea.patches.opening import Patches, Source, open_source
from fovea.pictures import decoded

FOLDER = Path("out/patches")
READERS = 4  # pictures decoded at once
WAIT = 0.2  # seconds between two tries, while another process works
MARK = 0x666F7661  # tells a file of patches from other databases

Settings = dict[str, str | int]


@dataclass(frozen=True, eq=False)
class Extracted(Mapping[str, Patches]):
    """Patches by the name of the sample; `skipped` are the pictures that could not be read, and why."""

    patches: dict[str, Patches] = field(repr=False)
    skipped: tuple[tuple[str, str], ...]
    file: Path
    already: int  # pictures that were in the file before

    def __getitem__(self, name: str) -> Patches:
        return self.patches[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.patches)

    def __len__(self) -> int:
        return len(self.patches)


def extract(
    data: DataSet,
    source: Source | str,
    file: Path | None = None,
    batch: int = 16,
    fresh: bool = False,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Extracted:
    """The patches of every picture; those that the file holds are not looked for again.

    `file` is default_file's unless given. `fresh` forgets what is in it. Several processes may ask at once: one works,
    and the others wait and read.
    """
    if batch < 1:
        raise BadChoice(f"a batch holds at least one picture; got {batch}")
    names = [sample.name for sample in data.samples]
    if not names:
        raise BadPicture(f"{data.name} is empty")
    if len(set(names)) < len(names):
        raise BadChoice(f"{data.name} has several pictures of the same name, so that patches cannot be kept by name")
    opened = open_source(source, device) if isinstance(source, str) else source
    settings = settings_of(data, opened, batch)
    path = Path(file) if file is not None else _place(data, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(_locked(path, fresh)) as store:
        rows = _kept(store, path, settings, names)
        already = len(rows)
        progress(already, len(data))
        for start in range(already, len(data), batch):
            made = _rows(opened, data.samples[start : start + batch])
            with store:
                store.executemany("INSERT INTO pictures VALUES (?, ?)", enumerate(map(json.dumps, made), start))
            rows += made
            progress(len(rows), len(data))
    patches = {
        row["name"]: Patches(tuple(map(tuple, row["boxes"])), tuple(row["scores"])) for row in rows if "boxes" in row
    }
    skipped = tuple((row["name"], row["skipped"]) for row in rows if "boxes" not in row)
    if not patches:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
    return Extracted(patches, skipped, path, already)


def default_file(data: DataSet, source: Source, batch: int = 16) -> Path:
    """Below the current folder: another source, other weights, another part of the data have another file."""
    return _place(data, settings_of(data, source, batch))


def settings_of(data: DataSet, source: Source, batch: int) -> Settings:
    """What the patches in a file depend on."""
    names = "\n".join(sample.name for sample in data.samples).encode(errors="surrogatepass")
    return {
        "source": source.text,
        "weights": getattr(source, "weights", ""),  # a source of the user's own needs none
        "data": data.name,
        "pictures": len(data),
        "names": hashlib.sha256(names).hexdigest()[:16],
        "batch": batch,
    }


def _place(data: DataSet, settings: Settings) -> Path:
    short = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:10]
    return FOLDER / f"{plain(data.name)}-{short}.sqlite"


def _rows(source: Source, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """A row for every picture of a batch."""
    skipped: list[tuple[str, str]] = []
    images = dict(decoded(samples, lambda image: image, skipped, READERS))
    rows: dict[str, dict[str, Any]] = {name: {"name": name, "skipped": reason} for name, reason in skipped}
    for place, patches in zip(images, source(list(images.values())), strict=True):
        boxes = [[round(float(side), 2) for side in box] for box in patches.boxes]
        name = samples[place].name
        rows[name] = {"name": name, "boxes": boxes, "scores": [*map(float, patches.scores)]}
    return [rows[sample.name] for sample in samples]


def _locked(path: Path, fresh: bool) -> sqlite3.Connection:
    """The file, which no other process reads or writes until it is closed or this process ends, however it does."""
    while True:
        store = sqlite3.connect(path, timeout=WAIT)
        try:
            store.execute("PRAGMA locking_mode = EXCLUSIVE")
            store.execute("BEGIN EXCLUSIVE")
            tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            (mark,) = store.execute("PRAGMA application_id").fetchone()
            if mark != (MARK if tables else 0):
                raise sqlite3.DatabaseError("somebody else's")
            for table in tables if fresh else ():
                store.execute(f"DROP TABLE {table}")
            if fresh or not tables:
                store.execute("CREATE TABLE settings (content TEXT)")
                store.execute("CREATE TABLE pictures (place INTEGER PRIMARY KEY, content TEXT)")
                store.execute(f"PRAGMA application_id = {MARK}")
            store.commit()
        except sqlite3.DatabaseError as error:
            store.close()
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
                continue
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(f"{path} cannot be written: {error}") from None
            if not fresh:
                raise _damaged(path) from None
            for name in (path.name, f"{path.name}-journal"):
                path.with_name(name).unlink(missing_ok=True)
        else:
            return store


def _kept(store: sqlite3.Connection, path: Path, settings: Settings, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that the file holds already, checked; a new file is given its settings."""
    try:
        written = [json.loads(content) for (content,) in store.execute("SELECT content FROM settings")]
        found = store.execute("SELECT place, content FROM pictures ORDER BY place").fetchall()
        rows = [json.loads(content) for _, content in found]
        kept = [row["name"] for row in rows]
        batches = len(rows) == len(names) or len(rows) % int(settings["batch"]) == 0
    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError):
        raise _damaged(path) from None
    if not written and not rows:
        with store:
            store.execute("INSERT INTO settings VALUES (?)", (json.dumps(settings),))
        return []
    if len(written) != 1 or set(written[0]) != set(settings):
        raise _damaged(path)
    differing = [f"{key} {old!r}, not {settings[key]!r}" for key, old in written[0].items() if old != settings[key]]
    if differing:
        raise FoveaError(
            f"{path} holds patches of other settings ({'; '.join(differing)}): name another file, or start anew with "
            "fresh=True (--fresh)"
        )
    if kept != list(names[: len(kept)]) or [place for place, _ in found] != list(range(len(kept))) or not batches:
        raise _damaged(path)
    return rows


def _damaged(path: Path) -> FoveaError:
    return FoveaError(
        f"{path} is damaged, or no file of patches: name another, or write over it with fresh=True (--fresh)"
    )
