"""What every command shares: where it prints, its progress bar, the options that mean the same everywhere."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from fovea.measures.figures import Figures
    from fovea.results import Result, Step, Writer

    T = TypeVar("T", bound=Result)

say, warn = Console(soft_wrap=True, highlight=False), Console(stderr=True, soft_wrap=True, highlight=False)


@dataclass(frozen=True)
class Bar:
    """A progress bar that is told how much is done, and what is being done where that changes."""

    progress: Progress
    task: TaskID

    def __call__(self, done: int, total: int) -> None:
        self.progress.update(self.task, completed=done, total=total)

    def tell(self, words: str) -> None:
        self.progress.update(self.task, description=words.replace("[", "("))


@contextmanager
def bar(what: str) -> Iterator[Bar]:
    """A progress bar on stderr, so that what is printed stays clean."""
    words = TextColumn("{task.description}")
    columns = SpinnerColumn(), words, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=warn, transient=True, disable=not warn.is_terminal) as progress:
        yield Bar(progress, progress.add_task(what, total=None))


def tell_skipped(skipped: "Sequence[tuple[str, str]]", where: str = "") -> None:
    """What could not be read, to stderr: the first ten, and how many more there are."""
    for name, reason in skipped[:10]:
        words = reason if name in reason else f"{name}: {reason}"
        warn.print(f"skipped: {words}", markup=False)
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
                say.print(f"{result.name}: {line(result) if line else said(result)}", markup=False)
                notes.update([note] if (note := getattr(result, "note", None)) else ())
            writer.add(step.results, step.skipped)
            advance(step.done, step.total)
    for note, count in notes.items():
        warn.print(f"note on {count} result(s): {note}", markup=False)
    finish(writer, json)


def finish(writer: "Writer", json: Path | None = None) -> None:
    """What a verb says last: what was skipped, how much was done, and where it is."""
    from fovea.results import FILE

    tell_skipped(writer.skipped, f", listed in {FILE}")
    if json is not None:
        from fovea.measures.figures import Figures

        write(Figures(writer.what, writer.settings, writer.rows), json)
    where = writer.folder / FILE
    say.print(f"{writer.what}: {len(writer.rows)} done, {len(writer.skipped)} skipped: {where}", markup=False)
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
