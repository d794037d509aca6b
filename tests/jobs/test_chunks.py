"""Whatever pictures lie in, they come in chunks that are known again; what changes changes its own chunk alone."""

import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from fovea.basics import BadChoice, BadPicture
from fovea.jobs.chunks import Chunk, Shard, chunked
from made_job import pictures, tarred


def cut(given: object, size: int = 8) -> list[Chunk]:
    items, missing = chunked([str(given)], size)
    assert not missing
    return [chunk for item in items for chunk in (item.chunks() if isinstance(item, Shard) else [item])]


def names(chunks: list[Chunk]) -> list[str]:
    return [picture.name.rsplit("/", 1)[-1] for chunk in chunks for picture in chunk.pictures(10**6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("chunks") / "photos", 50)


def parquet(folder: Path, path: Path, nested: bool) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(folder.iterdir())
    data = [{"bytes": file.read_bytes(), "path": file.name} if nested else file.read_bytes() for file in files]
    table = {"label": [0] * len(files), "image": data} | ({} if nested else {"file": [file.name for file in files]})
    pq.write_table(pa.table(table), path, row_group_size=20)
    return path


@pytest.mark.parametrize(
    "kind", ["folder", "glob", "tar", "tar.gz", "parquet", "nested parquet", "address", "tar afar"]
)
def test_every_form_gives_the_same_pictures_once(kind: str, folder: Path, tmp_path: Path) -> None:
    given: object = folder
    if kind == "glob":
        given = folder / "*.png"
    elif kind.startswith("tar"):
        given = tarred(folder, tmp_path / f"s.{kind.split()[0]}", "w:gz" if kind.endswith("gz") else "w")
    elif "parquet" in kind:
        given = parquet(folder, tmp_path / "s.parquet", "nested" in kind)
    if kind in ("address", "tar afar"):
        store, root = fsspec.filesystem("memory"), f"/{tmp_path.name}"
        for file in folder.iterdir() if kind == "address" else [Path(str(given))]:
            store.pipe_file(f"{root}/{file.name}", file.read_bytes())
        given = f"memory:/{root}"
    chunks = cut(given)
    assert names(chunks) == [file.name for file in sorted(folder.iterdir())]
    assert sum(map(len, chunks)) == 50
    assert len({chunk.id for chunk in chunks}) == len(chunks) > (0 if kind == "tar.gz" else 3)
    first = next(iter(chunks[0].pictures(10**6)))
    assert first.read().size == (30, 20)
    assert [chunk.id for chunk in cut(given)] == [chunk.id for chunk in chunks]


def test_a_picture_more_changes_its_own_chunk_alone(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos", 400)
    before = {chunk.id for chunk in cut(folder)}
    (folder / "0123a.png").write_bytes((folder / "0123.png").read_bytes())
    after = {chunk.id for chunk in cut(folder)}
    assert len(before - after) <= 3 < len(before) / 5
    assert all(len(chunk) <= 16 for chunk in cut(folder))


def test_a_picture_that_changed_is_another(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos", 3)
    before = cut(folder)[0].id
    (folder / "0001.png").write_bytes((folder / "0002.png").read_bytes() + b"\0")
    assert cut(folder)[0].id != before


def test_what_leads_nowhere_is_told_and_does_not_stop_the_others(folder: Path, tmp_path: Path) -> None:
    items, missing = chunked([str(tmp_path / "none"), str(folder), "memory://nothing/here"], 8)
    assert items
    assert [name for name, _ in missing] == [str(tmp_path / "none"), "memory://nothing/here"]


@pytest.mark.parametrize(
    ("name", "content"), [("s.tar", b"x" * 600), ("s.tar.gz", b"x" * 600), ("s.parquet", b"x" * 600)]
)
def test_a_damaged_shard_is_a_picture_that_cannot_be_read(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    ((shard,), _) = chunked([str(tmp_path)], 8)
    assert isinstance(shard, Shard)
    with pytest.raises(BadPicture, match=r"s\..* cannot be read"):
        shard.chunks()


def test_parquet_without_pictures_is_refused_with_its_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "s.parquet")
    with pytest.raises(BadChoice, match=r"no column of pictures.*\['a', 'b'\]"):
        cut(tmp_path / "s.parquet")


def test_a_row_without_a_picture_is_one_that_cannot_be_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"image": pa.array([None], pa.binary())}), tmp_path / "s.parquet")
    (picture,) = cut(tmp_path / "s.parquet")[0].pictures(10**6)
    with pytest.raises(BadPicture, match="holds no picture"):
        picture.read()


def test_a_limit_of_pixels_holds_in_shards(folder: Path, tmp_path: Path) -> None:
    (picture, *_) = cut(tarred(folder, tmp_path / "s.tar"))[0].pictures(100)
    with pytest.raises(BadPicture, match="pixels"):
        picture.read(100)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux lists them")
def test_parquet_is_read_without_threads_of_arrows(tmp_path: Path) -> None:
    """They would hold a Python file at the interpreter's end, and abort the process every now and then."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"a": [{"b": [1.0, 2.0]}] * 40, "c": ["x"] * 40}), tmp_path / "s.parquet", row_group_size=20
    )
    code = """if True:
        import os, pyarrow.parquet
        from fovea.jobs.chunks import rows_of

        def threads(): return len(os.listdir("/proc/self/task"))

        before = threads()
        with open("s.parquet", "rb") as file:
            some = rows_of(file, ["c"], 0)
            print(len(rows_of(file)), len(some), some.column_names, threads() - before)
    """
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert told == "40 20 ['c'] 0\n"
