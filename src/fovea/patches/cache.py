"""The patches of a data set in one file that grows by a batch at a time, so that a kill costs no finished batch.

A batch is one transaction; batches have fixed borders, so the rows are the same however often the work was stopped."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

import torch
from PIL import Image
from pydantic import Field, model_validator

from fovea import basics
from fovea.basics import BadChoice, BadPicture, Count, Database, Format, FoveaError, Record, Text
from fovea.basics.database import writing
from fovea.data import DataSet, Sample
from fovea.patches.opening import Patches, Source, open_source
from fovea.pictures import Readable, batched, decoded

FOLDER = Path("out/patches")
FORMAT = Format(
    "file of patches",
    0x666F7661,
    "(place INTEGER PRIMARY KEY, content BLOB, checksum INTEGER)",
    "name another, or write over it with fresh=True (--fresh)",
)
Side = Annotated[float, Field(ge=0, lt=2**31)]  # a box's, in pixels


class Settings(Record):
    """What the patches in a file depend on."""

    source: Text
    weights: Text
    data: Text
    pictures: Count
    names: Text
    batch: Count


class Row(Record):
    """The patches of a picture, or why it has none; `passing`, for a reason that may be gone the next time."""

    name: Text
    boxes: tuple[tuple[Side, Side, Side, Side], ...] = ()
    scores: tuple[float, ...] = ()
    skipped: Text | None = None
    passing: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.boxes) != len(self.scores) or (self.boxes and self.skipped is not None):
            raise ValueError("a picture has boxes and as many scores, or the reason why not")
        if not all(x0 < x1 and y0 < y1 for x0, y0, x1, y1 in self.boxes):
            raise ValueError("a box without an inside")
        return self

    def packed(self) -> bytes:
        return json.dumps(self.model_dump(exclude_defaults=True)).encode()


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


@basics.bounded
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
    and the others wait and read."""
    names = [sample.name for sample in data.samples]
    if not names:
        raise BadPicture(f"{data.name} is empty")
    if len(set(names)) < len(names):
        raise BadChoice(f"{data.name} has several pictures of the same name, so that patches cannot be kept by name")
    opened = open_source(source, device) if isinstance(source, str) else source
    settings = settings_of(data, opened, batch)
    path = Path(file) if file is not None else _place(data, settings)
    with writing(path, FORMAT, fresh, wait=True) as store:
        rows = _kept(store, settings, names)
        already = len(rows)
        progress(already, len(data))
        for start in range(0, len(data), batch):
            samples = data.samples[start : start + batch]
            if all(sample.name in rows for sample in samples):
                continue
            made = _rows(opened, samples)
            store.write(_text(settings), ((place, row.packed()) for place, row in enumerate(made, start)))
            rows |= {row.name: row for row in made}
            progress(len(rows), len(data))
    found = [rows[name] for name in names]
    patches = {row.name: Patches(row.boxes, row.scores) for row in found if row.skipped is None}
    skipped = tuple((row.name, row.skipped) for row in found if row.skipped is not None)
    if not patches:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
    return Extracted(patches, skipped, path, already)


def default_file(data: DataSet, source: Source, batch: int = 16) -> Path:
    """Below the current folder: another source, other weights, another part of the data have another file."""
    return _place(data, settings_of(data, source, batch))


def settings_of(data: DataSet, source: Source, batch: int) -> Settings:
    names = "\n".join(sample.name for sample in data.samples).encode(errors="surrogatepass")
    return Settings(
        source=source.text,
        weights=getattr(source, "weights", ""),  # a source of the user's own needs none
        data=data.name,
        pictures=len(data),
        names=hashlib.sha256(names).hexdigest()[:16],
        batch=batch,
    )


def _text(settings: Settings) -> bytes:
    return json.dumps(settings.model_dump()).encode()


def _place(data: DataSet, settings: Settings) -> Path:
    return FOLDER / f"{basics.plain(data.name)}-{hashlib.sha256(_text(settings)).hexdigest()[:10]}.sqlite"


def _rows(source: Source, samples: Sequence[Sample]) -> list[Row]:
    """A row for every picture of a batch."""
    skipped, passing = list[tuple[str, str]](), set[str]()

    def read(sample: Readable) -> Image.Image:
        try:
            return sample.read()
        except BadPicture as reason:
            passing.update([sample.name] if reason.passing else [])
            raise

    rows: dict[str, Row] = {}
    images_read = decoded(samples, lambda image: image, skipped, basics.processors(), read)
    for images in map(dict, batched(images_read, len(samples))):
        for place, patches in zip(images, source(list(images.values())), strict=True):
            boxes = [[round(float(side), 2) for side in box] for box in patches.boxes]
            given = {"name": samples[place].name, "boxes": boxes, "scores": [*map(float, patches.scores)]}
            where = f"what {source.text} finds in {samples[place].name}"
            rows[samples[place].name] = Row.read(given, where, "boxes are x0, y0, x1, y1 inside of it", BadChoice)
    rows |= {name: Row(name=name, skipped=reason, passing=name in passing) for name, reason in skipped}
    return [rows[sample.name] for sample in samples]


def _kept(store: Database, settings: Settings, names: Sequence[str]) -> dict[str, Row]:
    """The rows of whole batches that the file holds already, but for those where a picture is to be tried again."""
    with store.reading() as text:
        if text is None:
            return {}
        known, now = Settings.read(text, store.path, store.remedy).model_dump(), settings.model_dump()
        differing = [f"{key} {known[key]!r}, not {now[key]!r}" for key in now if known[key] != now[key]]
        if differing:
            mend = "name another file, or start anew with fresh=True (--fresh)"
            raise FoveaError(f"{store.path} holds patches of other settings ({'; '.join(differing)}): {mend}")
        rows = {place: Row.read(content, store.path, store.remedy) for place, content in store.checked()}
    kept = dict[str, Row]()
    for start in range(0, len(names), settings.batch):
        wanted = names[start : start + settings.batch]
        batch = [rows.pop(place) for place in range(start, start + len(wanted)) if place in rows]
        if batch and [row.name for row in batch] != list(wanted):
            raise store.damaged("half a batch")
        if not any(row.passing for row in batch):
            kept |= {row.name: row for row in batch}
    if rows:
        raise store.damaged("pictures that are not in the data")
    return kept
