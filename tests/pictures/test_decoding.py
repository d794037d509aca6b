import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fovea
from checks import raises, refused
from fovea.pictures import Picture, from_array, gather, read, read_all

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


def huge_png(path: Path, side: int) -> None:
    """A header that promises side x side pixels, and hardly any."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")
    )


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
