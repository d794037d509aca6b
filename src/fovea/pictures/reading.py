"""The one loop that decodes: pictures in order, in threads where asked, and what could not be read is noted."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from PIL import Image

from fovea.basics import BadPicture, ahead
from fovea.pictures.decoding import MAX_PIXELS, room

AHEAD = 4  # pictures per thread that are decoded before they are asked for
LARGE = 16_000_000  # pixels of one that is not kept until it is asked for, but decoded again
T = TypeVar("T")


class Readable(Protocol):
    """A picture by name that is decoded when asked for: what a user gave, or a sample of a data set."""

    @property
    def name(self) -> str: ...

    def read(self) -> Image.Image: ...  # or BadPicture


def decoded(
    sources: Sequence[Readable],
    make: Callable[[Any], T],
    skipped: list[tuple[str, str]],
    threads: int = 1,
    read: Callable[[Any], Any] = lambda source: source.read(),
) -> Iterator[tuple[int, T]]:
    """What `make` gives for every picture that can be read, with its place among all; the others go to `skipped`."""

    for place, result in enumerate(made_of(sources, make, threads, read)):
        if isinstance(result, BadPicture):
            skipped.append((sources[place].name, str(result)))
        else:
            yield place, result
        del result  # it may be a large picture, and the next is decoded now


def made_of(
    sources: Sequence[Readable],
    make: Callable[[Any], T],
    threads: int = 1,
    read: Callable[[Any], Any] = lambda source: source.read(),
    most: int = 0,
) -> Iterator[T | BadPicture]:
    """What `make` gives for every picture, or why it cannot be read; at least `most` of them are made ahead."""

    def made(source: Readable) -> T | BadPicture:
        try:
            with room.shared():
                return make(read(source))
        except BadPicture as reason:
            return reason

    def early(source: Readable) -> Callable[[], T | BadPicture]:
        result = made(source)
        return partial(made, source) if pixels_of(result) > LARGE else lambda: result

    if threads < 2 or len(sources) < 2:
        yield from map(made, sources)
    else:
        yield from (result() for result in ahead(early, sources, threads, max(threads * AHEAD, most)))


def read_all(sources: Iterable[Readable]) -> Iterator[Image.Image | BadPicture]:
    """Each picture, or the reason why it cannot be read: one bad file does not stop the rest."""
    for source in sources:
        try:
            yield source.read()
        except BadPicture as reason:
            yield reason


def pixels_of(result: object) -> int:
    """Of a picture, or of one with its place."""
    image = result[-1] if isinstance(result, tuple) and result else result
    return image.width * image.height if isinstance(image, Image.Image) else 0


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """At most `size` at a time, and no more pictures than there is memory for."""
    batch, pixels = list[T](), 0
    for item in items:
        if batch and pixels + pixels_of(item) > 2 * MAX_PIXELS:
            yield batch
            batch, pixels = [], 0
        batch.append(item)
        pixels += pixels_of(item)
        if len(batch) == size:
            yield batch
            batch, pixels = [], 0
    if batch:
        yield batch
