"""Pictures that requests are about: decoded once, and kept for a while where they are asked about again.

What a request calls a picture is never a path. One that is too large to decode is written to a file of our own, in a
temporary folder, and read from it window by window."""

import math
import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path

from PIL import Image

from fovea.basics import BadPicture
from fovea.data import PHOTOGRAPHS, photograph
from fovea.pictures import Picture, Windows, as_bad_picture, fitting, is_big, open_lazily, read_bytes
from fovea.serve.options import Limits
from fovea.serve.refusing import Refused

TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # how files begin that may be tiled
EXAMPLE = "example:"
UNSURE = "create decoder"
TILE, PREVIEW, QUALITY = 256, 2048, 85
PIXEL = 4  # bytes of a decoded one


@dataclass(eq=False)
class Held:
    """One picture: its file, and itself once it was decoded."""

    name: str
    data: bytes
    pixels: int  # at most
    folder: Path | None = None  # for a file of our own
    lock: threading.Lock = field(default_factory=threading.Lock)
    decoded: Image.Image | None = None
    weight: int = 0  # bytes of the file, in memory or on the disk
    closed: bool = False  # nobody asks about it any more

    def __post_init__(self) -> None:
        self.weight = len(self.data)

    @cached_property
    def file(self) -> Path | None:
        """Where it is read from window by window; None where it is decoded whole."""
        if self.folder is None or not self.data.startswith(TIFF):
            return None
        path = self.folder / f"{secrets.token_hex(16)}.tif"
        try:
            path.write_bytes(self.data)
        except OSError:  # no room, or no leave: it is decoded whole, if it can be
            with suppress(OSError):
                path.unlink(missing_ok=True)  # what there was room for
            return None
        if is_big(path, self.pixels) and not self.closed:
            self.data = b""
            return path
        path.unlink()
        return None

    def claims(self) -> int:
        """Pixels that will be in memory at once, by its header alone; none where it is refused, or decoded already."""
        if not self.weight:
            raise Refused(422, f"{self.name} is empty (0 bytes)")
        if self.decoded is not None:
            return 0
        with self.telling(), as_bad_picture(self.name):
            if self.file is not None and (big := self.picture.big(self.pixels)) is not None:
                with big:
                    return big.band
            with open_lazily(BytesIO(self.data if self.file is None else self.file.read_bytes())) as image:
                pixels = image.width * image.height
                return pixels if pixels <= self.pixels else 0

    def ready(self) -> Picture:
        """Decoded, so that what cannot be read is told to its sender alone; it stays so for whoever asked, whatever the
        store lets go of meanwhile."""
        if self.file is None:
            image = self.image()
            return Picture(self.name, lambda: image, self.pixels)
        _ = self.size
        return self.picture

    def image(self) -> Image.Image:
        with self.lock:
            if self.decoded is None:
                with self.telling():
                    self.decoded = read_bytes(self.data, self.name, self.pixels)
            return self.decoded

    def whole(self) -> bytes:
        """The file as it came."""
        return self.data or (b"" if self.file is None else self.file.read_bytes())

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height; BadPicture where it cannot be read."""
        with self.windows() as source:
            return source.size

    @property
    def picture(self) -> Picture:
        """As verbs take it."""
        return Picture(self.name, self.file or self.image, self.pixels)

    @property
    def memory(self) -> int:
        """Bytes, and those on the disk."""
        whole = self.decoded
        return self.weight + (0 if whole is None else PIXEL * whole.width * whole.height)

    @contextmanager
    def windows(self) -> Iterator[Windows]:
        with self.telling(), self.picture.windows() as source:
            yield source

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What is wrong with it, by the name that it was sent with, not by our file's. WebP's decoder says the same of
        damage and of too little memory; here it is damage, or the sender would send it again and again."""
        try:
            yield
        except BadPicture as reason:
            words = str(reason) if self.file is None else str(reason).replace(str(self.file), self.name)
            raise BadPicture(words, reason.passing and UNSURE not in words) from None

    def tile(self, level: int, column: int, row: int) -> bytes:
        """A square of a level, each twice as fine as the one before; the last is the picture's own."""
        width, height = self.size
        last = math.ceil(math.log2(max(width, height)))
        if not 0 <= level <= last:
            raise Refused(404, f"the picture has levels 0 to {last}")
        scale = 2 ** (last - level)
        side = TILE * scale
        box = column * side, row * side, min((column + 1) * side, width), min((row + 1) * side, height)
        if box[0] >= box[2] or box[1] >= box[3]:
            raise Refused(404, "the picture ends before this tile")
        size = math.ceil((box[2] - box[0]) / scale), math.ceil((box[3] - box[1]) / scale)
        with self.windows() as source:
            return _jpeg(source.read(box, size))

    def preview(self) -> bytes:
        with self.windows() as source:
            return _jpeg(source.read((0, 0, *source.size), fitting(source.size, (PREVIEW, PREVIEW))))

    def close(self) -> None:
        self.closed = True
        if "file" in self.__dict__ and self.file is not None:
            self.file.unlink(missing_ok=True)


def _jpeg(image: Image.Image) -> bytes:
    buffer = BytesIO()
    image.convert("RGB").save(buffer, "jpeg", quality=QUALITY)
    return buffer.getvalue()


class Store:
    """Those that stay, by names that nobody can guess; the least recently used go first."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.held, self.lock = limits, OrderedDict[str, Held](), threading.Lock()
        self.examples = dict[str, Held]()
        try:
            self.temporary: tempfile.TemporaryDirectory[str] | None = tempfile.TemporaryDirectory(prefix="fovea-")
        except OSError:  # a system without any place to write to
            self.temporary = None

    def hold(self, name: str, data: bytes) -> Held:
        """For one request."""
        folder = None if self.temporary is None else Path(self.temporary.name)
        return Held(name, data, self.limits.pixels, folder)

    def keep(self, held: Held) -> str:
        key = secrets.token_urlsafe(16)
        with self.lock:
            self.held[key] = held
        self.shrink()
        return key

    def get(self, key: str) -> Held:
        with self.lock:
            if key in self.held:
                self.held.move_to_end(key)
                return self.held[key]
        if key.startswith(EXAMPLE):
            return self._example(key.removeprefix(EXAMPLE))
        raise Refused(404, "this picture is not here (any more): send it again")

    def drop(self, key: str) -> None:
        with self.lock:
            held = self.held.pop(key, None)
        if held is None:
            raise Refused(404, "this picture is not here (any more)")
        held.close()

    @property
    def memory(self) -> int:
        """Bytes of all."""
        with self.lock:
            return sum(held.memory for held in self.held.values())

    def shrink(self) -> None:
        """Within bounds, after something was added or decoded: first what can be decoded again goes, then pictures, of
        each the least recently used one first. The file of the last one stays."""
        with self.lock:
            total = sum(held.memory for held in self.held.values())
            for held in self.held.values():
                if total <= self.limits.kept:
                    return
                before, held.decoded = held.memory, None
                total -= before - held.memory
            for key in list(self.held)[:-1]:
                if total <= self.limits.kept:
                    return
                total -= self.held[key].memory
                self.held.pop(key).close()

    def _example(self, name: str) -> Held:
        if name not in PHOTOGRAPHS:
            raise Refused(404, f"there is no such example; there are: {', '.join(PHOTOGRAPHS)}")
        with self.lock:
            if name not in self.examples:
                data = photograph(name).read_bytes()
                self.examples[name] = Held(name, data, self.limits.pixels)
            return self.examples[name]

    def close(self) -> None:
        if self.temporary is not None:
            self.temporary.cleanup()
