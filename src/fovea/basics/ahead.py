"""Work that is done in threads before it is asked for: in order, so much at a time, and ended with whoever asks."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

MOST = 8  # threads for what is not arithmetic: beyond, they wait for the interpreter
S = TypeVar("S")
T = TypeVar("T")


def processors() -> int:
    """Those that this process may use, as far as it can use them."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # Linux knows
    return min(own or 1, MOST)


def ahead(make: Callable[[S], T], items: Iterable[S], threads: int, most: int) -> Iterator[T]:
    """What `make` gives for every item, in order, made in so many threads; at most so many items wait to be asked for.

    Whoever listens hears what is said in the threads. An error is raised when it is its item's turn. Then, or when
    nobody asks any more, what has not begun is left out, and the threads end.
    """
    rest, waiting = iter(items), deque[Future[T]]()

    def submit(count: int) -> None:
        try:
            for item in islice(rest, count):
                waiting.append(pool.submit(copy_context().run, make, item))
        except Exception as error:  # there is no next item, but those before it come first
            waiting.append(Future())
            waiting[-1].set_exception(error)

    with ThreadPoolExecutor(threads, "fovea") as pool:
        try:
            submit(most)
            while waiting:
                result = waiting.popleft().result()
                submit(1)
                yield result
                del result  # it may be large
        finally:
            for future in waiting:
                future.cancel()
