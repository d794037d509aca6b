"""Who does work that can be cut into parts: this process, or many that an engine holds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

S = TypeVar("S")
T = TypeVar("T")


@runtime_checkable
class Engine(Protocol):
    """`map` gives what a worker makes of each item, in any order. `make` is called once by every worker, and gives the
    function that does the work; both, the items and what comes back can be pickled."""

    @property
    def here(self) -> bool: ...  # in this process

    def map(self, make: Callable[[], Callable[[S], T]], items: Sequence[S]) -> Iterator[T]: ...


class Here:
    """This process, one item after the other."""

    here = True

    def map(self, make: Callable[[], Callable[[S], T]], items: Iterable[S]) -> Iterator[T]:
        return map(make(), items)


LOCAL = Here()


def in_order(found: Iterable[tuple[int, T]]) -> Iterator[T]:
    """What comes numbered from 0 in any order, in that order."""
    waiting, place = dict[int, T](), 0
    for number, value in found:
        waiting[number] = value
        while place in waiting:
            yield waiting.pop(place)
            place += 1
