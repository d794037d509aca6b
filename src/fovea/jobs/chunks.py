"""Where many pictures lie, cut into chunks that are done together: folders and globs, here or in an object store; tar
shards, as of packs and WebDataset; Parquet files with pictures in a column.

A chunk is known by the names and stamps of its pictures, so that one that was done is known again. Where chunks end is
decided by the files' own names: one that is added or gone changes its own chunk alone."""

import glob
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import fsspec
from PIL import Image

from fovea.basics import BadChoice, BadPicture
from fovea.data import LARGEST, tar_entries
from fovea.pictures import Picture, files_of, is_picture_name, read_bytes

SHARDS, TABLES = (".tar", ".tar.gz", ".tgz"), (".parquet",)
COLUMNS = ("image", "picture", "bytes", "content", "data", "jpg", "jpeg", "png", "webp")  # what pictures are called
HERE = fsspec.filesystem("file")
NAMES = ("name", "path", "file", "file_name", "filename", "key", "__key__", "id")


@dataclass(frozen=True)
class Chunk:
    """Some pictures: `where` they are together, empty for loose files, and what each is known by."""

    reads: ClassVar[str] = ""
    where: str
    items: tuple[Any, ...]
    stamp: str = ""  # of the shard
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        known = json.dumps([self.reads, self.where, self.items, self.stamp])
        object.__setattr__(self, "id", sha256(known.encode(errors="surrogatepass")).hexdigest()[:24])

    def __len__(self) -> int:
        return len(self.items)

    def pictures(self, max_pixels: int) -> Iterable[Picture]:
        """As they are named in rows; of a shard, some at a time are in memory."""
        raise NotImplementedError


class Files(Chunk):
    """Items are path or address, and stamp."""

    reads = "files"

    def pictures(self, max_pixels: int) -> Iterable[Picture]:
        return [
            Picture(name, partial(_fetched, name, max_pixels), max_pixels)
            if is_address(name)
            else Picture(name, Path(name), max_pixels)
            for name, _ in self.items
        ]


class Members(Chunk):
    """Items are name, first byte and size, in an uncompressed tar."""

    reads = "members"

    def pictures(self, max_pixels: int) -> Iterable[Picture]:
        return [
            Picture(name, partial(_fetched, self.where, max_pixels, name, start, start + size), max_pixels)
            for name, start, size in self.items
        ]


class Stream(Chunk):
    """All pictures of a compressed tar, which is read from its beginning; items are their names."""

    reads = "stream"

    def pictures(self, max_pixels: int) -> Iterable[Picture]:
        wanted = set(self.items)
        for name, data in _streamed(self.where):
            if name in wanted:
                yield Picture(name, partial(read_bytes, data(), name, max_pixels), max_pixels)


class Records(Chunk):
    """Items are numbers of rows in one group of a Parquet file; its number and column stand in the stamp."""

    reads = "records"

    def pictures(self, max_pixels: int) -> Iterable[Picture]:
        group, column, naming = json.loads(self.stamp)[:3]
        with _file(self.where) as file:
            columns = [column, *([naming] if naming else [])]
            table = rows_of(file, columns, group).slice(self.items[0], len(self.items))
        for number, row in zip(self.items, table.to_pylist(), strict=True):
            value = row[column]
            data, own = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
            own = own or (row[naming] if naming else None) or f"{group}-{number}"
            name = f"{self.where}/{own}"
            yield Picture(name, partial(_held, data, name, max_pixels), max_pixels)


def _streamed(where: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The pictures of a compressed tar, each with what reads it before the next is asked for."""
    with _file(where) as file, tarfile.open(fileobj=file, mode="r|gz") as tar:
        for member in tar:
            if member.isfile() and _wanted(member.name, member.size):
                yield f"{where}/{member.name}", lambda member=member: tar.extractfile(member).read()  # type: ignore


def _held(data: bytes | None, name: str, max_pixels: int) -> Image.Image:
    if not data:
        raise BadPicture(f"{name}: the row holds no picture")
    return read_bytes(data, name, max_pixels)


def _fetched(
    where: str, max_pixels: int, name: str = "", start: int | None = None, end: int | None = None
) -> Image.Image:
    """A file, or a part of one, wherever it lies."""
    try:
        fs, path = opened_at(where)
        data = fs.cat_file(path, start, end)
    except Exception as error:  # of many stores, each with errors of its own
        raise BadPicture(
            f"{name or where} cannot be read: {str(error) or type(error).__name__}", passing=True
        ) from None
    return read_bytes(data, name or where, max_pixels)


def is_address(given: str) -> bool:
    """s3://bucket/…, gs://…, https://…: what fsspec opens."""
    return "://" in given


def opened_at(where: str) -> tuple[Any, str]:
    """The file system of a path or an address, and the path in it."""
    found: tuple[Any, str] = fsspec.core.url_to_fs(where) if is_address(where) else (HERE, os.path.abspath(where))
    return found


def _file(where: str) -> Any:
    fs, path = opened_at(where)
    return fs.open(path, "rb")


def chunked(given: Sequence[str], size: int) -> tuple[list["Chunk | Shard"], list[tuple[str, str]]]:
    """What was given as chunks of about so many files, and shards, which are cut where they are read; and what leads
    nowhere."""
    files, shards, missing = dict[str, str](), dict[str, str](), list[tuple[str, str]]()
    for name in (str(each).removeprefix("file://") for each in given):
        try:
            for path, stamp in _listed(name):
                (shards if _is_shard(path) else files)[path] = stamp
        except BadPicture as reason:
            missing.append((name, str(reason)))
    found: list[Chunk | Shard] = [Files("", part) for part in _cut(list(files.items()), size, lambda item: item[0])]
    return [*found, *(Shard(path, stamp, size) for path, stamp in shards.items())], missing


def _listed(given: str) -> Iterator[tuple[str, str]]:
    """Pictures and shards that a path, a folder, a glob or an address stands for, each with its stamp."""
    if is_address(given):
        yield from _listed_afar(given)
        return
    found, missing = files_of(given, lambda path: is_picture_name(path) or _is_shard(str(path)))
    if not found:
        raise BadPicture(missing)
    for path in found:
        try:
            facts = os.stat(path)
            yield str(path), f"{facts.st_size}-{facts.st_mtime_ns}"
        except OSError:
            yield str(path), ""


def _listed_afar(given: str) -> Iterator[tuple[str, str]]:
    try:
        fs, path = opened_at(given)
        found = fs.glob(path, detail=True) if glob.has_magic(path) else fs.find(path, detail=True)
    except Exception as error:
        words = f"{given} cannot be listed: {str(error) or type(error).__name__}"
        raise BadPicture(words, passing=True) from None
    some = False
    for name, facts in sorted(found.items()):
        if facts.get("type") != "directory" and (is_picture_name(Path(name)) or _is_shard(name) or name == path):
            some = True
            stamp = next((str(facts[key]) for key in ("ETag", "etag", "mtime", "LastModified") if key in facts), "")
            yield fs.unstrip_protocol(name), f"{facts.get('size')}-{stamp}"
    if not some:
        raise BadPicture(f"no pictures, .tar or .parquet files at {given}")


def _is_shard(path: str) -> bool:
    return path.lower().endswith((*SHARDS, *TABLES))


@dataclass(frozen=True)
class Shard:
    """A file of many pictures, cut by whoever does the work."""

    where: str
    stamp: str
    size: int

    def chunks(self) -> list[Chunk]:
        """Or BadPicture."""
        try:
            if self.where.lower().endswith(TABLES):
                return list(self._records())
            if self.where.lower().endswith(".tar"):
                return list(self._members())
            names = tuple(dict.fromkeys(name for name, _ in _streamed(self.where)))
        except (BadChoice, BadPicture):
            raise
        except Exception as error:  # of tarfile, pyarrow and many stores
            words = f"{self.where} cannot be read: {str(error) or type(error).__name__}"
            raise BadPicture(words, passing=isinstance(error, OSError)) from None
        return [Stream(self.where, names, self.stamp)] if names else []

    def _members(self) -> Iterator[Chunk]:
        with _file(self.where) as file:
            entries = list(tar_entries(file, file.seek(0, os.SEEK_END)))
        found = {f"{self.where}/{name}": (start, size) for name, start, size in entries if _wanted(name, size)}
        items = [(name, start, size) for name, (start, size) in found.items()]
        for part in _cut(items, self.size, lambda item: item[0]):
            yield Members(self.where, part, self.stamp)

    def _records(self) -> Iterator[Chunk]:
        import pyarrow.parquet as pq

        with _file(self.where) as file:
            table = pq.ParquetFile(file)
            column, naming = _columns(self.where, table.schema_arrow)
            rows = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
        for group, count in enumerate(rows):
            stamp = json.dumps([group, column, naming, self.stamp])
            for start in range(0, count, self.size):
                yield Records(self.where, tuple(range(start, min(start + self.size, count))), stamp)


def rows_of(file: BinaryIO, columns: list[str] | None = None, group: int | None = None) -> Any:
    """The table in a Parquet file, or a group of its rows, read in this thread: one of Arrow's own that still holds a
    Python file when the interpreter ends brings the process down."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file, pre_buffer=False)
    groups = range(table.num_row_groups) if group is None else [group]
    return table.read_row_groups(groups, columns, use_threads=False)


def _wanted(name: str, size: int) -> bool:
    return is_picture_name(Path(name)) and not Path(name).name.startswith(".") and 0 <= size <= LARGEST


def _columns(where: str, schema: Any) -> tuple[str, str | None]:
    """Which column holds pictures (bytes, or bytes and path as data sets have them), and which their names."""
    import pyarrow as pa

    def holds(kind: Any) -> bool:
        inside = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or inside)

    pictures = [entry.name for entry in schema if holds(entry.type)]
    if not pictures:
        raise BadChoice(f"{where} has no column of pictures: bytes, or bytes with a path; it has {schema.names}")
    column = next((name for name in COLUMNS if name in pictures), pictures[0])
    texts = [entry.name for entry in schema if pa.types.is_string(entry.type) or pa.types.is_large_string(entry.type)]
    return column, next((name for name in NAMES if name in texts), None)


def _cut(items: Sequence[Any], size: int, name: Callable[[Any], str]) -> Iterator[tuple[Any, ...]]:
    """Parts of about so many, twice as many at most; one ends behind a name whose hash says so."""
    part: list[Any] = []
    for item in items:
        part.append(item)
        ends = int(sha256(name(item).encode(errors="surrogatepass")).hexdigest()[:8], 16) % size == 0
        if (ends and 2 * len(part) >= size) or len(part) >= 2 * size:
            yield tuple(part)
            part = []
    if part:
        yield tuple(part)
