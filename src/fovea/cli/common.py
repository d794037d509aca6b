"""What every command shares: where it prints, its progress bar, the options that mean the same everywhere."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from fovea.basics import printable

if TYPE_CHECKING:
    from fovea.measures.figures import Figures
    from fovea.results import Result, Step, Writer

    T = TypeVar("T", bound=Result)


class Plain(Console):
    """What is printed is text, one line each: nothing in a file's name steers the terminal or passes for our words."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(thing) if isinstance(thing, str) else thing for thing in objects), **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """In a table."""
        return super().render_str(_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Of whatever else can be printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_lines(segment.text))


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


say, warn = Plain(), Plain(stderr=True)


@dataclass(frozen=True)
class Bar:
    """A progress bar that is told how much is done, and what is being done where that changes."""

    progress: Progress
    task: TaskID

    def __call__(self, done: int, total: int) -> None:
        self.progress.update(self.task, completed=done, total=total)

    def tell(self, words: str) -> None:
        self.progress.update(self.task, description=printable(words))


@contextmanager
def bar(what: str) -> Iterator[Bar]:
    """A progress bar on stderr, so that what is printed stays clean."""
    words = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn(), words, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=warn, transient=True, disable=not warn.is_terminal) as progress:
        yield Bar(progress, progress.add_task(printable(what), total=None))


def tell_skipped(skipped: "Sequence[tuple[str, str]]", where: str = "") -> None:
    """What could not be read, to stderr: the first ten, and how many more there are."""
    for name, reason in skipped[:10]:
        words = reason if name in reason else f"{name}: {reason}"
        warn.print(f"skipped: {words}")
    if len(skipped) > 10:
        warn.print(f"… and {len(skipped) - 10} more{where}")


def show(
    steps: "Iterable[Step[T]]",
    writer: "Writer",
    doing: str,
    line: "Callable[[T], str] | None" = None,
    json: Path | None = None,
) -> None:
    """What every verb does: a line per result, all of them into the writer's folder, and to --json where it is asked.

    A result's `note` is told once, with how many have it. Exit status 1 when nothing was done.
    """
    from fovea.results import said

    notes: Counter[str] = Counter()
    with writer, bar(doing) as advance:
        for step in steps:
            for result in step.results:
                say.print(f"{result.name}: {line(result) if line else said(result)}")
                notes.update([note] if (note := getattr(result, "note", None)) else ())
            writer.add(step.results, step.skipped)
            advance(step.done, step.total)
    for note, count in notes.items():
        warn.print(f"note on {count} result(s): {note}")
    finish(writer, json)


def finish(writer: "Writer", json: Path | None = None) -> None:
    """What a verb says last: what was skipped, how much was done, and where it is."""
    from fovea.results import FILE

    tell_skipped(writer.skipped, f", listed in {FILE}")
    if json is not None:
        from fovea.measures.figures import Figures

        write(Figures(writer.what, writer.settings, writer.rows), json)
    where = writer.folder / FILE
    say.print(f"{writer.what}: {len(writer.rows)} done, {len(writer.skipped)} skipped: {where}")
    if not writer.rows:
        raise typer.Exit(1)


def write(found: "Figures", json: Path | None) -> None:
    """To the file where one was named, with the command that did it."""
    if json:
        found.write(json, command=shortened_command())


def shortened_command() -> str:
    """The command that is running, for those who want to run it again."""
    return " ".join(["fovea", *map(shortened, sys.argv[1:])])


def shortened(word: str) -> str:
    """A word of a command with the last part alone of every path that tells about a machine: /a/b, ~/b and ../b."""
    return "".join(map(_last, re.split(r"([=,:]\s*)", word)))


def _last(piece: str) -> str:
    path = Path(piece)
    return path.name if path.is_absolute() or piece.startswith("~") or ".." in path.parts else piece
