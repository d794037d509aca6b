"""Work that is done in threads before it is asked for: in order, so much at a time, and ended with whoever asks; and
what is made when somebody looks, since of many results most are never looked at one by one."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar, overload

MOST = 8  # threads for what is not arithmetic: beyond, they wait for the interpreter
S = TypeVar("S")
T = TypeVar("T")


_most: ContextVar[int] = ContextVar("most", default=MOST)


def processors() -> int:
    """Those that this process may use, as far as it can use them; one for work that is done by itself."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # Linux knows
    return min(own or 1, _most.get())


@contextmanager
def by_itself() -> Iterator[None]:
    """In this block one thread does all: other processors are at work on other parts, and would be disturbed."""
    token = _most.set(1)
    try:
        yield
    finally:
        _most.reset(token)


def ahead(make: Callable[[S], T], items: Iterable[S], threads: int, most: int) -> Iterator[T]:
    """What `make` gives for every item, in order, made in so many threads; at most so many items wait to be asked for.

    Whoever listens hears what is said in the threads. An error is raised when it is its item's turn. Then, or when
    nobody asks any more, what has not begun is left out, and the threads end."""
    rest, waiting, tasks = iter(items), deque[Future[T]](), SimpleQueue[Callable[[], None] | None]()

    def submit(count: int) -> None:
        try:
            for item in islice(rest, count):
                waiting.append(Future())
                tasks.put(partial(copy_context().run, _fill, waiting[-1], make, item))
        except Exception as error:  # there is no next item, but those before it come first
            waiting.append(Future())
            waiting[-1].set_exception(error)

    pool = [Thread(target=_work, args=(tasks,), name=f"fovea_{number}", daemon=True) for number in range(threads)]
    for thread in pool:
        thread.start()
    wait = True
    try:
        submit(most)
        while waiting:
            result = waiting.popleft().result()
            submit(1)
            yield result
            del result  # it may be large
    except (
        GeneratorExit
    ):  # perhaps in the middle of anything, where the garbage collector came by: nothing is waited for
        wait = False
        raise
    finally:
        for future in waiting:
            future.cancel()
        for _ in pool:
            tasks.put(None)
        for thread in pool if wait else ():
            thread.join()


def _work(tasks: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it may hold what is large


def _fill(future: "Future[T]", make: Callable[[S], T], item: S) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(make(item))
        except BaseException as error:
            future.set_exception(error)
            del future  # which has the error, whose traceback has what is here


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
