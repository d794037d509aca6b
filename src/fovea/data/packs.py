"""Tar packs: manifest.csv (file, shard, label, boxes, split, ...) beside uncompressed tar shards."""

import tarfile
from collections.abc import Sequence
from pathlib import Path

from fovea.basics import BadChoice
from fovea.data.layouts import layout
from fovea.data.options import splits_asked
from fovea.data.places import called, table, too_large
from fovea.data.samples import DataSet, Member, Sample, Source, Unreadable, boxes_of

NEEDED = ("file", "shard", "label")


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
    members = {name: _members(folder / name) for name in sorted({row["shard"] for row in kept})}
    samples = (
        Sample(
            row["file"],
            int(row["label"]) if numbered else number[row["label"]],
            _source(members[row["shard"]], row),
            boxes_of(row.get("boxes") or "", f"{folder / 'manifest.csv'}, {row['file']}"),
            row,
        )
        for row in kept
    )
    return DataSet(called(folder), tuple(samples), labels)


def _rows(folder: Path) -> list[dict[str, str]]:
    if not is_pack(folder):
        raise BadChoice(f"pack {called(folder)} is incomplete: manifest.csv not in {folder}")
    rows = [row for _, row in table(folder / "manifest.csv", NEEDED)]
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


def _members(shard: Path) -> dict[str, Member] | Unreadable:
    """Where each file begins in a shard; of one that is cut short, the files before the cut."""
    found: dict[str, Member] = {}
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                if member.isfile():
                    found[member.name] = Member(shard, member.name, member.offset_data, member.size)
    except (OSError, tarfile.TarError) as error:
        if not found:
            return Unreadable(f"the shard {shard.name} cannot be read as an uncompressed tar: {error}")
    return found


def _source(members: dict[str, Member] | Unreadable, row: dict[str, str]) -> Source:
    if isinstance(members, Unreadable):
        return members
    return members.get(row["file"]) or Unreadable(f"{row['file']} is not in its shard {row['shard']}")
