"""What every command shares: where it prints, its progress bar, the options that mean the same everywhere."""

import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.segment import Segment
from rich.text import Text

from fovea.basics import BadChoice, Listener, duration, listening, printable, shortened

if TYPE_CHECKING:
    from fovea.cli.commands import Asked
    from fovea.measures.figures import Figures
    from fovea.results import Result, Step, Writer

    T = TypeVar("T", bound=Result)


NAME, LABEL = 40, 24  # columns of a line, at most


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


SURE = 0.5  # below it, a probability is spread over other classes
say, warn = Plain(), Plain(stderr=True)
EVERY = 10.0  # seconds between lines where no terminal shows a bar
SECRET = re.compile(r"(--token[= ]|#token=)\S+")
LONG = 20.0  # seconds from which on it is told how long something will take


@dataclass
class Bar:
    """Told how much is done: a bar on a terminal, elsewhere a line every ten seconds; and, once, how long it will take
    where that is long, as the first batch shows. `quicker` is a cheaper choice that is then told, too; one that
    `resumes` is first told how much was done before."""

    what: str
    quicker: str = ""
    resumes: bool = False
    live: Progress | None = None
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    total: int | None = None
    facts: str = ""
    part: str = ""  # scorecam 320 of 1,280

    def __post_init__(self) -> None:
        self._begin(0)

    def _begin(self, done: int) -> None:
        self.start, self.first = self.clock(), done  # when it began, and how much was done then
        self.announced = False

    def __call__(self, done: int, total: int, facts: str = "") -> None:
        if self.resumes:
            warn.print(f"{self.what}: {total:,} pictures, {total - done:,} to look at")
        if self.resumes or done == 0 or done < self.done:  # what came before tells nothing about the time
            self._begin(done if self.resumes else 0)
        self.done, self.total, self.facts, self.resumes = done, total, facts, False
        if not self.announced and self.first < done < total:
            self.announced = True
            if (left := self.left or 0) >= LONG:
                words = f"{duration(left)} to go"
                warn.print(f"{self.what}: {words}{self.quicker and f'; quicker: {self.quicker}'}")
        self._show()

    def tell(self, words: str) -> None:
        """What is being done from now on."""
        self.what = words
        self._show()

    def within(self, part: str) -> None:
        """What is being done within a step."""
        self.part = part
        self._show()

    @property
    def left(self) -> float | None:
        """Seconds, at the pace so far."""
        if self.total is None or self.done <= self.first:
            return None
        return (self.clock() - self.start) * (self.total - self.done) / (self.done - self.first)

    def state(self) -> str:
        """120 of 500, about 40 s left."""
        count = f"{self.done:,} of {self.total:,}" if self.total is not None else ""
        since = f"{duration(self.clock() - self.start)} so far"
        left = since if self.left is None else f"{duration(self.left)} left" if self.done < (self.total or 0) else ""
        return ", ".join(filter(None, (count, left, self.part, self.facts)))

    def _show(self) -> None:
        if self.live is not None:
            what, state = printable(self.what), printable(self.state())
            self.live.update(TaskID(0), completed=self.done, total=self.total, description=what, state=state)

    def lines(self, over: Callable[[float], bool]) -> None:
        """A line every ten seconds, also while one step takes longer, until it is over."""
        while not over(EVERY):
            warn.print(f"{self.what}: {self.state()}")


@contextmanager
def bar(what: str, quicker: str = "", resumes: bool = False) -> Iterator[Bar]:
    """Progress on stderr, so that what is printed stays clean; methods tell it how far they are within a batch."""
    if warn.is_terminal:
        columns = SpinnerColumn(), _column("description"), BarColumn(), _column("fields[state]")
        with Progress(*columns, console=warn, transient=True) as live:
            live.add_task(printable(what), total=None, state="")
            made = Bar(what, quicker, resumes, live)
            with listening(Listener(warn.print, made.within)):
                yield made
        return
    told, over = Bar(what, quicker, resumes), threading.Event()
    threading.Thread(target=told.lines, args=(over.wait,), daemon=True).start()
    try:
        with listening(Listener(warn.print, told.within)):
            yield told
    finally:
        over.set()


def _column(what: str) -> TextColumn:
    return TextColumn(f"{{task.{what}}}", markup=False)


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
    asked: "Asked",
    instead: "Callable[[T], Sequence[str | Text]]" = lambda result: (),
) -> None:
    """What every verb does: all results into the writer's folder, a line for each that is there, or what is to be said
    instead; and to --json where it is asked.

    A result's `note` is told once, with how many have it. Exit status 1 when nothing was done.
    """
    notes: Counter[str] = Counter()
    lines, waiting = Lines(asked.one_folder()), deque[Sequence[str | Text]]()

    def tell(most: int) -> None:
        while len(waiting) > most:
            for words in waiting.popleft():
                say.print(words)

    with writer, bar(doing) as advance:
        for step in steps:
            for result, line in zip(step.results, lines.of(step.results), strict=True):
                waiting.append(instead(result) or (line,))
                notes.update([note] if (note := getattr(result, "note", None)) else ())
            writer.add(step.results, step.skipped)
            tell(writer.waiting)
            advance(step.done, step.total)
    tell(0)
    for note, count in notes.items():
        warn.print(f"note on {count} result(s): {note}")
    finish(writer, asked.values.get("json"))


@dataclass
class Lines:
    """One line per result, its parts below those of the lines before: name, label, probability, box, what else."""

    folder: Path | None = None  # which all names begin with
    widths: tuple[int, ...] = (0, 0, 0, 0, 0)

    def of(self, results: "Sequence[Result]") -> list[str]:
        rows = [self._parts(result) for result in results]
        columns = zip(*rows, strict=True) if rows else [()] * len(self.widths)
        pairs = zip(self.widths, columns, strict=True)
        self.widths = tuple(max([most, *map(cell_len, column)]) for most, column in pairs)
        return ["  ".join(map(set_cell_size, row, self.widths)).rstrip() for row in rows]

    def _parts(self, result: "Result") -> tuple[str, ...]:
        from fovea.results import first_box

        inside = self.folder is not None and Path(result.name).is_relative_to(self.folder)
        name = str(Path(result.name).relative_to(self.folder or "")) if inside else result.name
        share = "" if result.probability is None else f"{result.probability:.2f}"
        box = " ".join(f"{side:.0f}" for side in first_box(result.boxes))
        return brief(name, NAME), brief(result.label, LABEL), share, f"box {box}" if box else "", result.view().words


def brief(text: str, most: int) -> str:
    """So many columns of a text at most: the end of a path, the beginning of anything else."""
    text = printable(text)
    if cell_len(text) <= most:
        return text
    parts = text.split("/")
    for start in range(1, len(parts)):
        if cell_len(end := "/".join(["…", *parts[start:]])) <= most:
            return end
    return f"{set_cell_size(parts[-1], most - 1).rstrip()}…"


def refuse_full_size(asked: "Asked", pictures: "Sequence[Any]") -> None:
    """Of files too large to load: nothing of their own size is drawn."""
    from fovea.results import gathered

    if asked.full_size:
        given, large = gathered(list(pictures), asked.max_pixels)
        for picture in (picture for picture, big in zip(given, large, strict=True) if big):
            raise BadChoice(f"--full-size: {picture.name} is never loaded; its map is written as a GeoTIFF without it")


def tell_note(settings: "Mapping[str, Any]", rows: "Sequence[Mapping[str, Any]]") -> None:
    """What a network knows, and of how many pictures it is not sure, to stderr."""
    if note := settings.get("note"):
        unsure = sum(1 for row in rows if isinstance(share := row.get("probability"), float) and share < SURE)
        spread = f" (its best probability is below {SURE} for {unsure} of {len(rows)})" if unsure else ""
        warn.print(f"note: {note}{spread}")


def finish(writer: "Writer", json: Path | None = None) -> None:
    """What a verb says last: what was skipped, how much was done, and where it is."""
    from fovea.results import FILE, PAGE

    tell_skipped(writer.skipped, f", listed in {FILE}")
    if json is not None:
        from fovea.measures.figures import Figures

        write(Figures(writer.what, writer.settings, writer.rows), json)
    tell_note(writer.settings, writer.rows)
    where = writer.folder / FILE
    say.print(f"{writer.what}: {len(writer.rows)} done, {len(writer.skipped)} skipped: {where}")
    say_page(writer.folder / PAGE)
    if not writer.rows:
        raise typer.Exit(1)


def say_page(page: Path) -> None:
    """Where a page is, which is the last line of a command that writes one."""
    say.print(f"open in a browser: {page}" if say.is_terminal else str(page))


def write(found: "Figures", json: Path | None) -> None:
    """To the file where one was named, with the command that did it."""
    if json:
        found.write(json, command=shortened_command())


def shortened_command() -> str:
    """The command that is running, for those who want to run it again; a token is nobody else's."""
    return SECRET.sub(r"\1…", " ".join(["fovea", *map(shortened, sys.argv[1:])]))
