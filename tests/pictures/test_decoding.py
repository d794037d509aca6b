import io
import os
import socket
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from checks import raises, refused
from fovea.pictures import (
    Picture,
    batched,
    decoded,
    decoding,
    from_array,
    gather,
    is_picture_name,
    read,
    read_all,
    reading,
)

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def two_halves(width: int = 6, height: int = 4) -> Image.Image:
    """Red above, blue below."""
    image = Image.new("RGB", (width, height), RED)
    image.paste(BLUE, (0, height // 2, width, height))
    return image


def corners(image: Image.Image) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The colors of the upper left and the lower right pixel."""
    assert image.mode == "RGB"
    return image.getpixel((0, 0)), image.getpixel((image.width - 1, image.height - 1))


@pytest.mark.parametrize("suffix", ["png", "tif", "gif", "bmp", "webp"])
def test_a_plain_file(tmp_path: Path, suffix: str) -> None:
    options = {"lossless": True} if suffix == "webp" else {}
    two_halves().save(tmp_path / f"a.{suffix}", **options)
    assert corners(read(tmp_path / f"a.{suffix}")) == (RED, BLUE)


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize(
    ("orientation", "back"),
    [(3, Image.Transpose.ROTATE_180), (6, Image.Transpose.ROTATE_90), (8, Image.Transpose.ROTATE_270)],
)
def test_exif_rotation(tmp_path: Path, suffix: str, orientation: int, back: Image.Transpose) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    two_halves(48, 32).transpose(back).save(tmp_path / f"a.{suffix}", exif=exif, quality=100, subsampling=0)
    image = read(tmp_path / f"a.{suffix}")
    assert image.size == (48, 32)
    assert np.abs(np.asarray(image, dtype=int) - np.asarray(two_halves(48, 32), dtype=int)).max() <= 2


def test_grayscale_and_one_bit(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 100], [200, 255]], dtype=np.uint8)).save(tmp_path / "gray.png")
    assert np.asarray(read(tmp_path / "gray.png"))[..., 2].tolist() == [[0, 100], [200, 255]]
    Image.fromarray(np.array([[True, False], [False, True]])).save(tmp_path / "bits.png")
    assert np.asarray(read(tmp_path / "bits.png"))[..., 0].tolist() == [[255, 0], [0, 255]]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_lies_on_white(tmp_path: Path, mode: str) -> None:
    black = (0, 0, 0) if mode == "RGBA" else (0,)
    image = Image.new(mode, (4, 4), (*black, 0))
    image.putpixel((0, 0), (*black, 255))
    image.putpixel((1, 0), (*black, 51))  # a fifth of black
    image.save(tmp_path / "a.png")
    assert [read(tmp_path / "a.png").getpixel((x, 0)) for x in range(3)] == [(0, 0, 0), (204,) * 3, WHITE]


def test_palette_with_and_without_transparency(tmp_path: Path) -> None:
    palette = two_halves().quantize(2)
    palette.save(tmp_path / "plain.png")
    assert corners(read(tmp_path / "plain.png")) == (RED, BLUE)
    palette.save(tmp_path / "see-through.gif", transparency=palette.getpixel((0, 0)))
    assert corners(read(tmp_path / "see-through.gif")) == (WHITE, BLUE)


def test_a_transparent_color_of_rgb_is_white(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "a.png", transparency=RED)
    assert corners(read(tmp_path / "a.png")) == (WHITE, BLUE)


def test_cmyk(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    assert np.abs(np.asarray(read(tmp_path / "a.jpg")).reshape(-1, 3) - np.array(RED)).max() <= 2


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257], [100 * 257, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    assert np.asarray(read(tmp_path / f"a.{suffix}"))[..., 1].tolist() == [[0, 1], [100, 255]]


def test_the_first_frame_of_several(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in (RED, BLUE)]
    for name in ("a.gif", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert corners(read(tmp_path / name)) == (RED, RED)
    with Image.open(tmp_path / "a.tif") as image:
        image.seek(1)
        assert corners(gather(image)[0].read()) == (BLUE, BLUE)  # the user chose another


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 255], [51, 102]], dtype=np.uint8), [[0, 255], [51, 102]]),
        (np.array([[0, 1], [0.2, 0.4]], dtype=np.float32), [[0, 255], [51, 102]]),
        (np.array([[0, 255], [51, 102]], dtype=np.float64), [[0, 255], [51, 102]]),
        (np.array([[0, 65535], [257, 514]], dtype=np.uint16), [[0, 255], [1, 2]]),
        (np.array([[0, 200], [257, 1]], dtype=">u2"), [[0, 1], [1, 0]]),
        (np.array([[False, True], [True, False]]), [[0, 255], [255, 0]]),
        (np.array([[0, 255], [51, 102]], dtype=np.int64), [[0, 255], [51, 102]]),
    ],
)
def test_arrays_of_any_numbers(values: np.ndarray, expected: list[list[int]]) -> None:
    color = np.stack([values, values, values], axis=-1)
    for shape in (values, values[..., None], color):
        assert np.asarray(from_array(shape))[..., 0].tolist() == expected


def test_arrays_with_alpha_lie_on_white() -> None:
    black = np.zeros((2, 2, 4), dtype=np.uint8)
    black[0, 0, 3] = 255
    for values in (black, black[..., 2:], black / 255):
        assert np.asarray(from_array(values))[..., 0].tolist() == [[0, 255], [255, 255]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3, 8, 8)), "H,W or H,W,3; got shape (3, 8, 8); move the channels last"),
        (np.zeros((8, 8, 7)), "got shape (8, 8, 7)"),
        (np.full((4, 4), np.nan), "not numbers"),
        (np.zeros((0, 4, 3), dtype=np.uint8), "has no pixels"),
        (np.array([["a", "b"], ["c", "d"]]), "holds numbers"),
        (np.zeros((1, 1, 3)), "1 x 1 pixels: at least 2 x 2"),
    ],
)
def test_arrays_that_are_no_pictures(values: np.ndarray, message: str) -> None:
    with pytest.raises(fovea.BadPicture) as error:
        from_array(values)
    assert message in str(error.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_are_told_apart_from_lists_of_pictures() -> None:
    for given in (torch.zeros(1, 3, 8, 8), torch.nested.nested_tensor([torch.zeros(3, 8, 8)])):
        refused("one N,C,H,W tensor; got Tensor", gather, given)


def test_folders_are_searched_through_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "sub/deep/c.tif", ".hidden.png", ".cache/d.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        two_halves().save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    names = [Path(picture.name).name for picture in gather(tmp_path)]
    assert names == ["a.JPG", "b.png", "c.tif"]
    assert [Path(p.name).name for p in gather(str(tmp_path / "**" / "*.tif"))] == ["c.tif"]
    assert [Path(p.name).name for p in gather([tmp_path / "sub", str(tmp_path / "*.png")])] == ["c.tif", "b.png"]


def test_a_file_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "a[1].png")
    assert corners(gather(tmp_path / "a[1].png")[0].read()) == (RED, BLUE)


def test_pictures_in_memory_get_names_of_their_own() -> None:
    array = np.asarray(two_halves())
    assert [picture.name for picture in gather([two_halves(), array])] == ["picture-0", "picture-1"]
    assert [picture.name for picture in gather(np.stack([array, array, array]))] == [
        "picture-0",
        "picture-1",
        "picture-2",
    ]


def test_what_is_no_picture_at_all() -> None:
    for wrong in (3, b"bytes", [None]):
        refused("a picture is a path, a folder, a glob", gather, wrong)


def why(path: Path) -> fovea.BadPicture:
    with pytest.raises(fovea.BadPicture) as error:
        read(path)
    return error.value


def reason(path: Path) -> str:
    return str(why(path))


def test_bad_files_say_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "zero.png").write_bytes(b"")
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    Image.new("RGB", (1, 50)).save(tmp_path / "line.png")
    (tmp_path / "link.png").symlink_to("nowhere.png")
    assert "not a picture" in reason(tmp_path / "text.png")
    assert "empty (0 bytes)" in reason(tmp_path / "zero.png")
    assert "1 x 1 pixels: at least 2 x 2" in reason(tmp_path / "dot.png")
    assert "1 x 50 pixels" in reason(tmp_path / "line.png")
    assert "link to what does not" in reason(tmp_path / "link.png")
    assert "is a folder" in reason(tmp_path)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "tif", "webp", "bmp"])
def test_a_file_cut_short_anywhere(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / f"whole.{suffix}")
    whole = (tmp_path / f"whole.{suffix}").read_bytes()
    path = tmp_path / f"cut.{suffix}"
    for share in (0.001, 0.01, 0.1, 0.5):
        path.write_bytes(whole[: max(1, int(len(whole) * share))])
        assert str(path) in reason(path)


def test_a_picture_in_memory_that_is_cut_short(tmp_path: Path) -> None:
    Image.effect_noise((40, 40), 50).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:600])
    with Image.open(tmp_path / "a.png") as image, pytest.raises(fovea.BadPicture, match="damaged or cut short"):
        gather(image)[0].read()


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def huge_png(path: Path, side: int) -> None:
    """A header that promises side x side pixels, and hardly any."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    pixels = png_chunk(b"IDAT", zlib.compress(b"0"))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + pixels + png_chunk(b"IEND", b""))


def test_a_huge_picture_is_refused_before_decoding(tmp_path: Path) -> None:
    huge_png(tmp_path / "huge.png", 30_000)
    said = reason(tmp_path / "huge.png")
    assert "30,000 x 30,000 pixels, over the limit of 200,000,000; raise max_pixels" in said


def test_the_limit_can_be_raised_and_lowered(tmp_path: Path) -> None:
    two_halves(30, 20).save(tmp_path / "a.png")
    raises(fovea.BadPicture, r"30 x 20 pixels, over the limit of 599", read, tmp_path / "a.png", max_pixels=599)
    assert read(tmp_path / "a.png", max_pixels=600).size == (30, 20)


def test_above_pillows_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    two_halves(30, 20).save(tmp_path / "a.png")
    assert corners(read(tmp_path / "a.png")) == (RED, BLUE)
    assert Image.MAX_IMAGE_PIXELS == 10  # the user's own setting is as before


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_halves().save(tmp_path / "a.png")

    def refuse(*_: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image, "open", refuse)  # the one who runs the tests may be allowed everything
    assert "permission denied" in reason(tmp_path / "a.png")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "chelsea.png")
    (tmp_path / "empty").mkdir()

    def said(given: Path) -> str:
        (one,) = read_all(gather(given))
        return str(one)

    assert "did you mean 'chelsea.png'" in said(tmp_path / "chelsae.png")
    assert "no pictures in the folder" in said(tmp_path / "empty")
    assert "no pictures match" in said(tmp_path / "*.jpg")
    assert "cannot be opened: File name too long" in said(tmp_path / ("a" * 300))


def test_one_bad_picture_does_not_stop_the_others(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"nonsense")
    found = gather([tmp_path / "bad.png", tmp_path / "missing.png", tmp_path / "good.png", two_halves()])
    kinds = [type(one) for one in read_all(found)]
    assert kinds[:2] == [fovea.BadPicture] * 2
    assert all(issubclass(kind, Image.Image) for kind in kinds[2:])
    assert found[1].name == os.fspath(tmp_path / "missing.png")


def test_a_picture_is_read_anew_each_time(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "a.png")
    picture = Picture("a", tmp_path / "a.png")
    picture.read().paste(WHITE, (0, 0, 6, 4))
    assert corners(picture.read()) == (RED, BLUE)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError(), TimeoutError(110, "timed out")])
def test_a_passing_reason_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    two_halves().save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])

    def fail(*_: object) -> None:
        raise error

    assert not why(tmp_path / "b.png").passing
    monkeypatch.setattr(Image.Image, "load", fail)
    assert "damaged" not in reason(tmp_path / "a.png")
    assert why(tmp_path / "a.png").passing


@pytest.mark.parametrize("name", ["x.jpg", "x.png", "x.eps"])
def test_no_file_starts_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Pillow gives PostScript to Ghostscript, whatever its file is called."""
    ghostscript = tmp_path / "bin" / "gs"
    ghostscript.parent.mkdir()
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", str(ghostscript.parent), prepend=os.pathsep)
    (tmp_path / name).write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n")
    assert "not a picture in a format that can be read" in reason(tmp_path / name)
    assert not (tmp_path / "started").exists()
    assert not is_picture_name(Path("a.eps"))
    assert is_picture_name(Path("a.JPG"))


def made(mode: str) -> Image.Image:
    """Different values everywhere, wider than high."""
    values = np.random.default_rng(0).integers(0, 256, (23, 31, 4), dtype=np.uint8)
    if mode == "F":
        return Image.fromarray(values[..., 0].astype(np.float32) / 200)
    if mode.startswith("I"):
        return Image.fromarray(
            (values[..., 0].astype(np.int32) * 300 + 7).astype(np.uint16 if ";" in mode else np.int32)
        )
    if mode == "P":
        return Image.fromarray(values[..., :3]).quantize(9)
    if mode == "LAB":
        return Image.merge("LAB", Image.fromarray(values[..., :3]).split())
    return Image.fromarray(values).convert(mode)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16", "F"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_strips_change_nothing(monkeypatch: pytest.MonkeyPatch, mode: str, orientation: int) -> None:
    image = made(mode)
    image.getexif()[0x0112] = orientation
    if mode == "P":
        image.info["transparency"] = 3
    whole = decoding.upright(image)
    assert whole.size == ((23, 31) if orientation > 4 else (31, 23))
    monkeypatch.setattr(decoding, "STRIP", 31 * 4)
    monkeypatch.setattr(decoding, "WHOLE", 31 * 4)
    for copy in (False, True):
        assert np.array_equal(np.asarray(decoding.upright(image, ours=copy)), np.asarray(whole))


def test_sixteen_bits_are_rounded_as_in_double_precision() -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    expected = np.rint(values.astype(np.float64) / 257).astype(np.uint8)
    assert np.array_equal(np.asarray(from_array(values))[..., 0], expected)
    assert np.array_equal(np.asarray(from_array(values.astype(">u2")))[..., 0], expected)
    assert np.array_equal(np.asarray(decoding.upright(Image.fromarray(values)))[..., 0], expected)


def black_png(path: Path, side: int, depth: int, color: int, bits: int, *chunks: bytes) -> None:
    packer, line = zlib.compressobj(1), bytes(1 + side * bits // 8)
    data = b"".join(packer.compress(line) for _ in range(side)) + packer.flush()
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, color, 0, 0, 0))
    whole = header + b"".join(chunks) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + whole)


MEMORY = """
import sys
from pathlib import Path
from fovea.pictures.decoding import read_bytes
def most():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = most()
for path in sys.argv[1:]:
    size = read_bytes(Path(path).read_bytes(), path).size
    print(path, (most() - before) / (size[0] * size[1]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is asked of Linux")
def test_a_picture_is_in_memory_once_whatever_its_mode(tmp_path: Path) -> None:
    """Pillow holds 4 bytes per RGB pixel; a strip, and what strips are packed into, come on top."""
    side, colors = 5000, (png_chunk(b"PLTE", bytes(768)), png_chunk(b"tRNS", b"a"))
    black_png(tmp_path / "rgb.png", side, 8, 2, 24)
    black_png(tmp_path / "gray16.png", side, 16, 0, 16)
    black_png(tmp_path / "rgba.png", side, 8, 6, 32)
    black_png(tmp_path / "palette.png", side, 8, 3, 8, *colors)
    black_png(tmp_path / "bits.png", side, 1, 0, 1)
    for mode in ("F", "CMYK"):
        Image.new(mode, (side, side)).save(tmp_path / f"{mode}.tif", compression="packbits")
    command = [sys.executable, "-c", MEMORY, *map(str, sorted(tmp_path.iterdir()))]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.count("\n") == 7
    assert float(said.split()[-1]) < 7, said  # of them all, since a peak stays


def test_threads_share_the_room_for_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_PIXELS", 250)
    sides = [10, 12, 20, 10, 5, 5, 16, 10] * 3  # 20 x 20 is more than there is room for, and goes alone
    for i, side in enumerate(sides):
        Image.new("L", (side, side)).save(tmp_path / f"{i:02}.png")
    at_once, most, lock = list[int](), list[list[int]](), threading.Lock()

    def hold(image: Image.Image) -> tuple[int, int]:
        with lock:
            at_once.append(image.width)
            most.append(at_once[:])
        threading.Event().wait(0.01)
        with lock:
            at_once.remove(image.width)
        return image.size

    skipped: list[tuple[str, str]] = []
    sizes = [size for _, size in decoded(gather(tmp_path), hold, skipped, threads=4)]
    assert [size[0] for size in sizes] == sides
    assert not skipped
    assert all(sum(side**2 for side in group) <= 250 or len(group) == 1 for group in most)
    assert max(map(len, most)) > 1
    assert decoding.room.taken == 0


def test_large_pictures_are_not_kept_ahead_and_fill_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE", 99)
    monkeypatch.setattr(reading, "MAX_PIXELS", 100)
    for i, side in enumerate([5, 10, 5, 12, 10, 5, 5]):
        Image.new("L", (side, side)).save(tmp_path / f"{i}.png")
    batches = list(batched(decoded(gather(tmp_path), lambda image: image, [], threads=2), 4))
    assert [[place for place, _ in batch] for batch in batches] == [[0, 1, 2], [3], [4, 5, 6]]
    assert [image.width for batch in batches for _, image in batch] == [5, 10, 5, 12, 10, 5, 5]


def test_decoders_that_take_more_memory_have_a_lower_limit(tmp_path: Path) -> None:
    two_halves(30, 20).save(tmp_path / "a.webp")
    raises(fovea.BadPicture, "over the limit of a WEBP picture of 599", read, tmp_path / "a.webp", max_pixels=1199)
    assert read(tmp_path / "a.webp", max_pixels=1200).size == (30, 20)


def test_pillows_limit_does_not_hold_while_large_pictures_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    two_halves(30, 20).save(tmp_path / "a.tif", compression="tiff_lzw")  # checked when it is loaded, too
    assert corners(read(tmp_path / "a.tif")) == (RED, BLUE)
    assert Image.MAX_IMAGE_PIXELS == 10


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    listener.bind("s.png")
    assert "pipe.png is a pipe, not a picture" in reason(tmp_path / "pipe.png")
    assert "folder.png is a folder, not a picture" in reason(tmp_path / "folder.png")
    assert "s.png is a socket, not a picture" in reason(tmp_path / "s.png")
    assert "/dev/zero is a device, not a picture" in reason(Path("/dev/zero"))
    listener.close()


def test_a_file_that_changes_is_not_read_as_the_same_picture(tmp_path: Path) -> None:
    two_halves().save(tmp_path / "a.png")
    picture = Picture("a", tmp_path / "a.png")
    picture.read()
    picture.read()
    os.utime(tmp_path / "a.png", ns=(1, 1))
    raises(fovea.BadPicture, "a.png changed after it was first read: run again", picture.read)


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_halves().save(tmp_path / "a.bmp")

    def cut(image: Image.Image, *_: object, **__: object) -> Image.Image:
        os.truncate(tmp_path / "a.bmp", 60)
        return image.convert("RGB")

    monkeypatch.setattr(decoding, "upright", cut)
    assert "changed" in reason(tmp_path / "a.bmp")


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "gif", "webp", "bmp"])
def test_a_disk_that_fails_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    two_halves(40, 30).save(tmp_path / f"a.{suffix}", **({"compression": "tiff_lzw"} if suffix == "tif" else {}))

    class Failing(io.FileIO):
        def readinto(self, buffer: object) -> int:
            raise OSError(5, "Input/output error")

    def failing(handle: int, *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(Failing(handle, closefd=False))

    monkeypatch.setattr(decoding, "open", failing, raising=False)
    assert why(tmp_path / f"a.{suffix}").passing
    assert "cannot be read now: Input/output error" in reason(tmp_path / f"a.{suffix}")


def test_a_home_of_nobody(tmp_path: Path) -> None:
    (given,) = gather("~nosuchuser/x.jpg")
    raises(fovea.BadPicture, "no file or folder '~nosuchuser/x.jpg'", given.read)


def test_names_of_any_bytes(tmp_path: Path) -> None:
    names = [os.fsdecode(name) for name in (b"\xff\xfe.png", b"a\nb.png", b"\x1b[31m.png", b"x*.png", b"[a].png")]
    for name in names:
        two_halves().save(tmp_path / name, "png")
    for given in (
        tmp_path,
        str(tmp_path / "*.png"),
        str(tmp_path / "**" / "*.png"),
        [tmp_path / name for name in names],
    ):
        found = gather(given)
        assert sorted(Path(picture.name).name for picture in found) == sorted(names)
        assert all(picture.read().size == (6, 4) for picture in found)
    (nul,) = gather("a\0b.png")
    raises(fovea.BadPicture, "no file|no path", nul.read)


def test_links_that_lead_around_and_folders_that_go_deep(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    for _ in range(120):
        deep = deep / "0123456789"
    deep.mkdir(parents=True)
    two_halves().save(deep / "a.png")
    for i in range(6):
        (tmp_path / f"loop{i}").symlink_to(tmp_path)
        (deep / f"loop{i}").symlink_to(tmp_path)
    (tmp_path / "self.png").symlink_to("self.png")
    for given in (tmp_path / "deep", str(tmp_path / "**" / "*.png"), str(tmp_path / "**")):
        assert [path for path in fovea.pictures.expand(given) if path.name == "a.png"] == [deep / "a.png"]
    assert "self.png" in reason(tmp_path / "self.png")


def test_equal_names_are_told_apart(tmp_path: Path) -> None:
    for name in ("a.png", "a.png-1"):
        two_halves().save(tmp_path / name, "png")
    names = [picture.name for picture in gather([tmp_path / name for name in ("a.png", "a.png", "a.png-1", "a.png")])]
    assert len(set(names)) == 4
    assert names[2] == str(tmp_path / "a.png-1")


LITTLE = """
import resource, sys
from pathlib import Path
from fovea import BadPicture
from fovea.pictures import read
room = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 40 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for path in sys.argv[1:]:
    try:
        read(Path(path))
    except BadPicture as reason:
        print(reason.passing, reason)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is asked of Linux")
def test_a_picture_that_does_not_fit_into_memory_is_skipped_in_words(tmp_path: Path) -> None:
    black_png(tmp_path / "a.png", 5000, 8, 2, 24)
    for name in ("b.tif", "c.jpg", "d.webp", "e.gif"):
        Image.new("RGB", (4000, 4000)).save(tmp_path / name)
    two_halves().save(tmp_path / "z.png")
    command = [sys.executable, "-c", LITTLE, *map(str, sorted(tmp_path.iterdir()))]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == 5, said
    assert all(line.startswith("True") for line in said)
    assert sum("does not fit into the memory that is left" in line for line in said) == 4
