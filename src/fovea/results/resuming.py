"""A run that was stopped at any moment is gone on with: a journal in its folder, a line per picture whose files are
written, which is removed when the run ends."""

import glob
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from fovea import basics
from fovea.basics import FoveaError


@dataclass(frozen=True)
class Journal:
    """Held by the run that writes it, for as long as it lives, so that no two go on with the same."""

    path: Path
    handle: int
    lock: ExitStack

    @classmethod
    def held(cls, path: Path) -> Self | None:
        """Made where there is none; None where another run holds it, or what is there is no file of its own."""
        if path.is_symlink() or path.is_dir():
            return None
        lock = ExitStack()
        try:
            handle = lock.enter_context(basics.locked(path, wait=False))
            if os.path.samestat(os.fstat(handle), os.lstat(path)):  # else it was removed meanwhile: that run has ended
                return cls(path, handle, lock)
        except (FoveaError, FileNotFoundError):
            pass
        lock.close()
        return None

    def lines(self) -> Iterator[Any]:
        """What was added; a line that was cut off in writing is left out."""
        with open(self.path, "rb") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    continue

    def add(self, content: Any) -> None:
        """In one piece, on a line of its own whatever the one before looks like."""
        os.lseek(self.handle, 0, os.SEEK_END)
        os.write(self.handle, b"\n" + json.dumps(content).encode())

    def close(self, ended: bool) -> None:
        """It goes with a run that has ended well."""
        if ended:
            self.path.unlink(missing_ok=True)
        self.lock.close()


def name_of(asked: Any) -> str:
    """The journal of a way of asking."""
    return f".resume-{sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:20]}.jsonl"


def folders(folder: Path) -> list[Path]:
    """A folder and those beside it that runs took because it was there: folder-2, …"""
    beside = folder.parent.glob(f"{glob.escape(folder.name)}-*")
    return [folder, *sorted(place for place in beside if re.fullmatch(r"-\d+", place.name[len(folder.name) :]))]


def stamp_of(name: str) -> tuple[int, int] | None:
    """By which it is known whether a file has changed; None of what is no file."""
    try:
        facts = os.stat(name)
    except (OSError, ValueError):
        return None
    return facts.st_size, facts.st_mtime_ns
