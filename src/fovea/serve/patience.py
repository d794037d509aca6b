"""How long a request is worked for."""

import asyncio
import math
import time
from dataclasses import dataclass
from typing import Any, TypeVar

from fovea.basics import GivenUp
from fovea.serve.refusing import Refused, busy

T = TypeVar("T")
TOO_LONG = "it took longer than {:g} s: ask for less, or ask again later"


@dataclass(eq=False)
class Patience:
    """Until the time of a request is up, or the one who asks is gone; work in threads is ended at its next `go_on`."""

    seconds: float
    gone: "asyncio.Future[Any]"
    ended: bool = False

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.seconds

    @property
    def over(self) -> bool:
        return self.ended or time.monotonic() > self.deadline

    def check(self) -> None:
        if self.over:
            raise GivenUp(TOO_LONG.format(self.seconds))

    async def wait(self, answer: "asyncio.Future[T]") -> T:
        """The answer, if it comes in time; what is asked for is given up otherwise."""
        left = None if math.isinf(self.seconds) else max(self.deadline - time.monotonic(), 0)
        try:
            await asyncio.wait({answer, self.gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.ended = not answer.done()
        if answer.done():
            return answer.result()
        answer.cancel()
        if self.gone.done():
            raise Refused(499, "nobody waits for the answer any more")
        raise busy(TOO_LONG.format(self.seconds))
