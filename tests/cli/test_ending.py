"""Whatever happens, a command ends with one line and a status, and nothing steers the terminal."""

import io
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.progress import Progress, TextColumn
from rich.table import Table

from fovea.basics import BadChoice, BadPicture
from fovea.cli import ending, main
from fovea.cli.common import Bar, Plain, warn
from fovea.cli.ending import run, without_debug

EVIL = "a\x1b[2J\x1b]0;t\x07\r\n\u202eb\udcff[bold]:smile:"
SHOWN = r"a\x1b[2J\x1b]0;t\x07\r\n\u202eb\udcff[bold]:smile:"


class Panic(BaseException):
    """As libraries in Rust raise it."""


def deep(depth: int = 0) -> int:
    return deep(depth + 1) + 1


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def app(work: Callable[[], None]) -> typer.Typer:
    made = typer.Typer(pretty_exceptions_enable=False)

    @made.command()
    def do(words: list[str] | None = None, number: int = 1) -> None:
        work()

    return made


@pytest.mark.parametrize(
    ("work", "status", "told"),
    [
        (raising(RuntimeError("shapes differ\nmore")), 70, "RuntimeError: shapes differ; please report it; run it"),
        (raising(AttributeError("x")), 70, "AttributeError: x; please report it"),
        (raising(MemoryError()), 70, "MemoryError; smaller pictures, or fewer at a time (--batch), need less memory"),
        (raising(RuntimeError("CUDA out of memory.")), 70, "need less memory"),
        (deep, 70, "RecursionError: maximum recursion depth exceeded"),
        (raising(Panic("index out of bounds")), 70, "Panic: index out of bounds; please report it"),
        (raising(KeyError(EVIL)), 70, r"KeyError: 'a\x1b[2J"),
        (raising(BadPicture(f"{EVIL} is empty")), 1, f"error: {SHOWN} is empty"),
        (raising(BadChoice("no")), 2, "error: no"),
        (raising(OSError(28, "No space left on device", "x")), 1, "error: [Errno 28] No space left on device: 'x'"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_one_line_and_a_status(
    work: Callable[[], None], status: int, told: str, debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app(work), ["--debug"] if debug else []) == status
    out, err = capsys.readouterr()
    assert out == ""
    *before, last = err.splitlines()
    assert last.startswith("error: ")
    assert told in last
    assert bool(before) == debug
    assert not debug or before[0].startswith("Traceback")
    assert "\x1b" not in err


def test_stopped_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app(raising(KeyboardInterrupt())), []) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_status_that_a_command_asks_for() -> None:
    assert run(app(raising(typer.Exit(1))), []) == 1
    assert run(app(lambda: None), []) == 0


def test_debug_stands_anywhere_before_two_dashes() -> None:
    assert without_debug(["--debug", "explain", "a"]) == (["explain", "a"], True)
    assert without_debug(["explain", "a", "--debug"]) == (["explain", "a"], True)
    assert without_debug(["explain", "--", "--debug"]) == (["explain", "--", "--debug"], False)


@pytest.mark.parametrize("words", [[f"--{EVIL}"], ["\x1b[2J"], ["--words", "a", f"--{EVIL}=1"]])
def test_usage_errors_say_what_was_typed_plainly(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app(lambda: None), words) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\\x1b" in err


def test_a_command_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fovea", EVIL])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "No such command" in err


def test_warnings_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        warnings.simplefilter("always")
        warnings.warn(f"{EVIL} is old", stacklevel=1)

    before = warnings.showwarning
    assert run(app(work), []) == 0
    assert capsys.readouterr().err == f"warning: {SHOWN} is old\n"
    assert warnings.showwarning is before


def test_what_libraries_log_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = logging.Logger("library")  # as where nobody set up logging: pytest did for the root
    assert run(app(lambda: quiet.warning("%s is old", EVIL)), []) == 0
    assert capsys.readouterr().err == f"warning: {SHOWN} is old\n"


def test_what_fails_in_a_thread_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        thread = threading.Thread(target=raising(ValueError(EVIL)))
        thread.start()
        thread.join()

    before = threading.excepthook
    assert run(app(work), []) == 0
    err = capsys.readouterr().err
    assert err.startswith(r"error: ValueError: a\x1b[2J")
    assert err.count("\n") == 1
    assert threading.excepthook is before


def shown(*things: Any) -> str:
    console = Plain()
    console.file = io.StringIO()
    for thing in things:
        console.print(thing)
    return console.file.getvalue()


def test_what_is_printed_steers_nothing() -> None:
    assert shown(EVIL) == f"{SHOWN}\n"
    table = Table(EVIL)
    table.add_row(EVIL)
    text = shown(table)
    assert not any(c in text for c in "\x1b\x07\r\u202e\udcff")
    assert "[bold]" in text


def test_bars_steer_nothing() -> None:
    console = Plain()
    console.file, console._force_terminal = io.StringIO(), True
    with Progress(TextColumn("{task.description}", markup=False), console=console, auto_refresh=False) as progress:
        progress.add_task("x", total=None)
        Bar("x", live=progress).tell(EVIL)
        progress.refresh()
    assert SHOWN in console.file.getvalue()
    assert "\x1b]0;" not in console.file.getvalue()


def test_every_line_of_the_command_line_goes_through_plain_consoles() -> None:
    folder = Path(ending.__file__).parent
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert not [name for name, text in texts.items() if "typer.echo(" in text or "\n    print(" in text]
    assert [name for name, text in texts.items() if "Console(" in text] == []
    assert isinstance(warn, Plain)


@pytest.mark.parametrize("coding", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
def test_a_terminal_that_lacks_letters(coding: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / os.fsdecode("café\udcff.png")).write_text("no picture")
    environment = os.environ | {"PYTHONUTF8": "0"} | coding
    code = "from fovea.cli import main; main()"
    words = [b"explain", b"x.png", b"--method", "café…".encode() + b"\xff"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: no method 'caf")
    assert done.stderr.isascii()


def test_who_reads_no_further_is_not_told_of_it() -> None:
    code = (
        "import fovea.cli.ending as e, typer\n"
        "from fovea.cli.common import say\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def do():\n"
        "    for i in range(100000): say.print('line')\n"
        "raise SystemExit(e.run(app, []))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() not in (0, 70)
