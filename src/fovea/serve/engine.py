"""Work beside the event loop: requests of one kind that come within a few milliseconds go through the network together.

A lane is a thread with a queue. Quick work has one, slow work another, so that a heatmap does not wait for a search of
what is enough; pictures are decoded by a third pool before they stand in a queue."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fovea.basics import GivenUp, Listener, listening, processors
from fovea.serve.metrics import Metrics
from fovea.serve.options import Limits
from fovea.serve.patience import Patience
from fovea.serve.refusing import Refused, busy
from fovea.serve.room import Room

T = TypeVar("T")
Run = Callable[[Sequence[Any]], Sequence[Any]]  # one answer per item
LATE = "too many requests were before this one: ask again later"


@dataclass(eq=False)
class Job:
    """One request's part of a batch; `kind` is the same for those that go together."""

    kind: Hashable
    item: Any
    run: Run
    patience: Patience
    answer: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop

    def end(self, result: Any) -> None:
        def finish() -> None:
            if self.answer.done():
                return
            if isinstance(result, Exception):
                self.answer.set_exception(result)
            else:
                self.answer.set_result(result)

        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self.loop.call_soon_threadsafe(finish)


@dataclass
class Lane:
    """A thread that runs batches, the oldest request first."""

    name: str
    limits: Limits
    metrics: Metrics
    waiting: deque[Job] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)
    stopped: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, name=f"fovea_{self.name}", daemon=True)
        self.thread.start()

    def add(self, job: Job) -> None:
        with self.changed:
            self.waiting.append(job)
            self.changed.notify()

    def drop(self, job: Job) -> None:
        """Nobody waits for it: what it holds is let go of, unless it is at work."""
        with self.changed, suppress(ValueError):
            self.waiting.remove(job)

    def stop(self) -> None:
        """Once all that waits is done."""
        with self.changed:
            self.stopped = True
            self.changed.notify()
        self.thread.join()

    def _work(self) -> None:
        while jobs := self._next():
            self.metrics.batch(self.name, len(jobs))
            for job, result in zip(jobs, self._run(jobs), strict=True):
                job.end(result)
            del jobs, job, result  # pictures may be large

    def _next(self) -> list[Job]:
        """Those of the first one's kind, once no more came for a moment; nothing when all is over."""
        jobs = list[Job]()
        with self.changed:
            while not jobs:  # those that were there may be dropped meanwhile
                self.changed.wait_for(lambda: self.waiting or self.stopped)
                if not self.waiting:
                    break
                first, until = self.waiting[0], time.monotonic() + self.limits.window
                while self._alike(first) < self.limits.batch and (left := until - time.monotonic()) > 0:
                    self.changed.wait(left)
                jobs = [job for job in self.waiting if job.kind == first.kind][: self.limits.batch]
            chosen = set(map(id, jobs))
            self.waiting = deque(job for job in self.waiting if id(job) not in chosen)
        return jobs

    def _alike(self, first: Job) -> int:
        return sum(job.kind == first.kind for job in self.waiting)

    def _run(self, jobs: Sequence[Job]) -> list[Any]:
        """One answer per job, or what went wrong with it; what goes wrong with one picture is not told to those who
        sent the others."""
        waiting = [job for job in jobs if not job.patience.over]
        results: dict[int, Any] = {}
        try:
            results = dict(zip(map(id, waiting), self._together(waiting), strict=True))
        except (Refused, GivenUp) as error:
            results = dict.fromkeys(map(id, waiting), error)
        except Exception as error:
            for job in waiting:
                try:
                    (results[id(job)],) = [error] if len(waiting) == 1 else self._together([job])
                except Exception as reason:
                    results[id(job)] = reason
        return [results[id(job)] if id(job) in results else busy(LATE) for job in jobs]

    def _together(self, jobs: Sequence[Job]) -> Sequence[Any]:
        """Given up once nobody waits for any of them."""

        def check() -> None:
            if all(job.patience.over for job in jobs):
                jobs[0].patience.check()

        if not jobs:
            return []
        with listening(Listener(check=check)):
            check()
            return jobs[0].run([job.item for job in jobs])


class Engine:
    """Lanes, the pool that decodes, and how much is at work."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics, self.stopping, self.at_work = limits, metrics, False, 0
        self.room = Room(limits)
        self.lanes = {name: Lane(name, limits, metrics) for name in ("quick", "slow")}
        self.pool = ThreadPoolExecutor(processors(), "fovea_decode")

    async def beside(self, patience: Patience, make: Callable[..., T], *given: Any) -> T:
        """What a function gives, run in a thread."""

        def work() -> T:
            with listening(Listener(check=patience.check)):
                patience.check()
                return make(*given)

        return await patience.wait(asyncio.get_running_loop().run_in_executor(self.pool, work))

    async def run(self, lane: str, kind: Hashable, item: Any, run: Run, patience: Patience) -> Any:
        """The answer to one item, in a batch with others of its kind."""
        loop = asyncio.get_running_loop()
        job = Job(kind, item, run, patience, loop.create_future(), loop)
        self.lanes[lane].add(job)
        try:
            return await patience.wait(job.answer)
        finally:
            self.lanes[lane].drop(job)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Counts a request in that has come, or refuses it: who is slow to send takes nobody's place."""
        self.demand_place()
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        self.at_work += more
        self.metrics.at_work.set(self.at_work)

    def demand_place(self) -> None:
        """There is one now; a body need not come where there is none."""
        if self.at_work >= self.limits.queue:
            raise busy(f"{self.at_work} requests are at work or waiting, and no more are taken: ask again later")

    def stop(self) -> None:
        for lane in self.lanes.values():
            lane.stop()
        self.pool.shutdown()
