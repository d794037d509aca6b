"""The one loop that decodes: pictures in order, in threads where asked, and what could not be read is noted."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

from PIL import Image

from fovea.basics import BadPicture
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
    make: Callable[[Image.Image], T],
    skipped: list[tuple[str, str]],
    threads: int = 1,
    read: Callable[[Readable], Image.Image] = lambda source: source.read(),
) -> Iterator[tuple[int, T]]:
    """What `make` gives for every picture that can be read, with its place among all; the others go to `skipped`."""

    def made(source: Readable) -> T | BadPicture:
        try:
            with room.shared():
                return make(read(source))
        except BadPicture as reason:
            return reason

    for place, result in enumerate(_in_order(made, sources, threads)):
        if isinstance(result, BadPicture):
            skipped.append((sources[place].name, str(result)))
        else:
            yield place, result
        del result  # it may be a large picture, and the next is decoded now


def _in_order(
    made: Callable[[Readable], T | BadPicture], sources: Sequence[Readable], threads: int
) -> Iterator[T | BadPicture]:
    if threads < 2 or len(sources) < 2:
        yield from map(made, sources)
        return

    def ahead(source: Readable) -> T | BadPicture | None:
        result = made(source)
        return None if pixels_of(result) > LARGE else result

    with ThreadPoolExecutor(threads) as pool:
        rest = iter(sources)
        waiting = deque((source, pool.submit(ahead, source)) for source in islice(rest, threads * AHEAD))
        try:
            while waiting:
                source, future = waiting.popleft()
                result = future.result()
                waiting.extend((later, pool.submit(ahead, later)) for later in islice(rest, 1))
                yield made(source) if result is None else result
        finally:
            for _, future in waiting:
                future.cancel()


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
