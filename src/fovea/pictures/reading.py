"""The one loop that decodes: pictures in order, in threads where asked, and what could not be read is noted."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

from PIL import Image

from fovea.basics import BadPicture
from fovea.pictures.decoding import room

AHEAD = 4  # pictures per thread that are decoded before they are asked for
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
    with ThreadPoolExecutor(threads) as pool:
        rest, waiting = iter(sources), deque(pool.submit(made, source) for source in islice(sources, threads * AHEAD))
        rest = islice(rest, len(waiting), None)
        try:
            while waiting:
                waiting[0].exception()  # waits for it
                waiting.extend(pool.submit(made, source) for source in islice(rest, 1))
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def read_all(sources: Iterable[Readable]) -> Iterator[Image.Image | BadPicture]:
    """Each picture, or the reason why it cannot be read: one bad file does not stop the rest."""
    for source in sources:
        try:
            yield source.read()
        except BadPicture as reason:
            yield reason


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """At most `size` at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
