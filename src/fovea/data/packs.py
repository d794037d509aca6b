"""Tar packs: manifest.csv (file, shard, label, boxes, split, ...) beside uncompressed tar shards."""

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated

from pydantic import AfterValidator, Field

from fovea.basics import BadChoice, Record
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import called, table, too_large
from fovea.data.samples import DataSet, Member, Sample, Source, Unreadable, boxes_of, leads_out

NEEDED = ("file", "shard", "label")
BLOCK = tarfile.BLOCKSIZE
LONGEST = 1 << 16  # bytes of a name
LARGEST = 1 << 29  # bytes of a picture


def _inside(name: str) -> str:
    if leads_out(name):
        raise ValueError("it leads out of the pack's folder")
    return name


Name = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]


class Row(Record, extra="ignore"):
    """What is needed of a row of the manifest."""

    file: Name
    shard: Annotated[Name, AfterValidator(_inside)]
    label: Annotated[str, Field(max_length=1000)]


def is_pack(folder: Path) -> bool:
    return (folder / "manifest.csv").is_file()


@layout("pack", about="`manifest.csv` beside tar files", recognizes="is_pack", turn=-1)
def open_pack(folder: Path, split: str | None = None) -> DataSet:
    """Labels are numbers, or names, which are numbered in sorted order."""
    rows = _rows(folder)
    if split is not None:
        splits_asked(f"pack {called(folder)}", split, sorted({row.get("split") or "" for row in rows}))
    labels = _labels(rows)
    number = {name: i for i, name in enumerate(labels)}
    numbered = all(row["label"].isdecimal() for row in rows)
    kept = [row for row in rows if split is None or row.get("split") == split]
    files = {row["file"] for row in kept}
    members = {name: _members(folder / name, files) for name in sorted({row["shard"] for row in kept})}
    samples = []
    for row in kept:
        label = int(row["label"]) if numbered else number[row["label"]]
        boxes = boxes_of(row.get("boxes") or "", f"{folder / 'manifest.csv'}, {row['file']}")
        samples.append(Sample(row["file"], label, _source(members[row["shard"]], row), boxes, row))
    return DataSet(called(folder), tuple(samples), labels)


def _rows(folder: Path) -> list[dict[str, str]]:
    if not is_pack(folder):
        raise BadChoice(f"pack {called(folder)} is incomplete: manifest.csv not in {folder}")
    rows = []
    for where, row in table(folder / "manifest.csv", NEEDED):
        Row.read(row, where, "write it anew", BadChoice)
        rows.append(row)
    if not rows:
        raise BadChoice(f"{folder / 'manifest.csv'} lists no picture")
    missing = sorted({row["shard"] for row in rows if not (folder / row["shard"]).is_file()})
    if missing:
        raise BadChoice(f"pack {called(folder)} is incomplete: {', '.join(missing)} not in {folder}")
    return rows


def _labels(rows: Sequence[dict[str, str]]) -> tuple[str, ...]:
    if not all(row["label"].isdecimal() for row in rows):
        return tuple(sorted({row["label"] for row in rows}))
    names = {int(row["label"]): row.get("class_name") or row["label"] for row in rows}
    if too_large(max(names), len(names)):
        raise BadChoice(
            f"label {max(names)} in manifest.csv is too large for a class number of {len(names)} classes: number them "
            "from 0, or write names"
        )
    return tuple(names.get(i, str(i)) for i in range(max(names) + 1))


def _members(shard: Path, wanted: set[str]) -> dict[str, Member | Unreadable] | Unreadable:
    """Where each file that is wanted begins in a shard; of one that is cut short, the files before the cut."""
    found: dict[str, Member | Unreadable] = {}
    try:
        with open(shard, "rb") as file:
            for name, start, size in tar_entries(file, os.fstat(file.fileno()).st_size):
                if name in wanted:
                    whole = 0 <= size <= LARGEST
                    too_large = Unreadable(f"{name} in {shard.name} has {size:,} bytes, more than {LARGEST:,}")
                    found[name] = Member(shard, name, start, size) if whole else too_large
    except (OSError, tarfile.TarError, ValueError) as error:
        if not found:
            return Unreadable(f"the shard {shard.name} cannot be read as an uncompressed tar: {error}")
    return found


def tar_entries(file: IO[bytes], total: int) -> Iterator[tuple[str, int, int]]:
    """Name, start and size of every ordinary file in a tar of `total` bytes. tarfile would read what a header claims,
    however much that is, and go round in circles where a size is negative."""
    start, name = 0, ""
    while start + BLOCK <= total:
        file.seek(start)
        block = file.read(BLOCK)
        if not any(block):
            return
        head = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        start += BLOCK
        if not 0 <= head.size <= total - start:
            raise tarfile.ReadError(f"{head.name!r} claims {head.size:,} bytes, and {total - start:,} are left")
        if head.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):  # the name of the file that follows
            data = file.read(min(head.size, LONGEST))
            name = _long_name(data, head.type == tarfile.XHDTYPE) or name
        else:
            if head.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
                yield name or head.name, start, head.size
            name = "" if head.type not in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK) else name
        start += -(-head.size // BLOCK) * BLOCK


def _long_name(data: bytes, records: bool) -> str:
    """Of GNU's header the name itself, of POSIX's the record "<length> path=<name>\\n"."""
    while records and data:
        length, _, rest = data.partition(b" ")
        if not length.isdigit() or not len(length) < int(length[:9]) <= len(data):
            raise tarfile.ReadError("a header's records are damaged")
        if rest.startswith(b"path="):
            data, records = rest[5 : int(length) - len(length) - 2], False
        else:
            data = data[int(length) :]
    return data.rstrip(b"\0").decode("utf-8", "surrogateescape")


def _source(members: dict[str, Member | Unreadable] | Unreadable, row: dict[str, str]) -> Source:
    if isinstance(members, Unreadable):
        return members
    return members.get(row["file"]) or Unreadable(f"{row['file']} is not in its shard {row['shard']}")
