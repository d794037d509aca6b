import os
import random
import warnings
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from checks import raises, refused
from fovea.basics import BadPicture
from fovea.pictures import Clip, Taken, choose, footage, is_clip, is_clip_name, read_clip, spread, take
from made_clips import make_clip, picture, told


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """20 frames, 10 a second, a key frame every 5."""
    return make_clip(tmp_path / "clip.mp4", options={"g": "5", "bf": "2", "sc_threshold": "0"})


def numbers(clip: Clip) -> list[int]:
    """What the frames' own pixels say."""
    return [told(image) for image in clip.frames]


def test_all_frames(clip: Path) -> None:
    found = read_clip(clip)
    assert numbers(found) == list(found.numbers) == list(range(20))
    assert found.times == pytest.approx([n / 10 for n in range(20)])
    assert (found.name, found.rate, found.frames[0].size, found.frames[0].mode) == (str(clip), 10.0, (64, 48), "RGB")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"frames": 1}, [10]),
        ({"frames": 2}, [5, 15]),
        ({"frames": 4}, [2, 7, 12, 17]),  # the middles of four equal parts
        ({"frames": 20}, list(range(20))),
        ({"every": 7}, [0, 7, 14]),
        ({"every": 100}, [0]),
        ({"frames": 2, "start": 1.0}, [12, 17]),
        ({"start": 0.5, "stop": 0.8}, [5, 6, 7]),
        ({"every": 2, "start": 0.5, "stop": 1.0}, [5, 7, 9]),
    ],
)
def test_chosen_frames(clip: Path, options: dict[str, int], wanted: list[int]) -> None:
    found = read_clip(clip, **options)
    assert numbers(found) == list(found.numbers) == wanted
    assert found.times == pytest.approx([n / 10 for n in wanted])


def test_more_frames_than_there_are(clip: Path) -> None:
    with pytest.warns(UserWarning, match="30 frames were asked for and there are 20: all are used"):
        assert len(read_clip(clip, frames=30)) == 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frames": 3, "every": 2}, "give one of them"),
        ({"frames": 0}, "frames is 1 to 100,000; got 0"),
        ({"every": -1}, "every is 1 to 1,000,000; got -1"),
        ({"start": -1.0}, "start is 0 to"),
        ({"start": 1.0, "stop": 1.0}, "ends after it began"),
        ({"start": 9.0}, "it is 2.00 s long"),
    ],
)
def test_wrong_choices(clip: Path, options: dict[str, int], words: str) -> None:
    refused(words, read_clip, clip, **options)


def test_spread() -> None:
    assert spread(range(9), 3) == (1, 4, 7)
    assert spread(range(221), 3) == (36, 110, 184)
    assert spread([4, 8], 5) == (4, 8)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"frames": 3}, 4 + 1 + 2),  # 3, 10 and 16, where 0, 10 and 15 are key frames
        ({"every": 9}, 1 + 5 + 4),  # 0; 9 after 5; 18 after 15
        ({"frames": 1, "start": 1.5}, 3),  # 17 after 15
    ],
)
def test_decoding_begins_at_the_key_frame_before(
    clip: Path, options: dict[str, int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    real = footage._good

    def counted(*arguments: object) -> object:
        for frame in real(*arguments):
            decoded.append(frame.pts)
            yield frame

    monkeypatch.setattr(footage, "_good", counted)
    read_clip(clip, **options)
    assert len(decoded) == count


def test_a_long_clip_is_not_read_into_memory(clip: Path) -> None:
    with pytest.raises(BadPicture, match="20 frames of 64 x 48 are over the limit of 20,000 pixels; ask for fewer"):
        read_clip(clip, max_pixels=20_000)
    assert len(read_clip(clip, frames=6, max_pixels=20_000)) == 6  # 6 x 3,072
    with pytest.raises(BadPicture, match=r"64 x 48 pixels, over the limit of 3,000; raise max_pixels"):
        read_clip(clip, frames=1, max_pixels=3_000)


def test_what_is_too_much_stays_in_the_file(clip: Path) -> None:
    surveyed = footage.survey(clip)
    found, notes = take(surveyed, choose(surveyed, every=3), max_pixels=4_000)
    assert isinstance(found, Taken)
    assert not notes
    assert [told(frame.image) for frame in found.read()] == [0, 3, 6, 9, 12, 15, 18]
    assert told(found.image(4)) == found.numbers[4] == 12
    assert found.times[4] == pytest.approx(1.2)


@pytest.mark.parametrize(("rotation", "corner"), [(0, (0, 0)), (90, (0, 1)), (-90, (1, 0)), (180, (1, 1))])
def test_rotation(tmp_path: Path, rotation: int, corner: tuple[int, int]) -> None:
    """The red quarter, stored at the left top, goes where the camera was held: 90 is against the clock."""
    found = read_clip(make_clip(tmp_path / "turned.mp4", 2, rotation=rotation)).frames[0]
    assert found.size == ((48, 64) if rotation % 180 else (64, 48))
    red, _, blue = found.getpixel(tuple(4 + place * (side - 9) for place, side in zip(corner, found.size, strict=True)))
    assert red > 240
    assert blue < 15


def test_variable_frame_rate(tmp_path: Path) -> None:
    stamps = [0, 100, 150, 400, 1000]
    found = read_clip(make_clip(tmp_path / "varying.mp4", 5, stamps=stamps), every=2)
    assert numbers(found) == [0, 2, 4]
    assert found.times == pytest.approx([0.0, 0.15, 1.0], abs=1e-3)
    assert found.rate == pytest.approx(4.0, abs=0.01)  # 4 frames in the 1 s up to the last


@pytest.mark.parametrize(
    ("name", "codec", "pixels", "container"),
    [
        ("a.mkv", "libx264", "yuv420p", None),  # tells no number of frames
        ("a.avi", "mpeg4", "yuv420p", None),
        ("a.mpg", "mpeg2video", "yuv420p", None),  # its first stamp is not 0
        ("a.ts", "libx264", "yuv420p", "mpegts"),
        ("a.webm", "libvpx", "yuv420p", None),
        ("a.h264", "libx264", "yuv420p", "h264"),  # no stamps at all
    ],
)
def test_containers(tmp_path: Path, name: str, codec: str, pixels: str, container: str | None) -> None:
    path = make_clip(tmp_path / name, 12, rate=25, codec=codec, pixels=pixels, container=container)
    found = read_clip(path)
    assert numbers(found) == list(found.numbers) == list(range(12))
    assert found.times == pytest.approx([n / 25 for n in range(12)], abs=2e-3)
    assert numbers(read_clip(path, frames=2)) == [3, 9]


def test_odd_sizes_and_one_frame(tmp_path: Path) -> None:
    found = read_clip(make_clip(tmp_path / "odd.mkv", 3, (63, 47), codec="ffv1", pixels="bgr0"))
    assert found.frames[1].size == (63, 47)
    assert np.array_equal(np.asarray(found.frames[1]), picture(1, (63, 47)))
    one = read_clip(make_clip(tmp_path / "one.mp4", 1), frames=1)
    assert (one.numbers, one.times, one.rate) == ((0,), (0.0,), 10.0)


@pytest.mark.parametrize("suffix", ["gif", "webp", "apng"])
def test_animations(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    first, *rest = [Image.fromarray(picture(n)) for n in range(6)]
    options = {"lossless": True} if suffix == "webp" else {"format": "png"} if suffix == "apng" else {}
    first.save(path, save_all=True, append_images=rest, duration=[100, 100, 300, 100, 100, 100], **options)
    found = read_clip(path, every=2)
    assert numbers(found) == [0, 2, 4]
    assert found.times == pytest.approx([0.0, 0.2, 0.6])
    assert is_clip(path)
    first.save(tmp_path / f"still.{suffix}", **options)
    assert not is_clip(tmp_path / f"still.{suffix}")


def test_names() -> None:
    assert is_clip_name("a/B.MP4")
    assert is_clip_name(Path("b.webm"))
    assert not is_clip_name("c.jpg")
    assert not is_clip_name("mp4")


def cut(path: Path, share: float) -> Path:
    """The file with its end gone."""
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    return path


def spoiled(path: Path) -> Path:
    """The file with noise in its second half."""
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 :] = random.Random(0).randbytes(len(whole) - len(whole) // 2)
    path.write_bytes(bytes(whole))
    return path


@pytest.mark.parametrize("damage", [lambda path: cut(path, 0.75), spoiled], ids=["cut short", "noise"])
@pytest.mark.parametrize("options", [{}, {"frames": 3}, {"every": 2}])
def test_damaged_tail(tmp_path: Path, damage: object, options: dict[str, int]) -> None:
    """Good frames are used: they are whole, of the file's beginning, and as many as were asked for."""
    path = damage(make_clip(tmp_path / "damaged.mp4", 60, options={"g": "5"}))
    with pytest.warns(UserWarning, match=r"of \d+ frames cannot be decoded and are left out"):
        found = read_clip(path, **options)
    assert [told(image) % 32 for image in found.frames] == [
        number % 32 for number in found.numbers
    ]  # gray wraps at 256
    assert found.numbers[-1] < 55
    if "frames" in options:
        assert len(found) == 3


def text(path: Path) -> None:
    path.write_text("hello " * 100)


def empty(path: Path) -> None:
    path.touch()


def half(path: Path) -> None:
    """The index of an mp4 stands at its end unless told."""
    cut(make_clip(path, 10, faststart=False), 0.5)


def sound(path: Path) -> None:
    with av.open(str(path), "w") as file:
        stream = file.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 16000
        file.mux(stream.encode(frame))
        file.mux(stream.encode())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (text, "damaged, cut short or no clip.*look whether it plays"),
        (empty, r"is empty \(0 bytes\)"),
        (half, "damaged, cut short or no clip"),
        (sound, "holds no video"),
        (Path.mkdir, "is a folder"),
        (lambda path: None, "does not exist"),
        (lambda path: path.symlink_to(path.with_name("nowhere")), "does not exist"),
    ],
)
def test_unreadable(tmp_path: Path, make: object, words: str) -> None:
    make(tmp_path / "a.mp4")
    raises(BadPicture, rf"a\.mp4.*{words}", read_clip, tmp_path / "a.mp4")


def test_damaged_animation(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.random.default_rng(n).integers(0, 256, (48, 64, 3), dtype=np.uint8)) for n in range(6)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    cut(tmp_path / "a.gif", 0.7)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert 1 <= len(read_clip(tmp_path / "a.gif")) < 6


PLAYLISTS = {
    "concat": "ffconcat version 1.0\nfile clip.mp4\n",
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nclip.mp4\n#EXT-X-ENDLIST\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
}


@pytest.mark.parametrize("kind", PLAYLISTS)
@pytest.mark.parametrize("suffix", ["mp4", "m3u8", "ffconcat"])
def test_a_file_that_names_others_opens_none(clip: Path, kind: str, suffix: str) -> None:
    """FFmpeg follows playlists, whatever they are called, to files and addresses."""
    path = clip.with_name(f"list.{suffix}")
    path.write_text(PLAYLISTS[kind])
    raises(BadPicture, "damaged, cut short or no clip", read_clip, path)


def test_a_name_is_never_an_address(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg would take the first for two files, the second for a protocol; the third is not UTF-8."""
    monkeypatch.chdir(clip.parent)
    for name in ("concat:clip.mp4|clip.mp4", "http:a.mp4", os.fsdecode(b"\xff.mp4")):
        clip.rename(name)
        clip = Path(name)
        assert numbers(read_clip(name, frames=1)) == [10]


@pytest.mark.parametrize("box", [b"stsz", b"trun"])
def test_frames_that_a_file_cannot_hold_are_refused_before_memory_is_taken(clip: Path, box: bytes) -> None:
    data = clip.read_bytes()
    at = data.index(b"stsz")
    claim = bytes(4) + (1).to_bytes(4, "big") + (10**9).to_bytes(4, "big")
    clip.write_bytes(
        data[:at] + box + (claim if box == b"stsz" else bytes(4) + (10**9).to_bytes(4, "big")) + data[at + 16 :]
    )
    raises(BadPicture, r"claims 1,000,000,000 frames in [\d,]+ bytes", read_clip, clip)


def test_frames_larger_than_the_limit_are_never_decoded(clip: Path) -> None:
    raises(BadPicture, "64 x 48 pixels, over the limit of 3,071", read_clip, clip, max_pixels=3071)
    footage.survey(clip, 3072)


def test_an_animation_of_too_many_pixels_is_refused_before_it_is_painted(tmp_path: Path) -> None:
    path, frames = tmp_path / "a.gif", [Image.new("L", (40, 30), shade) for shade in range(0, 240, 4)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    raises(BadPicture, "over the limit of a moving picture of 1,199", read_clip, path, max_pixels=4799)
    raises(BadPicture, "60 frames of 40 x 30 pixels, over the limit of 50,000", read_clip, path, max_pixels=5000)
    assert len(footage.survey(path, 7200).times) == 60


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.utime(path, ns=(1, 1))], ids=["gone", "changed"])
@pytest.mark.parametrize("suffix", ["mp4", "gif"])
def test_frames_that_stay_in_a_file_that_does_not(tmp_path: Path, clip: Path, suffix: str, harm: object) -> None:
    if suffix == "gif":
        frames = [Image.new("L", (40, 30), shade) for shade in range(0, 250, 9)]
        clip = tmp_path / "a.gif"
        frames[0].save(clip, save_all=True, append_images=frames[1:])
    found = footage.survey(clip)
    frames, _ = take(found, choose(found), max_pixels=5000)
    assert isinstance(frames, Taken)
    frames.image(1)
    harm(clip)
    raises(BadPicture, "does not exist|changed after it was first read", frames.image, 1)


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs FOVEA_DATA")
def test_real_clip() -> None:
    path = Path(os.environ["FOVEA_DATA"], "video", "solidWhiteRight.mp4")
    found = read_clip(path, frames=3)
    assert (found.numbers, found.rate, found.frames[0].size) == ((36, 110, 184), 25.0, (960, 540))
