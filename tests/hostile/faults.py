"""Disks and files that fail at the n-th call, n = 1, 2, 3 … until an operation passes without meeting the fault.

`python tests/hostile/fuzz.py 0 'fault index:EIO 99'` is one operation with one fault, at up to 99 of its calls.
"""

import builtins
import errno
import io
import itertools
import os
import resource
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from resource import RLIMIT_FSIZE, RLIMIT_NOFILE
from typing import Any, NamedTuple

import torch
from PIL import Image
from readers import (
    SMALL,
    STEP,
    held,
    index,
    made_picture,
    net,
    patches,
    patches_read,
    pixels,
    pth,
    said,
    search,
    still,
    weights_read,
)

import fovea
from fovea.basics import FoveaError
from fovea.data import open_data
from fovea.networks import hash_of
from fovea.results import read as read_results
from fovea.training.loop import train
from made_data import MAKERS

EVENTS = {
    "open", "os.rename", "os.mkdir", "os.remove", "os.listdir", "os.scandir", "os.truncate", "os.chmod",
    "sqlite3.connect",
}  # fmt: skip
ERRORS: dict[str, Callable[[str], BaseException]] = {
    "EIO": lambda path: OSError(errno.EIO, os.strerror(errno.EIO), path),
    "ENOSPC": lambda path: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path),
    "EMFILE": lambda path: OSError(errno.EMFILE, os.strerror(errno.EMFILE), path),
    "MemoryError": lambda path: MemoryError(),
}
SIZES = (0, 1, 100, 1000, 4096, 5000, 8192, 12_000, 16_384, 30_000, 60_000)  # of the largest file that may be written
HANDLES = 24  # that may be open besides those of the process, at most
FAULTS = (*ERRORS, "gone", "full", "handles")


class Operation(NamedTuple):
    """`lay` makes what is there before; `run` works, and gives what came out and what was skipped; `keeps` asserts
    that what was there before still is, and that every file under its real name is whole."""

    lay: Callable[[Path], object]
    run: Callable[[Path], tuple[Any, Any]]
    keeps: Callable[[Path], object]


class Fault:
    """What fails below a folder, from the n-th event on only that one."""

    def __init__(self) -> None:
        self.folder, self.kind, self.at, self.count, self.met = "", "", 0, 0, ""
        self.lock = threading.Lock()

    def watch(self, event: str, given: tuple[Any, ...]) -> None:
        if self.folder and event in EVENTS and given and isinstance(given[0], (str, bytes, os.PathLike)):
            self.event(event, os.fsdecode(given[0]), reading=event == "open" and given[1] in ("r", "rb", None))

    def event(self, event: str, path: str, reading: bool = False) -> None:
        if not self.folder or not path.startswith(self.folder):
            return
        with self.lock:
            self.count += 1
            hit = self.count == self.at
        if not hit:
            return
        self.met = f"{event} {Path(path).name}"
        if self.kind != "gone":
            raise ERRORS[self.kind](path)
        if reading:
            Path(path).unlink(missing_ok=True)


FAULT = Fault()


@cache  # for good, in this process
def _watched() -> None:
    sys.addaudithook(FAULT.watch)


class Failing(io.FileIO):
    """A file whose reads and writes may fail."""

    def readinto(self, buffer: Any) -> Any:
        FAULT.event("read", str(self.name))
        return super().readinto(buffer)

    def readall(self) -> Any:
        FAULT.event("read", str(self.name))
        return super().readall()

    def write(self, data: Any) -> Any:
        FAULT.event("write", str(self.name))
        return super().write(data)


def failing_open(real: Callable[..., Any]) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", buffering: int = -1, *text: Any, **how: Any) -> Any:
        inside = not isinstance(file, int) and FAULT.folder and os.fspath(file).startswith(FAULT.folder)
        if not inside or buffering == 0 or how.get("opener"):
            return real(file, mode, buffering, *text, **how)
        raw = Failing(os.fspath(file), mode.replace("b", "").replace("t", ""))
        kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        return kind(raw) if "b" in mode else io.TextIOWrapper(kind(raw), *text, **how)

    return opened


@contextmanager
def failing(folder: Path, kind: str, at: int) -> Iterator[None]:
    FAULT.count, FAULT.met, FAULT.kind, FAULT.at = 0, "", kind, at
    real, limits = builtins.open, {which: resource.getrlimit(which) for which in (RLIMIT_FSIZE, RLIMIT_NOFILE)}
    try:
        if kind == "full":
            resource.setrlimit(RLIMIT_FSIZE, (SIZES[at - 1], limits[RLIMIT_FSIZE][1]))
        elif kind == "handles":  # the list itself takes one
            most = max(map(int, os.listdir("/proc/self/fd"))) + at
            resource.setrlimit(RLIMIT_NOFILE, (most, limits[RLIMIT_NOFILE][1]))
        else:
            builtins.open = io.open = failing_open(real)
            FAULT.folder = str(folder)
        yield
    finally:
        FAULT.folder = ""
        builtins.open = io.open = real
        for which, limit in limits.items():
            resource.setrlimit(which, limit)


def tried(name: str, kind: str, most: int, top: Path, alarm: Callable[[], object]) -> tuple[int, list[str]]:
    """An operation with the fault at each of its calls, or at so many of them: how many were tried, what went wrong.
    `mixed` takes a fault of another kind at each."""
    _watched()
    operation, wrong = OPERATIONS[name], list[str]()
    folder, good = top / "work", top / "good"
    for path in (folder, good):
        shutil.rmtree(path, ignore_errors=True)
    folder.mkdir()
    operation.lay(folder)
    still(folder)
    shutil.copytree(folder, good)
    with failing(folder, "EIO", 0):
        clean = operation.run(folder)
    calls = {"full": len(SIZES), "handles": HANDLES}.get(kind, FAULT.count)
    points = sorted({round(at * calls / min(most, calls)) for at in range(1, min(most, calls) + 1)})
    for at, each in zip(points, itertools.cycle((*ERRORS, "gone") if kind == "mixed" else (kind,))):
        alarm()
        shutil.rmtree(folder)
        shutil.copytree(good, folder)
        words = _with_fault(operation, folder, good, each, at, clean)
        wrong += [f"{each} at {at} of {calls} ({FAULT.met}): {words}"] if words else []
    return len(points), wrong


def _with_fault(operation: Operation, folder: Path, good: Path, kind: str, at: int, clean: tuple[Any, Any]) -> str:
    try:
        with failing(folder, kind, at):
            done = operation.run(folder)
        if done != clean and not done[1]:
            return f"another result, and nothing skipped: {done}"
    except FoveaError as error:
        with suppress(AssertionError):
            said(error)
            error = None  # type: ignore[assignment]
        if error is not None:
            return f"no one line: {error!r}"
    except (OSError, MemoryError) as error:
        if isinstance(error, MemoryError) and kind != "MemoryError":
            return f"{error!r}"
    except BaseException:
        return traceback.format_exc(limit=-4)
    try:
        litter = [path.name for path in folder.rglob("*") if ".part" in path.name]
        assert not litter or "os.remove" in FAULT.met, f"left behind: {litter}"
        for path in good.rglob("*"):
            if kind == "gone" and path.is_file() and not (folder / path.relative_to(good)).exists():
                shutil.copy2(path, folder / path.relative_to(good))
        try:
            operation.keeps(folder)
        except FoveaError as reason:  # SQLite could not take back what it had begun: whoever writes next does
            if "writing was cut off" not in str(reason):
                raise
        again = operation.run(folder)
        assert again == clean, f"the next run gives {again}, not {clean}"
    except BaseException:
        return f"afterwards: {traceback.format_exc(limit=-4)}"
    return ""


def explain(folder: Path) -> tuple[Any, Any]:
    done = fovea.explain(net(), folder / "pictures", method="gradcam")
    done.save(folder / "out")
    FAULT.folder = ""  # it is over: what follows looks at what is there
    found = read_results(folder / "out")
    rows = sorted((Path(row["name"]).name, row["label"], row["probability"]) for row in found.results)
    return rows, [*done.skipped, *found.skipped]


def explained(folder: Path) -> None:
    (folder / "pictures").mkdir()
    for name in ("z.png", "pictures/a.png", "pictures/b.jpg"):
        made_picture(folder, name)
    fovea.explain(net(), folder / "z.png", method="gradcam").save(folder / "out")


def explained_keeps(folder: Path) -> None:
    rows = read_results(folder / "out").results
    assert any(row["name"].endswith("z.png") for row in rows), "an earlier result is lost"
    for path in (folder / "out").glob("[!.]*.png"):
        Image.open(path).load()


def add_picture(folder: Path) -> None:
    index(folder)
    Image.fromarray(pixels(shade=99)).save(folder / "warm/new.png")


def index_more(folder: Path) -> tuple[Any, Any]:
    done = fovea.index(folder / "w.safetensors", [folder / "warm", folder / "cold"], folder / "i.fovea", device="cpu")
    FAULT.folder = ""
    return search(folder), [skip for skip in done.skipped if "bad" not in skip[0]]


def index_keeps(folder: Path) -> None:
    assert {"warm/a.png", "cold/c.png"} <= set(fovea.open_index(folder / "i.fovea", device="cpu").names)


def search_saved(folder: Path) -> tuple[Any, Any]:
    done = fovea.open_index(folder / "i.fovea", device="cpu").search(folder / "warm/a.png", count=1)
    done.save(folder / "out")
    FAULT.folder = ""
    saved = read_results(folder / "out")
    rows = saved.results
    lost = [near["no_maps"] for row in rows for near in row["neighbors"] if near["no_maps"]]
    return [(row["name"], [near["name"] for near in row["neighbors"]]) for row in rows], [
        *done.skipped,
        *saved.skipped,
        *lost,
    ]


def cached(folder: Path) -> tuple[Any, Any]:
    return patches_read(folder)  # type: ignore[return-value]


def patches_keep(folder: Path) -> None:
    assert len(open_data(folder)) == 4


def trained(folder: Path) -> tuple[Any, Any]:
    done = train(STEP, folder / "run", device="cpu", resume=True)
    FAULT.folder = ""
    rows = (folder / "run/log.jsonl").read_text().splitlines()
    return (done.hash, done.score, len(rows), hash_of(fovea.load(done.weights).module.state_dict())), ()


def trained_keeps(folder: Path) -> None:
    for path in folder.glob("run/checkpoint.pt"):
        torch.load(path, weights_only=True)
    for path in folder.glob("run/*.safetensors"):
        fovea.load(path)


def loaded(folder: Path) -> None:
    net().save(folder / "w.safetensors")
    pth(folder)


OPERATIONS: dict[str, Operation] = {
    "explain": Operation(explained, explain, explained_keeps),
    "index": Operation(add_picture, index_more, index_keeps),
    "search": Operation(index, search_saved, index_keeps),
    "patches": Operation(patches, cached, patches_keep),
    "new patches": Operation(lambda f: (patches(f), (f / "p.sqlite").unlink()), cached, patches_keep),
    "train": Operation(lambda folder: None, trained, trained_keeps),
    "load": Operation(
        loaded, lambda f: ((weights_read(f), weights_read(f, "w.pth", options=SMALL)), ()), lambda f: None
    ),
    "pack": Operation(MAKERS["pack"], lambda f: _halves(held(f)), lambda f: None),
}


def _halves(given: Any) -> tuple[Any, Any]:
    """What could not be read is None."""
    return given, [name for name, shades in given[2] if shades is None]
