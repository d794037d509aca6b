"""What long work says of itself, to whoever listens: the command line's bar does, a script need not.

with listening(Listener(print, bar.describe)):
    announce("scorecam: 1,280 passes ...")  # a line that stays, once per listener
    tell("scorecam 320 of 1,280")  # what is being done now, until something else is
    go_on()  # says nothing: whoever listens may end the work here
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from fovea.basics.errors import FoveaError

Progress = Callable[[int, int], None]  # told how much is done, of how much


def quiet(done: int, total: int) -> None:
    """No progress is shown."""


class GivenUp(FoveaError):
    """Whoever listens wants no more of it."""


@dataclass(frozen=True)
class Listener:
    """`line` is called with what stays, `passing` with what is being done now ("" once it is done), `check` whenever
    work may be ended, which it does by raising GivenUp."""

    line: Callable[[str], None] = lambda words: None
    passing: Callable[[str], None] = lambda words: None
    check: Callable[[], None] = lambda: None
    heard: set[str] = field(default_factory=set)


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def is_new(what: str) -> bool:
    """Whether somebody listens who has not heard this yet; from now on they have."""
    listener = _listener.get()
    if listener is None or what in listener.heard:
        return False
    listener.heard.add(what)
    return True


def announce(words: str) -> None:
    listener = _listener.get()
    if listener is not None and is_new(words):
        listener.line(words)


def tell(words: str) -> None:
    listener = _listener.get()
    if listener is not None:
        listener.check()
        listener.passing(words)


def go_on() -> None:
    listener = _listener.get()
    if listener is not None:
        listener.check()


def duration(seconds: float) -> str:
    """about 40 s, about 3 min, about 2 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s"
