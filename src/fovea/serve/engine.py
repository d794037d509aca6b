"""Work beside the event loop: requests of one kind that come within a few milliseconds go through the network together.

A lane is a thread with a queue. Quick work has one, slow work another, so that a heatmap does not wait for a search of
what is enough; pictures are decoded by a third pool before they stand in a queue."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from fovea.basics import Listener, listening, processors
from fovea.serve.metrics import Metrics
from fovea.serve.options import Limits
from fovea.serve.refusing import Refused, busy
from fovea.serve.room import Room

T = TypeVar("T")
Run = Callable[[Sequence[Any]], Sequence[Any]]  # one answer per item, or what went wrong with it


@dataclass(eq=False)
class Job:
    """One request's part of a batch; `kind` is the same for those that go together."""

    kind: Hashable
    item: Any
    run: Run
    deadline: float  # of time.monotonic
    answer: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop
    given_up: bool = False  # nobody waits for it any more

    def end(self, result: Any) -> None:
        def finish() -> None:
            if self.answer.done() or self.given_up:
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
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.stopped)
            if not self.waiting:
                return []
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
        now = time.monotonic()
        late = busy("too many requests were before this one: ask again later")
        results: dict[int, Any] = {place: late for place, job in enumerate(jobs) if job.given_up or job.deadline < now}
        left = [place for place in range(len(jobs)) if place not in results]
        if left:
            run, deadline = jobs[0].run, max(jobs[place].deadline for place in left)

            def passing(words: str) -> None:
                if time.monotonic() > deadline or all(jobs[place].given_up for place in left):
                    raise busy(f"it took longer than {self.limits.seconds:g} s, and was given up at: {words or 'work'}")

            try:
                with listening(Listener(lambda words: None, passing)):
                    found: Sequence[Any] = run([jobs[place].item for place in left])
            except Exception as error:
                found = self._one_by_one(run, [jobs[place].item for place in left], error)
            results |= dict(zip(left, found, strict=True))
        return [results[place] for place in range(len(jobs))]

    def _one_by_one(self, run: Run, items: Sequence[Any], error: Exception) -> list[Any]:
        """What goes wrong with one picture is not told to those who sent the others."""
        if len(items) == 1 or isinstance(error, Refused):
            return [error] * len(items)
        found = list[Any]()
        for item in items:
            try:
                found += run([item])
            except Exception as reason:
                found.append(reason)
        return found


class Engine:
    """Lanes, the pool that decodes, and how much is at work."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics, self.stopping, self.at_work = limits, metrics, False, 0
        self.room = Room(limits)
        self.lanes = {name: Lane(name, limits, metrics) for name in ("quick", "slow")}
        self.pool = ThreadPoolExecutor(processors(), "fovea_decode")

    async def beside(self, make: Callable[..., T], *given: Any) -> T:
        """What a function gives, run in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, partial(make, *given))

    async def run(self, lane: str, kind: Hashable, item: Any, run: Run, gone: "asyncio.Future[Any]") -> Any:
        """The answer to one item, in a batch with others of its kind; given up when the one who asks is gone."""
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + self.limits.seconds
        job = Job(kind, item, run, deadline, loop.create_future(), loop)
        self.lanes[lane].add(job)
        try:
            await asyncio.wait({job.answer, gone}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if job.answer.done():
                return job.answer.result()
            if gone.done():
                raise Refused(499, "nobody waits for the answer any more")
            raise busy(f"it took longer than {self.limits.seconds:g} s: ask for less, or ask again later")
        finally:
            job.given_up = True

    def demand_place(self) -> None:
        """There is one now; a body need not come where there is none."""
        if self.at_work >= self.limits.queue:
            raise busy(f"{self.at_work} requests are at work or waiting, and no more are taken: ask again later")

    def enter(self) -> None:
        """Counts a request in that has come, or refuses it: who is slow to send takes nobody's place."""
        self.demand_place()
        self.at_work += 1
        self.metrics.at_work.set(self.at_work)

    def leave(self) -> None:
        self.at_work -= 1
        self.metrics.at_work.set(self.at_work)

    def stop(self) -> None:
        for lane in self.lanes.values():
            lane.stop()
        self.pool.shutdown()
