"""Runs changed files through every reader, many to a process; a process that is gone is a finding, too.

By hand: `python tests/hostile/fuzz.py 100` for 100 files of each reader; `fuzz.py 0 'weights:17'` for one again.
"""

import contextlib
import faulthandler
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from readers import Reader

SECONDS, MEGABYTES = 30, 1500  # of the processor, for a file; of memory, all of the process included
HANGS = 300  # seconds by the clock, however busy the machine is
ROOM = 3 * 2**30  # of address space, beyond what the process has before the first file
FORBIDDEN = (
    "socket.connect",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "urllib.Request",
)


def main(cases: Iterable[str], top: Path) -> None:
    """In a process of its own: one line of JSON before each case, and one after it."""
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    import torch
    from mutators import BAIT
    from readers import READERS, said, still
    from worst import WORST

    from fovea.basics import FoveaError

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    (top / BAIT).write_bytes(b"bait")
    out, met = os.fdopen(os.dup(1), "w"), list[str]()
    os.dup2(2, 1)  # what a reader prints is not a verdict
    _lay_ghostscript(top)

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and given[0] == "git":  # which commit it is, for cards
            return
        if event.startswith(FORBIDDEN) or (event == "open" and isinstance(given[0], str) and BAIT in given[0]):
            met.append(f"{event} {given[0]!r}")

    goods: dict[str, tuple[dict[str, bytes], Any]] = {}
    sys.addaudithook(watch)
    for case in cases:
        name, number = case.rsplit(":", 1)
        if name.startswith("fault "):
            _faulted(case, name.removeprefix("fault "), *number.split(), top, out)
            continue
        reader, folder = READERS[name], top / name.replace(" ", "_")
        if name not in goods:
            folder.mkdir()
            reader.make(folder)
            still(folder)
            files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
            goods[name] = files, reader.read(folder)
        files, good = goods[name]
        how, fits = _laid(folder, files, reader, number, Random(case))
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") * 2**10 + ROOM, resource.RLIM_INFINITY))
        print(json.dumps({"case": case, "how": how}), file=out, flush=True)
        met.clear()
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        start, verdict = time.process_time(), ""
        _alarm()
        try:
            result = reader.read(folder)
            if reader.exact and not fits and result != good:
                verdict = "a wrong result was accepted"
            answer = "read"
        except FoveaError as error:
            answer = "refused"
            try:
                said(error)
            except AssertionError as wrong:
                verdict = str(wrong)
        except BaseException:
            answer, verdict = "", traceback.format_exc(limit=-4)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        peak = _status("VmHWM") // 2**10
        most = MEGABYTES if number.isdecimal() else WORST[number].megabytes
        verdict = verdict or (f"{peak} MB" if peak > most else "") or (f"opened {met}" if met else "")
        row = {"answer": answer, "verdict": verdict, "peak": peak, "seconds": round(time.process_time() - start, 2)}
        print(json.dumps(row), file=out, flush=True)
        if peak > MEGABYTES:
            return  # what was taken may stay: the next case begins in a new process


def _alarm() -> None:
    """The process ends, with a traceback, where the next file takes too long."""
    faulthandler.register(signal.SIGXCPU, chain=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    faulthandler.dump_traceback_later(HANGS, exit=True)


def _faulted(case: str, operation: str, kind: str, most: str, top: Path, out: Any) -> None:
    from faults import tried

    print(json.dumps({"case": case, "how": kind}), file=out, flush=True)
    start = time.process_time()
    count, wrong = tried(operation, kind, int(most), top, _alarm)
    row = {"answer": "read", "verdict": "\n".join(wrong), "count": count, "seconds": time.process_time() - start}
    print(json.dumps(row), file=out, flush=True)


def _laid(folder: Path, files: dict[str, bytes], reader: "Reader", number: str, random: Random) -> tuple[str, bool]:
    """The good files with one of them changed: what was done, and whether its checksums fit."""
    from mutators import mutated, renamed
    from readers import still
    from worst import WORST

    shutil.rmtree(folder)
    files = dict(files)
    name = random.choice([name for name in files if Path(name).match(reader.change)])
    how, fits = "", True
    if reader.names:
        how = os.fsdecode(renamed(random))
        files[str(Path(name).with_name(how))], how = files.pop(name), ascii(how)
    elif number.isdecimal():
        how, files[name], fits = mutated(files[name], name, random)
    for each, data in files.items():
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_bytes(data)
    if not number.isdecimal():
        how = number
        WORST[number].make(folder)
    still(folder)
    return f"{name}: {how}", fits


def _lay_ghostscript(top: Path) -> None:
    """A program that Pillow would start, so that a reader that lets it do so is noticed where there is none."""
    (top / "bin").mkdir()
    (top / "bin/gs").write_text("#!/bin/sh\nexit 0\n")
    (top / "bin/gs").chmod(0o755)
    os.environ["PATH"] = f"{top / 'bin'}:{os.environ['PATH']}"


def _status(key: str) -> int:
    """In kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def fuzzed(cases: list[str], keep: Path | None = None) -> list[dict[str, Any]]:
    """A row per case; `verdict` is empty where all is well. The folders of the others are kept where asked."""
    rows: list[dict[str, Any]] = []
    while len(rows) < len(cases):
        with tempfile.TemporaryDirectory() as top, tempfile.TemporaryFile("w+") as errors:
            (Path(top) / "cases").write_text("\n".join(cases[len(rows) :]))
            worker = subprocess.Popen(
                [sys.executable, __file__, "--worker", top], stdout=subprocess.PIPE, stderr=errors, text=True
            )
            assert worker.stdout
            begun: dict[str, Any] = {}
            for line in worker.stdout:
                row = json.loads(line)
                begun = begun | row if "verdict" in row else row
                if "verdict" in row:
                    rows.append(begun)
                    begun = {} if not begun["verdict"] else _kept(begun, Path(top), keep)
            if worker.wait() or begun:
                errors.seek(0)
                words = errors.read()[-3000:]
                if not begun:
                    raise RuntimeError(f"the worker ended between two cases ({worker.returncode}): {words}")
                rows.append(begun | {"answer": "", "verdict": f"the process ended ({worker.returncode}): {words}"})
                _kept(begun, Path(top), keep)
    return rows


def _kept(row: dict[str, Any], top: Path, keep: Path | None) -> dict[str, Any]:
    if keep is not None:  # as it is once the reader has been there; the seed makes it anew
        folder = row["case"].rsplit(":", 1)[0].replace(" ", "_")
        shutil.copytree(top / folder, keep / row["case"].replace(" ", "_"), dirs_exist_ok=True)
    return {}


def told(rows: list[dict[str, Any]]) -> str:
    """The count by reader, and every finding."""
    by_reader: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_reader.setdefault(row["case"].rsplit(":", 1)[0], []).append(row)
    lines = [f"{'reader':32} files refused  read wrong   most MB   most s"]
    for name, own in by_reader.items():
        calls = sum(row.get("count", 1) for row in own)
        count = {word: sum(row["answer"] == word for row in own) for word in ("refused", "read")}
        wrong = sum(bool(row["verdict"]) for row in own)
        peak, seconds = (max(row.get(key, 0) for row in own) for key in ("peak", "seconds"))
        lines.append(f"{name:32} {calls:5} {count['refused']:7} {count['read']:5} {wrong:5} {peak:9} {seconds:8.1f}")
    lines.append(f"{sum(row.get('count', 1) for row in rows):,} cases over {len(by_reader)} readers and operations")
    lines += [f"\n{row['case']} ({row['how']}): {row['verdict']}" for row in rows if row["verdict"]]
    return "\n".join(lines)


def asked(count: int, start: int = 0) -> list[str]:
    """So many cases of each reader."""
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    from readers import READERS

    return [f"{name}:{number}" for name in READERS for number in range(start, start + count)]


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        with contextlib.suppress(BrokenPipeError):
            main((Path(sys.argv[2]) / "cases").read_text().split("\n"), Path(sys.argv[2]))
    else:
        print(told(fuzzed(sys.argv[2:] or asked(int(sys.argv[1])))))
