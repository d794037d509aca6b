"""Where data lies: folders by path or by name, and what to say when they are not there or not whole."""

import csv
import gzip
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from fovea.basics import BOUNDS, BadChoice, contents, nearest, printable, within
from fovea.data.samples import Below, Sample
from fovea.pictures import is_picture_name

LONGEST = 1 << 28  # bytes of a list
COLUMNS = 1000


def home() -> Path | None:
    """The folder below which data is looked for by name."""
    named = os.environ.get("FOVEA_DATA")
    return at_home(named) if named else None


def at_home(given: str | Path) -> Path:
    """With ~ and ~user replaced, where there is such a user."""
    try:
        return Path(os.path.expanduser(given))
    except ValueError:  # what no user can be called
        return Path(given)


def called(folder: Path) -> str:
    """What a folder is called, also when it is given as '.'."""
    return Path(os.path.abspath(folder)).name


def too_large(number: int, classes: int) -> bool:
    """A folder or label that is called 20231105 is not class number 20,231,105."""
    return number >= 10 * classes + 1000


def plain(name: str) -> str:
    """'CUB-200-2011' and 'cub_200_2011' are one name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find(given: str, usual: Sequence[str], recognizes: Callable[[Path], bool], names: Sequence[str] = ()) -> Path:
    """The folder meant by a path, or by a name or its usual names below FOVEA_DATA; best one that is recognized.
    `names` may be meant too, where there is none."""
    path, root = at_home(given), home()
    entries = [entry.name for entry in os.scandir(root) if entry.is_dir()] if root and root.is_dir() else []
    tried = [path]
    if root is not None and not path.is_absolute():
        wanted = {plain(name) for name in usual}
        there = sorted(name for name in entries if plain(name) in wanted and name != given)
        absent = [name for name in usual if plain(name) not in map(plain, entries)]
        tried += [root / name for name in (given, *there, *absent)]
    tried = list(dict.fromkeys(tried))
    found = [place for place in tried if os.path.isdir(place)]  # a name may be too long to ask for
    if not found:
        state = "is not set" if root is None else "" if root.is_dir() else f"is {root}, which does not exist"
        unset = f"; FOVEA_DATA, below which data is looked for by name, {state}" if state else ""
        where = ", ".join(str(place.absolute()) for place in tried)
        raise BadChoice(f"no data {given!r}{nearest(path.name, [*entries, *names])} (looked for {where}{unset})")
    return next((place for place in found if recognizes(place)), found[0])


def demand(name: str, folder: Path, wanted: Iterable[str]) -> None:
    """All of these files and folders are in the folder, or the error says which are not."""
    wanted = tuple(wanted)
    missing = [name for name in wanted if not os.path.exists(folder / name)]  # one may be too long, or no name
    if missing:
        there = [name for name in wanted if name not in missing]
        beside = f" (there: {', '.join(there)})" if there else ""
        lacking = ", ".join(printable(name)[:200] for name in missing[:20])
        mend = "layout=folder opens a plain folder per class"
        raise BadChoice(f"{name} is incomplete: {lacking} not in {folder}{beside}; {mend}")


def class_number(text: str, where: object) -> int:
    """A class as a list writes it, counted from 1; here they are counted from 0."""
    return int(BOUNDS["classes"].read(f"a class in {where}", text.removesuffix(".0"))) - 1


def demand_pictures(name: str, samples: Sequence[Sample]) -> None:
    """A set of which not one listed picture exists is not there at all; it costs one look when the first one does."""
    sources = [sample.source for sample in samples if isinstance(sample.source, Below)]
    if sources and not any(os.path.exists(source.path) for source in sources):
        why = f"the first would be {sources[0].path}"
        raise BadChoice(f"{name} is incomplete: none of the {len(sources):,} pictures that it lists exists; {why}")


def subfolders(folder: Path) -> list[str]:
    """Sorted, hidden ones left out; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith(".") and entry.is_dir())


def holds_pictures(folder: Path) -> bool:
    """Whether there is one anywhere below; hidden files and folders do not count."""
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(not name.startswith(".") and is_picture_name(Path(name)) for name in files):
            return True
    return False


def pictures(folder: Path) -> list[str]:
    """All picture files below a folder, relative to it, sorted; no file is looked at, only the folders."""
    known: dict[str, bool] = {}
    found: list[str] = []
    ahead, linked = [(str(folder), "")], {os.path.realpath(folder)}
    while ahead:
        path, before = ahead.pop()
        for entry in os.scandir(path):
            name = entry.name
            if name[0] == ".":
                continue
            if entry.is_dir():
                if entry.is_symlink():  # each place that links lead to is looked at once: they may lead back
                    if (real := os.path.realpath(entry.path)) in linked:
                        continue
                    linked.add(real)
                ahead.append((entry.path, f"{before}{name}/"))
                continue
            suffix = name[name.rfind(".") :]
            if suffix not in known:
                known[suffix] = is_picture_name(Path("x" + suffix))
            if known[suffix]:
                found.append(before + name)
    return sorted(found)


def table(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file with what begins an error about each; the columns needed are in every one."""
    where = str(path)
    try:
        reader = csv.DictReader(io.StringIO(text_of(path), newline=""))
        within(f"the number of columns of {path}", len(reader.fieldnames or ()), 0, COLUMNS)
        lacking = {*needed} - set(reader.fieldnames or ())
        if lacking:
            raise BadChoice(f"{path} lacks the columns {', '.join(sorted(lacking))}")
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if any(row[name] is None for name in needed):
                raise BadChoice(f"{where} is cut short")
            row.pop(None, None)  # cells beyond the columns
            yield where, row
    except csv.Error as error:
        raise BadChoice(f"{path}, after {where.rpartition(', ')[2]}, cannot be read: {error}") from None


def lines(path: Path) -> list[tuple[int, str]]:
    """The lines of an index file that say something, with their numbers."""
    found = io.StringIO(text_of(path), newline=None)  # however lines end
    return [(i, line.rstrip("\n")) for i, line in enumerate(found, 1) if line.strip()]


def unzipped(path: Path) -> IO[bytes]:
    """A file to read, gzipped or not."""
    with open(path, "rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path) if zipped else open(path, "rb"))


def at_most(file: IO[bytes], count: int) -> bytes:
    """So many bytes, or as many as there are: memory is taken for what comes, not for what is asked for."""
    parts: list[bytes] = []
    while count and (part := file.read(min(count, 1 << 20))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def text_of(path: Path) -> str:
    """All of a list, which is UTF-8 and not too long."""
    try:
        return contents(path, LONGEST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadChoice(f"{path} cannot be read: {error}") from None
