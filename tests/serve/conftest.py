"""A real service, in a process of its own, on a port that is free."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
LINE = re.compile(r"fovea is at (http://\S+)")


@dataclass
class Running:
    """A service that runs; its log is in a file."""

    url: str
    process: subprocess.Popen[str]
    log: Path
    printed: str = ""  # the address that it said, with its token

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def start(folder: Path, *options: str) -> Running:
    log = folder / "serve.log"
    words = [sys.executable, "-m", "fovea", "serve", "--port", "0", "--batch", "4", *options]  # it starts sooner
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    assert process.stdout is not None
    found = next((match for line in process.stdout if (match := LINE.search(line))), None)
    assert found is not None, log.read_text()
    return Running(found[1].partition("#")[0].rstrip("/"), process, log, found[1])


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Running]]:
    """Starts services with options; all are stopped at the end."""
    running = list[Running]()

    def make(*options: str) -> Running:
        running.append(start(tmp_path_factory.mktemp("serve"), *options))
        return running[-1]

    yield make
    for one in running:
        one.process.terminate()
    for one in running:
        try:
            one.process.wait(60)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()


@pytest.fixture(scope="session")
def service(started: Callable[..., Running]) -> str:
    """The address of one with all networks that come with fovea."""
    return started().url
