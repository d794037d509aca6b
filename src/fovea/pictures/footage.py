"""A moving picture's file: looked through without decoding, then exactly the frames asked for, upright and RGB."""

import os
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadChoice, BadPicture, FoveaError
from fovea.pictures.decoding import MAX_PIXELS, Stamp, as_bad_picture, open_lazily, opened, refuse_over, upright

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    Whole = Callable[[], AbstractContextManager[tuple[InputContainer, VideoStream]]]

ANIMATIONS = frozenset((".gif", ".webp", ".apng", ".png"))  # formats of pictures that may hold several
RATE = Fraction(25)  # of a file that tells none
MEND = "look whether it plays, and copy or record it anew"
# no playlists and none that name other files, which FFmpeg would open
CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,mpegvideo,asf,flv,ogg,yuv4mpegpipe,h264,hevc,m4v,obu"
)
# of an animation: canvases that Pillow holds, and times max_pixels that all frames may have, each painted on the last
CANVASES, PAINTED = 4, 10
# counts of frames that FFmpeg takes memory for: of one size, and of a fragment's
COUNTS, CHUNK = re.compile(rb"stsz\0{4}(?!\0{4}).{4}(.{4})|trun[\0\1]\0..(.{4})", re.DOTALL), 1 << 22

Made = Iterator[tuple[int, Callable[[], Image.Image]]]
Decode = Callable[[Sequence[int]], Made]  # ascending numbers in, and out if good
Open = Callable[[], AbstractContextManager[BinaryIO]]


def library() -> Any:
    """PyAV, which pictures do without."""
    try:
        import av
    except ImportError:
        raise FoveaError("clips are read by a package that is not installed: pip install 'fovea[video]'") from None
    return av


@dataclass(frozen=True)
class Frame:
    """One frame: its number in the file, its time in seconds from the first, its pixels."""

    number: int
    time: float
    image: Image.Image


@dataclass(frozen=True)
class Footage:
    """When each frame of a file is shown; none of them is in memory."""

    path: Path
    times: tuple[float, ...]
    end: float  # when the last frame is over
    rate: float
    size: tuple[int, int]  # as stored: width, height before any rotation
    decode: Decode
    note: str = ""  # what is wrong with it

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self, numbers: Sequence[int]) -> Iterator[Frame]:
        """These frames, ascending, one at a time; those that cannot be decoded are left out."""
        for number, made in self.decode(numbers):
            yield Frame(number, self.times[number], made())

    def stretch(self, start: float = 0.0, stop: float | None = None) -> range:
        """The frames shown from one time up to another, in seconds."""
        if start < 0 or (stop is not None and stop <= start):
            raise BadChoice(f"a stretch of a clip begins at 0 s or later, ends after it began; got {start} to {stop}")
        inside = [n for n, time in enumerate(self.times) if start <= time and (stop is None or time < stop)]
        if not inside:
            raise BadChoice(f"{self.name} has no frame from {start} s to {stop} s: it is {self.end:.2f} s long")
        return range(inside[0], inside[-1] + 1)


def survey(path: str | PathLike[str], max_pixels: int = MAX_PIXELS) -> Footage:
    """Look through a file without decoding it."""
    with _as_bad_clip(Path(path)):
        path = Path(os.path.expanduser(path))
        stamps: list[Stamp] = []
        file = partial(opened, path, "clip", stamps)
        looked = _animation if path.suffix.lower() in ANIMATIONS else _video
        return looked(path, file, max_pixels)


def lost(name: str, count: int, total: int) -> str:
    return f"{name}: {count} of {total} frames cannot be decoded and are left out: it is damaged or cut short"


@contextmanager
def _as_bad_clip(path: Path) -> Iterator[None]:
    """Whatever a decoder raises, said with the file's name."""
    with as_bad_picture(str(path), "is damaged, cut short or no clip", f"; {MEND}"):
        try:
            yield
        except FoveaError:
            raise
        except Exception as error:
            if type(error).__module__.startswith("av.") and not isinstance(error, MemoryError):
                raise ValueError(getattr(error, "strerror", error)) from None  # theirs are system errors, too
            raise


def _animation(path: Path, file: Open, max_pixels: int) -> Footage:
    """GIF, WebP and APNG by Pillow, which puts their parts together and knows transparency."""

    def decode(numbers: Sequence[int]) -> Made:
        with _as_bad_clip(path), file() as opened, open_lazily(opened) as image:
            for number in numbers:
                if not _drawn(image, number):
                    return  # what follows is drawn over it
                yield number, partial(upright, image, str(path))

    with file() as opened, open_lazily(opened) as image:
        refuse_over(image.size, str(path), max_pixels // CANVASES, "moving")  # before frames are decoded
        count, starts, time = getattr(image, "n_frames", 1), list[float](), 0.0
        painted = image.width * image.height * count
        if painted > max(PAINTED * max_pixels, 1):
            raise BadPicture(
                f"{path} claims {count:,} frames of {image.width:,} x {image.height:,} pixels, over the limit of "
                f"{PAINTED * max_pixels:,} for all of them: make a video of it, or raise max_pixels (--max-pixels)"
            )
        for number in range(count):
            if not _drawn(image, number):
                break
            starts.append(time)
            time += float(image.info.get("duration", 0)) / 1000 or float(1 / RATE)
        note = lost(str(path), count - len(starts), count) if len(starts) < count else ""
        if not starts:
            raise BadPicture(f"{path} is damaged: none of its frames can be decoded; {MEND}")
        return Footage(path, tuple(starts), time, len(starts) / time, image.size, decode, note)


def _drawn(image: Image.Image, number: int) -> bool:
    """Whether this frame of an animation could be decoded."""
    try:
        image.seek(number)
        image.load()
    except (OSError, EOFError, SyntaxError):
        return False
    return True


class _Packet(NamedTuple):
    """A frame as it is stored; stamp and length count the stream's own units of time."""

    stamp: int | None
    key: bool  # coded by itself: decoding may begin here
    length: int


def _video(path: Path, file: Open, max_pixels: int) -> Footage:
    """The stamps of all packets tell the frames, whatever the file's header says of them."""
    with file() as opened:
        _refuse_absurd(path, opened)
    whole = partial(_opened, path, file, max_pixels)
    with whole() as (container, stream):
        size = stream.codec_context.width, stream.codec_context.height
        refuse_over(size, str(path), max_pixels)
        packets, cut_short = _packets(container, stream)
        claimed, unit, rate = stream.frames, stream.time_base or 1 / RATE, stream.average_rate or RATE
    if not packets:
        raise BadPicture(f"{path} has no frames: it is empty, or cut short; {MEND}")
    total = max(claimed, len(packets) + cut_short)
    note = lost(str(path), total - len(packets), total) if total > len(packets) else ""
    stamps = sorted(packet.stamp for packet in packets if packet.stamp is not None)
    if len(set(stamps)) < len(packets):  # as in a bare stream of H.264: the frames are counted
        times = tuple(float(n / rate) for n in range(len(packets) + 1))
        return Footage(path, times[:-1], times[-1], float(rate), size, _counted(whole, size), note)
    keys = sorted(packet.stamp for packet in packets if packet.key and packet.stamp is not None)
    times = tuple(float((stamp - stamps[0]) * unit) for stamp in stamps)
    known = float((len(stamps) - 1) / ((stamps[-1] - stamps[0]) * unit) if len(stamps) > 1 else rate)
    length = next(float(packet.length * unit) for packet in packets if packet.stamp == stamps[-1])
    end = times[-1] + (length or 1 / known)
    return Footage(path, times, end, known, size, _sought(whole, size, stamps, keys), note)


def _packets(container: "InputContainer", stream: "VideoStream") -> tuple[list[_Packet], bool]:
    """All that can be read, and whether there should have been more."""
    packets: list[_Packet] = []
    cut_short = False
    try:
        for packet in container.demux(stream):
            # VP8 has packets that are only referred to: a bit of their first byte says whether they are shown
            hidden = packet.size and stream.codec_context.name == "vp8" and not bytes(packet)[0] & 0x10
            if packet.is_corrupt:
                cut_short = True
            elif packet.size and not packet.is_discard and not hidden:
                packets.append(_Packet(packet.pts, packet.is_keyframe, packet.duration or 0))
    except library().error.FFmpegError:
        cut_short = True
    return packets, cut_short


def _counted(whole: "Whole", size: tuple[int, int]) -> Decode:
    """From the first frame on, as they come."""

    def decode(numbers: Sequence[int]) -> Made:
        wanted, last = set(numbers), max(numbers, default=-1)
        with whole() as (container, stream):
            for number, frame in enumerate(_good(container, stream)):
                if number in wanted:
                    yield number, partial(_image, frame, size)
                if number >= last:
                    return

    return decode


def _sought(whole: "Whole", size: tuple[int, int], stamps: list[int], keys: list[int]) -> Decode:
    """From the last key frame before each frame wanted, unless decoding has come that far already."""
    number: dict[int | None, int] = {stamp: n for n, stamp in enumerate(stamps)}

    def decode(numbers: Sequence[int]) -> Made:
        waiting, may_jump = deque(numbers), True
        while waiting:
            here, jumped = -1, False
            with whole() as (container, stream):
                coming = _good(container, stream)
                while waiting:
                    wanted = waiting[0]
                    key = bisect_right(keys, stamps[wanted]) - 1
                    if may_jump and key >= 0 and number[keys[key]] > here + 1:
                        container.seek(keys[key], stream=stream)
                        coming, jumped = _good(container, stream), True
                    frame = next((later for later in coming if number.get(later.pts, -1) >= wanted), None)
                    here = number[frame.pts] if frame is not None else len(number)
                    if jumped and here > wanted:
                        may_jump = False  # it led too far, or the frame is damaged: once more, from the first frame
                        break
                    while waiting and waiting[0] < here:
                        waiting.popleft()
                    if frame is not None and waiting and waiting[0] == here:
                        yield waiting.popleft(), partial(_image, frame, size)

    return decode


@contextmanager
def _opened(path: Path, file: Open, max_pixels: int) -> Iterator[tuple["InputContainer", "VideoStream"]]:
    """FFmpeg gets an open file and no name, and may open nothing else."""
    only = {"format_whitelist": CONTAINERS, "protocol_whitelist": "none"}
    with _as_bad_clip(path), file() as opened, library().open(opened, options=only) as container:
        stream = container.streams.best("video")
        if not isinstance(stream, library().video.stream.VideoStream):
            raise BadPicture(f"{path} holds no video, only sound or other data")
        stream.codec_context.options = {"max_pixels": str(min(max_pixels, 2**31 - 1))}
        yield container, stream


def _refuse_absurd(path: Path, file: BinaryIO) -> None:
    """Frames that a header claims and that the file has no room for: FFmpeg would take memory for each."""
    total, before = os.fstat(file.fileno()).st_size, b""
    while part := file.read(CHUNK):
        for claim in COUNTS.finditer(before + part):
            count = int.from_bytes(claim[1] or claim[2], "big")
            if count > total:
                raise BadPicture(f"{path} claims {count:,} frames in {total:,} bytes: it is damaged; {MEND}")
        before = part[-16:]


def _good(container: "InputContainer", stream: "VideoStream") -> Iterator["VideoFrame"]:
    """Frames as they were recorded: after a damaged packet none counts until the next key frame, since what comes in
    between refers to it."""
    spoiled = False
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            frames = packet.decode() if packet is not None else []
        except library().error.EOFError:
            return
        except library().error.FFmpegError:
            spoiled = True
            continue
        if packet is None:
            return
        for frame in frames:
            spoiled = (spoiled and not frame.key_frame) or frame.is_corrupt
            if not spoiled:
                yield frame


def _image(frame: "VideoFrame", size: tuple[int, int]) -> Image.Image:
    """Upright, of one size even where the file changes it on the way."""
    kind = "rgba" if any(part.is_alpha for part in frame.format.components) else "rgb24"
    pixels = frame.reformat(width=size[0], height=size[1], format=kind).to_ndarray()
    return upright(Image.fromarray(np.ascontiguousarray(_turned(pixels, frame), dtype=np.uint8)), ours=True)


def _turned(pixels: NDArray[np.generic], frame: "VideoFrame") -> NDArray[np.generic]:
    """As the camera was held: the matrix says where a stored pixel's steps to the right and down lead."""
    matrix = next((bytes(data) for data in frame.side_data if data.type.name == "DISPLAYMATRIX"), None)  # type: ignore
    if matrix is None:
        return pixels
    right_x, right_y, _, down_x, down_y = np.frombuffer(matrix, np.int32)[:5].tolist()
    if abs(right_y) > abs(right_x):
        pixels, right_x, down_y = pixels.swapaxes(0, 1), down_x, right_y
    return pixels[:: -1 if down_y < 0 else 1, :: -1 if right_x < 0 else 1]
