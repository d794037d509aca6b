"""Requests of one kind go together, none pays for another, and nobody waits forever."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from fovea.basics import BadPicture, GivenUp, go_on, tell
from fovea.serve.engine import Engine
from fovea.serve.metrics import Metrics
from fovea.serve.options import Limits
from fovea.serve.patience import Patience
from fovea.serve.refusing import Refused

LONG = Limits(window=0.3, seconds=30, batch=4)


@pytest.fixture
def engine() -> Iterator[Callable[[Limits], Engine]]:
    made = list[Engine]()

    def make(limits: Limits = LONG) -> Engine:
        made.append(Engine(limits, Metrics()))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def patience(engine: Engine, gone: "asyncio.Future[None] | None" = None) -> Patience:
    return Patience(engine.limits.seconds, gone or asyncio.get_running_loop().create_future())


def asked(engine: Engine, items: Sequence[tuple[str, Any]], run: Any, lane: str = "quick") -> list[Any]:
    """The answers to items of kinds, all asked at once; what went wrong comes as it is."""

    async def all_of_them() -> list[Any]:
        work = [engine.run(lane, kind, item, run, patience(engine)) for kind, item in items]
        return await asyncio.gather(*work, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_one_kind_goes_together_up_to_a_batch(engine: Callable[..., Engine]) -> None:
    batches = list[list[int]]()

    def double(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        return [2 * item for item in items]

    answers = asked(engine(), [("a", 1), ("b", 10), ("a", 2), ("a", 3), ("a", 4), ("a", 5)], double)
    assert answers == [2, 20, 4, 6, 8, 10]
    assert sorted(batches) == [[1, 2, 3, 4], [5], [10]]


def test_what_goes_wrong_with_one_is_told_to_its_sender_alone(engine: Callable[..., Engine]) -> None:
    def run(items: Sequence[int]) -> list[int]:
        if 3 in items:
            raise BadPicture("3 cannot be read")
        return list(items)

    first, second, third = asked(engine(), [("a", 1), ("a", 3), ("a", 2)], run)
    assert (first, third) == (1, 2)
    assert isinstance(second, BadPicture)


def test_work_that_takes_too_long_is_refused_and_given_up(engine: Callable[..., Engine]) -> None:
    ended = threading.Event()

    def endless(items: Sequence[int]) -> list[int]:
        try:
            for step in range(10_000):
                tell(f"step {step}")
                time.sleep(0.01)
        finally:
            ended.set()
        return list(items)

    (answer,) = asked(engine(Limits(seconds=0.2, window=0)), [("a", 1)], endless)
    assert isinstance(answer, Refused)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert ended.wait(20)  # and the lane is free for others


def test_those_done_one_by_one_have_no_more_time_than_together(engine: Callable[..., Engine]) -> None:
    begun = list[int]()

    def run(items: Sequence[int]) -> list[int]:
        begun.extend(items)
        if len(items) > 1:
            raise BadPicture("one of them cannot be read")
        for _ in range(1000):
            go_on()
            time.sleep(0.01)
        return list(items)

    one = engine(Limits(seconds=2, window=0.5))
    answers = asked(one, [("a", 1), ("a", 2), ("a", 3)], run)
    assert all("longer than 2 s" in str(answer) for answer in answers)
    assert begun[:3] == [1, 2, 3]
    assert asked(one, [("b", 9)], list) == [9]  # the lane is free


def test_what_is_given_up_holds_nothing(engine: Callable[..., Engine]) -> None:
    """The picture of one who left does not stay in memory until its turn would have come."""
    one, free = engine(Limits(window=0)), threading.Event()

    class Large:
        pass

    async def leave(gone: "asyncio.Future[None]") -> "weakref.ref[Large]":
        item = Large()
        work = asyncio.ensure_future(one.run("slow", "b", item, list, patience(one, gone)))
        await asyncio.sleep(0.05)
        assert len(one.lanes["slow"].waiting) == 1
        gone.set_result(None)
        with pytest.raises(Refused):
            await work
        return weakref.ref(item)

    async def both() -> None:
        loop = asyncio.get_running_loop()
        first = asyncio.ensure_future(one.run("slow", "a", 1, lambda items: [free.wait(20)], patience(one)))
        await asyncio.sleep(0.05)
        held = await leave(loop.create_future())
        await asyncio.sleep(0.01)  # the loop holds a task until it has gone on
        gc.collect()
        assert not one.lanes["slow"].waiting
        assert held() is None
        free.set()
        await first

    asyncio.run(both())


def test_one_who_leaves_before_a_batch_begins_takes_nobody_along(engine: Callable[..., Engine]) -> None:
    one = engine(Limits(window=0.2))

    async def leave_and_ask() -> list[Any]:
        gone = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, gone.set_result, None)
        first = await asyncio.gather(one.run("quick", "a", 1, list, patience(one, gone)), return_exceptions=True)
        return [*first, await one.run("quick", "a", 2, list, patience(one))]

    left, answer = asyncio.run(leave_and_ask())
    assert isinstance(left, Refused)
    assert answer == 2


def test_work_in_threads_is_ended_too(engine: Callable[..., Engine]) -> None:
    one, ended = engine(Limits(seconds=0.2)), threading.Event()

    def endless() -> None:
        try:
            while True:
                go_on()
                time.sleep(0.01)
        except GivenUp:
            ended.set()
            raise

    async def waiting() -> Any:
        return await asyncio.gather(one.beside(patience(one), endless), return_exceptions=True)

    (answer,) = asyncio.run(waiting())
    assert isinstance(answer, Refused)
    assert answer.status == 503
    assert ended.wait(20)


def test_what_waited_too_long_is_not_begun(engine: Callable[..., Engine]) -> None:
    begun = list[int]()

    def slow(items: Sequence[int]) -> list[int]:
        begun.extend(items)
        time.sleep(0.5)
        return list(items)

    answers = asked(engine(Limits(seconds=0.3, window=0, batch=1)), [("a", 1), ("a", 2), ("a", 3)], slow)
    assert all(isinstance(answer, Refused) and answer.status == 503 for answer in answers)
    time.sleep(0.6)
    assert begun == [1]


def test_nobody_waits_for_an_answer_to_one_who_is_gone(engine: Callable[..., Engine]) -> None:
    one = engine(Limits(window=0))

    async def leaving() -> Any:
        gone = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, gone.set_result, None)
        return await asyncio.gather(one.run("quick", "a", 1, _sleepy, patience(one, gone)), return_exceptions=True)

    (answer,) = asyncio.run(leaving())
    assert isinstance(answer, Refused)
    assert answer.status == 499


def _sleepy(items: Sequence[int]) -> list[int]:
    time.sleep(0.3)
    return list(items)


def test_lanes_do_not_wait_for_each_other(engine: Callable[..., Engine]) -> None:
    one, free = engine(Limits(window=0)), threading.Event()

    async def both() -> list[Any]:
        slow = asyncio.ensure_future(one.run("slow", "a", 1, lambda items: [free.wait(20)], patience(one)))
        quick = await one.run("quick", "a", 2, list, patience(one))
        free.set()
        return [quick, await slow]

    assert asyncio.run(both()) == [2, True]


def test_no_more_than_the_queue_takes(engine: Callable[..., Engine]) -> None:
    one = engine(Limits(queue=2))
    with one.place():
        with one.place():
            with pytest.raises(Refused, match="2 requests are at work") as refused, one.place():
                pass
            assert refused.value.status == 503
        with one.place():
            assert one.at_work == 2
    assert one.at_work == 0


def test_what_waits_is_done_before_it_stops() -> None:
    one, done = Engine(Limits(window=0, batch=1), Metrics()), list[int]()

    def run(items: Sequence[int]) -> list[int]:
        time.sleep(0.05)
        done.extend(items)
        return list(items)

    async def stopped_meanwhile() -> list[Any]:
        work = [asyncio.ensure_future(one.run("quick", "a", item, run, patience(one))) for item in range(5)]
        await asyncio.sleep(0.02)
        await asyncio.to_thread(one.stop)
        return await asyncio.gather(*work)

    assert asyncio.run(stopped_meanwhile()) == done == [0, 1, 2, 3, 4]
