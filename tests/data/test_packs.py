import gzip
import os
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fovea
from checks import refused
from fovea.data import Member, open_data
from made_data import save, write_pack

needs_packs = pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the packs")


def test_words_are_numbered_in_sorted_order(made: Callable[..., Path]) -> None:
    data = open_data(f"{made('pack')}:split=train")
    assert data.labels == ("ant", "cat")
    assert [(one.name, one.label, one.boxes) for one in data.samples] == [
        ("a.png", 1, ((1, 2, 3, 4), (5, 6, 7, 8))),
        ("b.png", 0, ((1, 2, 3, 4), (5, 6, 7, 8))),
    ]


def test_a_shard_that_is_cut_short(made: Callable[..., Path]) -> None:
    root = made("pack")
    shard = root / "00.tar"
    shard.write_bytes(shard.read_bytes()[:1100])
    reasons = [str(image) for _, image in open_data(root).read() if isinstance(image, fovea.BadPicture)]
    assert [one.partition(" ")[0] for one in reasons] == ["b.png", "c.png"]


def test_manifests_that_cannot_be(made: Callable[..., Path]) -> None:
    root = made("pack")
    text = (root / "manifest.csv").read_text()
    (root / "manifest.csv").write_text(text, encoding="utf-8-sig")
    assert len(open_data(root)) == 3
    (root / "manifest.csv").write_text(text + "\nd.png,00.tar\n")
    refused(r"manifest\.csv, line 5 is cut short", open_data, root)
    (root / "manifest.csv").write_text(text.replace("1 2 3 4", "3 2 1 4"))
    refused(r"manifest\.csv, a\.png: a box is", open_data, root)
    (root / "manifest.csv").write_text(text.replace("cat", "99999999999").replace("ant", "0"))
    refused(r"label 99999999999 in manifest\.csv is too large", open_data, root)
    (root / "manifest.csv").write_text("file,shard,label\n")
    refused("lists no picture", open_data, root)
    (root / "manifest.csv").write_text(text)
    (root / "00.tar").unlink()
    refused(r"incomplete: 00\.tar", open_data, root)


@needs_packs
@pytest.mark.parametrize(
    ("given", "count", "classes"),
    [
        ("gtsdb:split=test", 76, 4), ("gtsdb:split=train", 228, 4), ("imagenette:split=train", 5000, 10),
        ("imagenette:split=test", 1600, 10), ("cub100", 5864, 100), ("imagenet-val-3k", 3000, 1000),
        ("mnist:split=train", 60000, 10), ("mnist:split=test", 10000, 10),
    ],
)  # fmt: skip
def test_the_packs(given: str, count: int, classes: int) -> None:
    if not Path(os.environ["FOVEA_DATA"], given.partition(":")[0]).is_dir():
        pytest.skip("not in FOVEA_DATA")
    data = open_data(given)
    assert (len(data), len(data.labels)) == (count, classes)
    for sample, image in data.first(4).read():
        assert not isinstance(image, fovea.BadPicture)
        assert all(0 <= x0 < x1 <= image.width and 0 <= y0 < y1 <= image.height for x0, y0, x1, y1 in sample.boxes)


HOSTILE = {
    "not UTF-8": (b"file,shard,label\na.png,00.tar,\xff\n", r"manifest\.csv cannot be read: .*0xff"),
    "a field over the limit": (b"file,shard,label\na.png,00.tar," + b"x" * 200_000, r"manifest\.csv, after .*limit"),
    "a label of 10,000 digits": (b"file,shard,label\na.png,00.tar," + b"9" * 10_000, r"line 2 is damaged.*label: "),
    "a shard elsewhere": (b"file,shard,label\na.png,../../etc/passwd,1\n", "line 2 .*shard: .*leads out of the pack"),
    "a shard by its path": (b"file,shard,label\na.png,/etc/passwd,1\n", "line 2 .*leads out of the pack's folder"),
    "a zero byte": (b"file,shard,label\na\0.png,00.tar,1\n", "line 2 .*file: "),
    "no name": (b"file,shard,label\n,00.tar,1\n", "line 2 .*file: "),
    "many columns": (b"file,shard,label" + b"," * 2_000_000, "number of columns .* is 0 to 1,000; got 2000003"),
    "another file": (b"\x89PNG\r\n\x1a\n", "manifest.csv cannot be read"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifests(name: str, made: Callable[..., Path]) -> None:
    root, (content, words) = made("pack"), HOSTILE[name]
    (root / "manifest.csv").write_bytes(content)
    refused(words, open_data, root)


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE, pax: dict[str, str] | None = None) -> bytes:
    """A tar's header with a size that need not be true."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.pax_headers = size, kind, pax or {}
    return info.tobuf(tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


def reasons_of(root: Path, shard: bytes) -> dict[str, str]:
    (root / "00.tar").write_bytes(shard)
    tracemalloc.start()
    found = {sample.name: str(image) for sample, image in open_data(root).read() if isinstance(image, fovea.BadPicture)}
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    return found


@pytest.mark.parametrize(
    "shard",
    [
        header("a.png", 10**11),
        header("a.png", 10**11, tarfile.GNUTYPE_LONGNAME),
        header("a.png", 10**11, tarfile.XHDTYPE),
        header("a.png", 10**11, tarfile.GNUTYPE_SPARSE),
        header("a.png", -512) + bytes(1024),
        header("x", 512, tarfile.XHDTYPE) + padded(b"999999999999 path=a.png\n") + header("b", 4) + padded(b"x"),
        header("x", 512, tarfile.XHDTYPE) + padded(b"9" * 500) + header("b", 4) + padded(b"x"),
        (header("x", 8, tarfile.GNUTYPE_LONGNAME) + padded(b"a.png")) * 3000 + header("a", 4) + padded(b"x"),
        header("a.png", 0, tarfile.SYMTYPE) + header("b.png", 0, tarfile.LNKTYPE) + header("c.png", 0, tarfile.CHRTYPE),
        b"a.png" * 1000,
        gzip.compress(header("a.png", 4)) + bytes(512),
    ],
    ids=["size", "long-name", "records", "sparse", "negative", "length", "digits", "chain", "links", "noise", "gzip"],
)
def test_hostile_shards(shard: bytes, made: Callable[..., Path]) -> None:
    """Every picture is told as one that cannot be read, and no memory is taken for what a header claims."""
    assert set(reasons_of(made("pack"), shard)) == {"a.png", "b.png", "c.png"}


def test_pictures_before_a_damaged_header_are_read(made: Callable[..., Path]) -> None:
    root = made("pack")
    whole = (root / "00.tar").read_bytes()
    with tarfile.open(root / "00.tar") as tar:
        first = tar.getmembers()[1].offset
    assert set(reasons_of(root, whole[:first] + header("b.png", 10**11))) == {"b.png", "c.png"}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_names_as_tar_writes_them(form: int, tmp_path: Path) -> None:
    """Long names, names that are not ASCII, folders and links between: as the standard library reads them."""
    save(tmp_path / "p.png")
    plain = form == tarfile.USTAR_FORMAT
    names = ["short.png", f"{'folder/' * 12}{'n' * 60}.png", "a.png" if plain else f"{'é' * 120}.png", "sub/last.png"]
    with tarfile.open(tmp_path / "00.tar", "w", format=form) as tar:
        for name in names:
            link = tarfile.TarInfo(f"{name}-link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd" if plain else "l" * 150
            tar.addfile(link)
            tar.add(tmp_path / "p.png", name)
    rows = "".join(f"{name},00.tar,{i}\n" for i, name in enumerate(names))
    (tmp_path / "manifest.csv").write_text(f"file,shard,label\n{rows}", encoding="utf-8")
    with tarfile.open(tmp_path / "00.tar") as tar:
        members = {member.name: (member.offset_data, member.size) for member in tar}
    for sample in open_data(tmp_path).samples:
        assert sample.read().size == (30, 20)
        assert isinstance(sample.source, Member)
        assert (sample.source.offset, sample.source.size) == members[sample.name]


def test_a_disk_that_fails_is_a_passing_reason(made: Callable[..., Path]) -> None:
    root = made("pack")
    sample = open_data(root).samples[0]
    (root / "00.tar").unlink()
    with pytest.raises(fovea.BadPicture, match=r"cannot be read from 00\.tar") as caught:
        sample.read()
    assert caught.value.passing


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_change_of_a_shard_or_a_manifest(draw: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_pack(root, [(name, b"none", "1", "", "") for name in ("a.png", f"{'b' * 120}.png")])
        path = root / draw.draw(st.sampled_from(["00.tar", "manifest.csv"]))
        content = bytearray(path.read_bytes())
        for _ in range(draw.draw(st.integers(1, 5))):
            content[draw.draw(st.integers(0, len(content) - 1))] = draw.draw(st.integers(0, 255))
        path.write_bytes(content[: draw.draw(st.integers(0, len(content)))])
        with suppress(fovea.BadChoice):
            for _, image in open_data(root).read():
                assert isinstance(image, fovea.BadPicture)
