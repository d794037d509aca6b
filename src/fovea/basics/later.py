"""What is made when somebody looks: of many results, most are never looked at one by one."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Later(Sequence[T]):
    """A tuple of known length that is made when its first item is asked for; it equals, and pickles as, that tuple."""

    def __init__(self, length: int, make: Callable[[], Iterable[T]]) -> None:
        self._length, self._make = length, make
        self._made: tuple[T, ...] | None = None

    @property
    def _items(self) -> tuple[T, ...]:
        if self._made is None:
            self._made = tuple(self._make())
            self._make = tuple  # and what it was made of may go
        return self._made

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, Later) else other)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> Any:
        return tuple, (list(self._items),)
