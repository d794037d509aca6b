"""Work ahead: in order, bounded, ended with whoever asks."""

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from fovea.basics import ahead

told: ContextVar[str] = ContextVar("told", default="")


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fovea")]


def test_in_order_and_no_further_ahead_than_allowed() -> None:
    taken, asked, furthest = 0, 0, 0

    def items() -> Iterator[int]:
        nonlocal taken, furthest
        for taken in range(1, 41):
            furthest = max(furthest, taken - asked)
            yield taken

    told.set("heard")
    for asked, (number, heard) in enumerate(ahead(lambda item: (item, told.get()), items(), 3, 5), 1):
        assert (number, heard) == (asked, "heard")
    assert asked == 40
    assert furthest == 6
    assert not names()


def test_what_comes_before_an_error_comes_first() -> None:
    def half(number: int) -> float:
        return 1 / number

    def items() -> Iterator[int]:
        yield from (1, 2)
        raise OSError("no more")

    for given, error in (([1, 2, 0, 4], ZeroDivisionError), (items(), OSError)):
        results = ahead(half, given, 2, 8)
        assert [next(results), next(results)] == [1, 0.5]
        with pytest.raises(error):
            next(results)
        assert not names()


def test_work_that_is_forgotten_waits_for_nobody() -> None:
    """The garbage collector ends it wherever it comes by, as in a thread that begins, which holds locks of threads."""
    gate = threading.Event()
    forgotten = ahead(lambda item: item == 0 or gate.wait(5), range(4), 1, 4)
    next(forgotten)
    forgotten.close()  # while the thread is at work, which goes on until the gate opens
    assert names()
    gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("fovea"):
            thread.join(5)
    assert not names()
