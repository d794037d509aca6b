"""Files that are whole or not there, under names that do not clash."""

import errno
import fcntl
import itertools
import json
import math
import os
import re
import secrets
import stat
import sys
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fovea.basics.errors import FoveaError, within

LOCKED: set[int] = set()  # handles of locks, which a process that is forked, and may live longer, must not keep
os.register_at_fork(after_in_child=lambda: deque(map(os.close, LOCKED), maxlen=0))


@dataclass
class Names:
    """File names that do not clash; whoever asks again gets the same name."""

    taken: dict[str, str] = field(default_factory=dict)  # owners by name
    given: dict[str, str] = field(default_factory=dict)  # names by owner
    count: Counter[str] = field(default_factory=Counter)

    def take(self, wanted: str, owner: str) -> str:
        wanted = plain(wanted)
        name = self.given.get(owner, wanted)
        while self.taken.setdefault(name, owner) != owner:
            self.count[wanted] += 1
            name = f"{wanted}-{self.count[wanted] + 1}"
        self.given[owner] = name
        return name


def plain(name: str) -> str:
    """A name as a part of a file name: plain, not too long, and such as this system can write."""
    code = sys.getfilesystemencoding()
    return re.sub(r"[^\w-]+", "_", name).strip("_").encode(code, "ignore")[:80].decode(code, "ignore") or "_"


def finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def printable(text: str) -> str:
    """A name as it may be shown: nothing in it steers a terminal, breaks a line or turns the text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(word: str) -> str:
    """A word of a command with the last part alone of every path that tells about a machine: /a/b, ~/b and ../b."""
    return "".join(map(_last, re.split(r"([=,:]\s*)", word)))


def _last(piece: str) -> str:
    path = Path(piece)
    return path.name if path.is_absolute() or piece.startswith("~") or ".." in path.parts else piece


def left_out(name: str, reason: str) -> dict[str, str]:
    """A skipped picture as it is named on any machine: the file and its folder, which is often its class."""
    short = "/".join(Path(name).parts[-2:]) if Path(name).is_absolute() else name
    return {"name": short, "reason": reason.replace(name, short)}


def replaceable(path: Path) -> bool:
    """Whether a file may take this place: no folder, pipe or device is there, which /dev/stdout can stand for."""
    return (path.is_file() or not path.exists()) and path.parent.resolve() != Path("/dev")


@contextmanager
def whole(path: Path, sync: bool = False) -> Iterator[Path]:
    """Where to write what becomes `path` when the block ends well: a reader never meets half a file.

    The name beside it is new, so that two writers do not meet and no link that was laid there is followed; the suffix
    is the same, and the permissions are those of any new file. Folders above are made. `sync` waits for the disk."""
    if not replaceable(path):
        raise FileExistsError(errno.EEXIST, "it is no file that can be replaced", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
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


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[int]:
    """A handle of a folder, or of a file that is made where there is none, for one thread or process at a time: others
    wait, or are refused. Where a disk has no locks, it says so."""
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise FoveaError(f"{path} cannot be written: {error.strerror}; name another") from None
    LOCKED.add(handle)
    try:
        if not (stat.S_ISREG(os.fstat(handle).st_mode) or path.is_dir()):
            raise FoveaError(f"{path} is neither a file nor a folder; name another")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise FoveaError(f"another process is writing {path}: wait for it, or name another") from None
        except OSError as error:
            reason = f"{path} is on a disk without locks ({error.strerror})"
            warnings.warn(f"{reason}: let no two runs write into it at once", stacklevel=3)
        yield handle
    finally:
        LOCKED.discard(handle)
        os.close(handle)


def claimed(path: Path, owner: str) -> bool:
    """Whether a file that says whose a name is could be made, or says so already; a link there is not followed.

    It appears with what it says in it, so that no kill leaves a claim that is nobody's."""
    part = path.with_name(f".part-{secrets.token_hex(8)}")
    try:
        _says(part, owner)
        os.link(part, path, follow_symlinks=False)
        return True
    except FileExistsError:
        return _is_of(path, owner)
    except OSError:  # a disk without second names for a file
        try:
            _says(path, owner)
            return True
        except FileExistsError:
            return _is_of(path, owner)
    finally:
        part.unlink(missing_ok=True)


def _says(path: Path, owner: str) -> None:
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "wb") as file:
        file.write(owner.encode())


def _is_of(path: Path, owner: str) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(owner) + 1) == owner.encode()
    except OSError:
        return False


def taken(folder: Path) -> Path:
    """A new folder for whoever asks: this one, or the first that is not there of folder-2, folder-3, ….

    Of two that ask at the same moment each gets its own."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            place.mkdir()
        except FileExistsError:
            continue
        return place
    raise AssertionError


def contents(path: Path, most: int) -> bytes:
    """All of a file of at most so many bytes. A pipe or a device is not waited for."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    within(f"the size of {path} in bytes", found.st_size, 0, most)
    with open(path, "rb") as file:
        return file.read(found.st_size)


def write_json(path: Path, content: Any) -> None:
    with whole(path) as part, open(part, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)  # piece by piece: it may be long
        file.write("\n")


def write_text(path: Path, text: str) -> None:
    """UTF-8; what is no text in a file's name is written as \\udcNN, which JSON reads as Python has it."""
    with whole(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
