"""The patches of a data set in one file that grows by a batch at a time, so that a kill costs no finished batch.

JSON lines: the settings, then a line a batch. A batch is finished when its line is whole; batches have fixed borders,
so the file is the same byte for byte however often the work was stopped.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from PIL import Image

from fovea.basics.errors import BadChoice, BadPicture, FoveaError
from fovea.basics.files import plain
from fovea.data.samples import DataSet, Sample
from fovea.patches.sources import Patches, Source, open_source

FOLDER = Path("out/patches")
READERS = 4  # pictures decoded at once

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
    parts = [data.samples[start : start + batch] for start in range(0, len(data), batch)]
    with open(path, "a+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # let go of when the process ends, however it does
        lines = [] if fresh else _finished(stream, path, settings, parts)
        if not lines:
            stream.truncate(0)
            _append(stream, settings)
        rows = [row for line in lines[1:] for row in line["pictures"]]
        already = len(rows)
        progress(already, len(data))
        with ThreadPoolExecutor(READERS) as readers:
            for part in parts[len(lines[1:]) :]:
                made = _found(opened, part, readers)
                _append(stream, {"pictures": made})
                rows += made
                progress(len(rows), len(data))
    patches = {row["name"]: _patches(row) for row in rows if "boxes" in row}
    skipped = tuple((row["name"], row["skipped"]) for row in rows if "boxes" not in row)
    if not patches:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")
    return Extracted(patches, skipped, path, already)


def default_file(data: DataSet, source: Source, batch: int = 16) -> Path:
    """Below the current folder: another source, other weights, another part of the data have another file."""
    return _place(data, settings_of(data, source, batch))


def settings_of(data: DataSet, source: Source, batch: int) -> Settings:
    """What the patches in a file hang on."""
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
    short = hashlib.sha256(_line(settings)).hexdigest()[:10]
    return FOLDER / f"{plain(data.name)}-{short}.jsonl"


def _found(source: Source, part: Sequence[Sample], readers: ThreadPoolExecutor) -> list[dict[str, Any]]:
    """A row for every picture of a batch."""
    images = list(readers.map(_read, part))
    found = source([one for one in images if not isinstance(one, BadPicture)])
    good = [sample.name for sample, one in zip(part, images, strict=True) if not isinstance(one, BadPicture)]
    rows = {
        name: {
            "boxes": [[round(float(side), 2) for side in box] for box in own.boxes],
            "scores": [*map(float, own.scores)],
        }
        for name, own in zip(good, found, strict=True)
    }
    return [
        {"name": sample.name, **({"skipped": str(one)} if isinstance(one, BadPicture) else rows[sample.name])}
        for sample, one in zip(part, images, strict=True)
    ]


def _read(sample: Sample) -> Image.Image | BadPicture:
    try:
        return sample.source.read()
    except BadPicture as reason:
        return reason


def _patches(row: Mapping[str, Any]) -> Patches:
    return Patches(tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in row["boxes"]), tuple(row["scores"]))


def _line(content: Mapping[str, Any]) -> bytes:
    """In ASCII, since a file's name need not be text."""
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _append(stream: IO[bytes], content: Mapping[str, Any]) -> None:
    stream.write(_line(content))
    stream.flush()
    os.fsync(stream.fileno())


def _finished(
    stream: IO[bytes], path: Path, settings: Settings, parts: Sequence[Sequence[Sample]]
) -> list[dict[str, Any]]:
    """The whole lines of a file, checked, and what a kill left of another cut off; none of a file that is new."""
    stream.seek(0)
    content = stream.read()
    if _line(settings).startswith(content):  # empty, or killed while the settings were written
        return [] if content != _line(settings) else [settings]
    kept = content[: content.rfind(b"\n") + 1]
    lines = [_parsed(line, path) for line in kept.splitlines()]
    if not lines or set(lines[0]) != set(settings):
        raise FoveaError(f"{path} is no file of patches: name another, or write over it with fresh=True (--fresh)")
    differing = [
        f"{key} {lines[0][key]!r}, not {settings[key]!r}" for key in settings if lines[0][key] != settings[key]
    ]
    if differing:
        raise FoveaError(
            f"{path} holds patches of other settings ({'; '.join(differing)}): name another file, or start anew with "
            "fresh=True (--fresh)"
        )
    names = [[row.get("name") for row in line.get("pictures", ())] for line in lines[1:]]
    if names != [[sample.name for sample in part] for part in parts[: len(names)]]:
        raise _damaged(path)
    stream.truncate(len(kept))
    return lines


def _parsed(line: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise _damaged(path)
    return content


def _damaged(path: Path) -> FoveaError:
    return FoveaError(f"{path} is damaged, or no file of patches: start anew with fresh=True (--fresh)")
