"""Progress where nobody looks at a terminal, by a clock that the tests turn."""

import threading
from collections.abc import Callable

import pytest

from fovea.basics import duration
from fovea.cli import common
from fovea.cli.common import EVERY, Bar, bar


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ticking(clock: Clock, steps: list[Callable[[], None]]) -> Callable[[float], bool]:
    """A wait that is over once every step was done: what happens while so many seconds pass."""

    def wait(seconds: float) -> bool:
        clock.now += seconds
        if not steps:
            return True
        steps.pop(0)()
        return False

    return wait


def test_a_line_every_ten_seconds_says_how_much_is_done_and_how_long_the_rest_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    told = Bar("explaining", clock=clock)
    told.lines(ticking(clock, [lambda: told(120, 500), lambda: None, lambda: told(500, 500)]))
    assert capsys.readouterr().err.splitlines() == [
        "explaining: about 32 s to go",  # once, as the first batch shows
        "explaining: 120 of 500, about 32 s left",
        "explaining: 120 of 500, about 63 s left",  # a step that takes long is alive
        "explaining: 500 of 500",
    ]


def test_before_anything_is_done_a_line_says_only_that_it_is_at_work(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    told = Bar("loading resnet50", clock=clock)
    told.lines(ticking(clock, [lambda: None, lambda: told(0, 8)]))
    assert capsys.readouterr().err.splitlines() == [
        "loading resnet50: about 10 s so far",
        "loading resnet50: 0 of 8, about 0 s so far",
    ]


def test_what_takes_long_tells_the_cheaper_choice_once_and_what_does_not_tells_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    slow, quick = (Bar(what, "--method gradcam", clock=clock) for what in ("slow", "quick"))
    clock.now += 1
    quick(16, 32)
    clock.now += 59
    slow(1, 4)
    clock.now += 60
    slow(2, 4)
    assert capsys.readouterr().err == "slow: about 3 min to go; quicker: --method gradcam\n"


def test_what_was_done_before_does_not_count_as_done_in_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    told = Bar("indexing", resumes=True, clock=clock)
    told(400, 500)
    clock.now += 30
    told(450, 500)
    assert capsys.readouterr().err.splitlines() == [
        "indexing: 500 pictures, 100 to look at",
        "indexing: about 30 s to go",
    ]


def test_something_else_that_is_done_next_has_a_time_of_its_own() -> None:
    clock = Clock()
    told = Bar("trying", clock=clock)
    clock.now += 1000
    told(10, 10)
    told.tell("drawing")
    told(0, 10)
    clock.now += 1
    told(5, 10)
    assert (told.what, told.state()) == ("drawing", "5 of 10, about 1 s left")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "about 0 s"), (89, "about 89 s"), (90, "about 2 min"), (5399, "about 90 min"), (7200, "about 2 h")],
)
def test_times_are_rough(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_command_that_is_done_prints_no_line_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("explaining") as advance:
        advance(1, 1)
    assert capsys.readouterr().err == ""
    assert EVERY == 10


def test_a_long_step_of_a_command_that_is_piped_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, spoken = list[str](), threading.Event()
    monkeypatch.setattr(common, "EVERY", 0.0)
    monkeypatch.setattr(common.warn, "print", lambda line: (lines.append(line), spoken.set()))
    with bar("waiting"):
        assert spoken.wait(60)
    assert lines[0] == "waiting: about 0 s so far"
