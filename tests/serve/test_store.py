"""Pictures that stay for a while: what is kept, what goes, and windows of it."""

import math
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fovea.basics import BadPicture
from fovea.serve.options import Limits
from fovea.serve.refusing import Refused
from fovea.serve.store import TILE, Held, Store


def png(width: int, height: int, seed: int = 0) -> bytes:
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    buffer = BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(buffer, "png")
    return buffer.getvalue()


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(data)).convert("RGB")).astype(int)


def test_the_least_recently_used_goes_first_and_what_is_decoded_before_it() -> None:
    data = [png(200, 100, seed) for seed in range(3)]
    decoded = 200 * 100 * 4
    store = Store(Limits(kept=sum(map(len, data)) + decoded + 100))
    held = [store.hold(f"{number}.png", one) for number, one in enumerate(data)]
    keys = [store.keep(one) for one in held]
    for one in held:
        one.image()
    assert store.get(keys[0]) is held[0]
    store.shrink()  # two more are decoded than there is room for: the others' are let go of
    assert [one.decoded is None for one in held] == [False, True, True]
    buffer = BytesIO()
    Image.new("L", (900, 700)).save(buffer, "png")  # of few bytes
    large = store.hold("large.png", buffer.getvalue())
    picture = large.ready()
    last = store.keep(large)
    assert large.decoded is None  # alone it is larger than all may be, and it goes rather than the others' files
    assert picture.read().size == (900, 700)  # whoever asked has it
    assert [store.get(key) for key in (*keys, last)] == [*held, large]
    full = store.keep(store.hold("full.png", bytes(store.limits.kept - 100)))
    assert store.get(full).name == "full.png"
    for key in keys:
        with pytest.raises(Refused, match="send it again"):
            store.get(key)


def test_ids_cannot_be_guessed_and_are_forgotten_when_asked() -> None:
    store = Store(Limits())
    keys = {store.keep(store.hold("a.png", png(20, 10))) for _ in range(50)}
    assert len(keys) == 50
    assert min(map(len, keys)) >= 22  # 128 bits
    key = keys.pop()
    store.drop(key)
    with pytest.raises(Refused, match="not here"):
        store.drop(key)


@pytest.mark.parametrize("level", [10, 9, 8, 0])
def test_tiles_are_parts_of_their_level(level: int) -> None:
    held = Held("a.png", png(700, 515), 10**6)
    scale = 2 ** (10 - level)  # 1,024 is the first power of two that holds 700
    width, height = math.ceil(700 / scale), math.ceil(515 / scale)
    whole = np.asarray(held.image().resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    for column in range(math.ceil(width / TILE)):
        for row in range(math.ceil(height / TILE)):
            tile = pixels(held.tile(level, column, row))
            part = whole[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
            assert tile.shape == part.shape
            assert np.abs(tile - part).mean() < 3  # JPEG, and edges that are shrunk without their neighbors
    for place in ((11, 0, 0), (level, math.ceil(width / TILE), 0), (level, 0, math.ceil(height / TILE))):
        with pytest.raises(Refused) as refused:
            held.tile(*place)
        assert refused.value.status == 404


def test_a_tiled_file_is_read_window_by_window_and_its_file_goes_with_it(tmp_path: Path) -> None:
    pytest.importorskip("openslide")
    import fovea

    source = tmp_path / "large.png"
    source.write_bytes(png(1500, 1100))
    fovea.pyramid(source, tmp_path / "large.tif")
    store = Store(Limits())
    held = store.hold("../../slide.tif", (tmp_path / "large.tif").read_bytes())
    assert held.size == (1500, 1100)
    assert held.file is not None
    assert held.file.is_relative_to(store.temporary.name)  # type: ignore[union-attr]
    assert held.decoded is None
    assert np.abs(pixels(held.tile(11, 2, 1)) - pixels(png(1500, 1100))[256:512, 512:768]).mean() < 4
    key, file = store.keep(held), held.file
    store.drop(key)
    assert not file.exists()


def test_a_full_disk_keeps_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    held = Held("a.tif", b"II*\0" + bytes(100), 10**6, tmp_path)
    assert held.file is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_what_cannot_be_read_is_told_by_its_own_name() -> None:
    store = Store(Limits(pixels=1000))
    for data, words in ((b"II*\0junk", "mine.tif"), (png(100, 100), "over the limit"), (b"", "mine.tif")):
        with pytest.raises(BadPicture, match=words) as reason:
            _ = store.hold("mine.tif", data).size
        assert "/tmp" not in str(reason.value)


def test_examples_are_there_by_their_names_alone() -> None:
    store = Store(Limits())
    assert store.get("example:coffee").size == (600, 400)
    for key in ("example:../coffee", "example:", "example:/etc/passwd", "coffee", "../coffee"):
        with pytest.raises(Refused):
            store.get(key)
