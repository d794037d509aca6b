"""Files that are whole or not there, under names that do not clash."""

import json
import math
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Names:
    """File names that do not clash."""

    taken: dict[str, str] = field(default_factory=dict)

    def take(self, wanted: str, owner: str) -> str:
        wanted = plain(wanted)
        name, number = wanted, 2
        while self.taken.get(name, owner) != owner:
            name, number = f"{wanted}-{number}", number + 1
        self.taken[name] = owner
        return name


def plain(name: str) -> str:
    """A name as a part of a file name: plain and not too long."""
    return re.sub(r"[^\w-]+", "_", name).strip("_").encode()[:80].decode(errors="ignore") or "_"


def finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def printable(text: str) -> str:
    """A name as it may be shown: nothing in it steers a terminal, breaks a line or turns the text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def whole(path: Path, sync: bool = False) -> Iterator[Path]:
    """Where to write what becomes `path` when the block ends well: a reader never meets half a file.

    The name beside it is new, so that two writers do not meet and no link that was laid there is followed; the suffix
    is the same, and the permissions are those of any new file. `sync` waits for the disk.
    """
    part = path.with_name(f".part-{secrets.token_hex(8)}{path.suffix}")
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    mode = os.fstat(handle).st_mode
    os.close(handle)
    try:
        yield part
        part.chmod(mode)  # whoever wrote it may have made a file of its own
        if sync:
            with open(part, "rb") as file:
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """UTF-8; what is no text in a file's name is written as \\udcNN, which JSON reads as Python has it."""
    with whole(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
