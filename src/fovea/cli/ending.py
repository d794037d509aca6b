"""How a command ends, whatever happens: one line on stderr and an exit status; with --debug a traceback, too."""

import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from fovea.basics import BadPicture, FoveaError, printable
from fovea.cli.common import warn

DEBUG = "--debug"
STATUS = "0: something was done; 1: nothing could be done; 2: wrong usage; 70: an error inside fovea; 130, 143: stopped"
UsageError: Any = typer.BadParameter.__mro__[2]  # ClickException, of the click that this typer brings or finds


def without_debug(words: Sequence[str]) -> tuple[list[str], bool]:
    """--debug may stand anywhere before `--`."""
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:end] if word != DEBUG]
    return [*options, *words[end:]], len(options) < end


def run(app: Callable[..., Any], words: Sequence[str]) -> int:
    """The exit status of a command."""
    words, debug = without_debug(words)
    with _told_plainly(debug):
        try:
            status = app(words, standalone_mode=False)
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            status = 130
        except BrokenPipeError:  # whoever read our lines has enough of them
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 128 + signal.SIGPIPE
        except SystemExit:
            raise
        except BaseException as error:  # libraries in Rust panic with what is no Exception
            return told(error, debug)
    if status == 130:
        warn.print("stopped")
    return status if isinstance(status, int) else 0


def told(error: BaseException, debug: bool) -> int:
    """One line about what went wrong; its exit status comes back."""
    if debug:
        for line in "".join(traceback.format_exception(error)).splitlines():
            warn.print(line)
    if isinstance(error, UsageError):
        from typer.rich_utils import rich_format_error  # which imports as much as all else here

        error.message = printable(error.message)
        rich_format_error(error)
        return int(error.exit_code)
    expected = isinstance(error, (FoveaError, OSError))  # of these: a full disk, a folder that may not be written to
    words = str(error)
    if not expected:
        first = words.strip().partition("\n")[0][:500]
        words = f"{type(error).__name__}: {first}" if first else type(error).__name__
        memory = isinstance(error, MemoryError) or "memory" in first
        remedy = "smaller pictures, or fewer at a time (--batch), need less memory" if memory else "please report it"
        words += f"; {remedy}; run it again with {DEBUG} to see where it happened"
    warn.print(f"error: {words}")
    return 70 if not expected else 1 if isinstance(error, (BadPicture, OSError)) else 2


class _Lines(logging.Handler):
    """What libraries log where nobody asked for it."""

    def emit(self, record: logging.LogRecord) -> None:
        warn.print(f"{record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def _told_plainly(debug: bool) -> Iterator[None]:
    """Warnings, logs and what fails in threads are lines, too; a terminal that lacks a letter gets its number."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def failed(what: Any) -> None:
        told(what.exc_value or what.exc_type(), debug)

    before = threading.excepthook, sys.unraisablehook, logging.lastResort
    threading.excepthook = sys.unraisablehook = failed
    logging.lastResort = _Lines(logging.WARNING)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: warn.print(f"warning: {message}")
        try:
            yield
        finally:
            threading.excepthook, sys.unraisablehook, logging.lastResort = before
