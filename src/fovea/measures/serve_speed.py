"""What a service costs beside the network that it serves: throughput, waiting and memory under load."""

import http.client
import re
import resource
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import torch

import fovea
from fovea.basics import BadChoice, BadPicture, FoveaError
from fovea.measures import Figures, Run, measure
from fovea.measures.folder_speed import made
from fovea.measures.timing import now, seconds
from fovea.networks import Network, as_found, groups, input_of
from fovea.pictures import Picture, as_bad_picture, expand, read_bytes

File = tuple[Picture, bytes]
READY = re.compile(r"fovea is at (http://\S+?)/")
PAGE = resource.getpagesize()
WARM_UP = 100  # requests that are not counted


@measure(
    "bench serve",
    title="Throughput of a service",
    about="Throughput, waiting time and memory of a service that gets several pictures at a time. It is compared with "
    "the bare forward passes of the same pictures in batches, and with one batch in process.",
    example="--net efficientnet_lite0 --count 200",
    data="none",
    any_size=True,
    usual={"device": "cpu"},
)
def bench_serve(
    run: Run,
    *,
    data: str | None = None,
    count: int = 500,
    batch: int = 16,
    rounds: int = 5,
    engine: str = "local",
    replicas: str = "1-4",
) -> Figures:
    """`count` requests for a heatmap, `batch` at once, each with a JPEG. `x_bare` is the throughput as a share of the
    bare forwards'; `x_batch` is how long `batch` single requests at once take, in the time of one batch in process."""
    network, source, name = run.network.fitted(), data or run.given.data, run.net
    if not isinstance(name, str):
        raise BadChoice("a service loads its networks by name: name one, or a weights file")
    words = ["--net", name, "--device", run.device, "--engine", engine]
    words += ["--replicas", replicas] if engine == "ray" else []
    with tempfile.TemporaryDirectory() as place, _service(words, Path(place, "log")) as served:
        known, skipped = _readable(expand(source) if source else list(made(Path(place))))
        files = list(islice(cycle(known), count))
        bodies = [_body(data) for _, data in files]
        run.tell("warming up")
        Load(served, bodies[:WARM_UP], batch).run()
        before, bare = served.memory(), _bare(network, files[: 8 * batch], batch, rounds)
        run.tell(f"{count:,} requests, {batch} at once")
        load = Load(served, bodies, batch)
        took = load.run()
        after, bare = served.memory(), median([bare, _bare(network, files[: 8 * batch], batch, rounds)])
        ratios = _at_once(served, network, files[:batch], bodies[:batch], rounds)
    waits = sorted(load.waits)
    row = {
        "net": network.name,
        "requests": count,
        "at_once": batch,
        "failed": len(load.failed),
        "pictures_per_s": round(count / took, 2),
        "bare_per_s": round(1 / bare, 2),
        "x_bare": round(count * bare / took, 3),
        "p50_ms": round(1000 * waits[len(waits) // 2], 1),
        "p95_ms": round(1000 * waits[int(0.95 * len(waits))], 1),
        "x_batch": round(median(ratios), 3),
        "memory_mb": round(before / 1e6, 1),
        "memory_growth": round(after / before - 1, 4),
    }
    settings = {
        "pictures": f"{len(known)} files, over and over",
        "input": input_of(network),
        "rounds": rounds,
        "engine": f"ray, {replicas} replicas" if engine == "ray" else engine,
        "threads": torch.get_num_threads(),
        "device": network.device.type,
        "torch": torch.__version__,
        "x_bare": "throughput of the service, decoding included and the sender on the same machine, as a share of the "
        "network's bare forwards of decoded pictures in batches",
        "x_batch": "single requests at once in the time of one batch of the same files in process",
        "memory_growth": f"of the service, from {WARM_UP} requests on",
    }
    notes = [f"failed: {words}" for words in sorted(set(load.failed))[:3]]
    return Figures("bench serve", settings, [row], skipped, notes=notes)


def _readable(files: Sequence[Path]) -> tuple[list[File], list[tuple[str, str]]]:
    """What can be sent, and what cannot be read."""
    known, skipped = list[File](), list[tuple[str, str]]()
    for path in files:
        try:
            with as_bad_picture(str(path)):
                data = path.read_bytes()
            picture = Picture(str(path), partial(read_bytes, data, str(path)))
            picture.read()
            known.append((picture, data))
        except BadPicture as reason:
            skipped.append((str(path), str(reason)))
    if not known:
        raise BadPicture(f"no picture could be read: {skipped[0][1]}")
    return known, skipped


@dataclass(frozen=True)
class Served:
    """A service in a process of its own."""

    address: str
    process: "subprocess.Popen[str]"

    def memory(self) -> int:
        """Bytes that the process holds, and those that it started."""
        return PAGE * _pages(self.process.pid)


def _pages(pid: int) -> int:
    place = Path(f"/proc/{pid}")
    try:
        own = int((place / "statm").read_text().split()[1])
        children = [int(child) for task in place.glob("task/*/children") for child in task.read_text().split()]
    except OSError:  # it has ended meanwhile
        return 0
    return own + sum(map(_pages, children))


@contextmanager
def _service(options: Sequence[str], log: Path) -> Iterator[Served]:
    words = [sys.executable, "-m", "fovea", "serve", "--port", "0", *options]
    with log.open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        ready = next((match for line in process.stdout if (match := READY.search(line))), None)
        if ready is None:
            raise FoveaError(f"the service did not start: {log.read_text().strip()[-300:]}")
        yield Served(ready[1], process)
    finally:
        process.terminate()
        process.wait()


def _body(data: bytes) -> tuple[bytes, str]:
    """A form with one file, and its type."""
    edge = secrets.token_hex(16)
    head = f'--{edge}\r\nContent-Disposition: form-data; name="picture"; filename="picture.jpg"\r\n\r\n'
    return head.encode() + data + f"\r\n--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}"


@dataclass
class Load:
    """Requests, so many at once, each thread with a connection of its own."""

    served: Served
    bodies: Sequence[tuple[bytes, str]]
    at_once: int
    waits: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def run(self) -> float:
        """Seconds for all of them."""
        left, start = iter(self.bodies), time.perf_counter()
        threads = [threading.Thread(target=self._send, args=(left,)) for _ in range(self.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    def _send(self, left: Iterator[tuple[bytes, str]]) -> None:
        connection = http.client.HTTPConnection(urlsplit(self.served.address).netloc, timeout=120)
        for body, kind in left:  # a list's iterator gives each item once, whoever asks
            start = time.perf_counter()
            try:
                connection.request("POST", "/v1/explain", body, {"Content-Type": kind})
                answer = connection.getresponse()
                words = answer.read()
                if answer.status != 200:
                    self.failed.append(f"{answer.status} {words[:200].decode(errors='replace')}")
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                connection.close()
            self.waits.append(time.perf_counter() - start)
        connection.close()


def _bare(network: Network, files: Sequence[File], batch: int, rounds: int) -> float:
    """Seconds for one picture of bare forwards in batches, the pictures prepared before."""
    tensors = [
        group.batch for group in groups(network, [picture for picture, _ in files], batch) if group.batch is not None
    ]

    def forwards() -> None:
        with torch.no_grad():
            for tensor in tensors:
                network.module(tensor)
        now(network.device)

    with as_found(network):
        forwards()
        return seconds(forwards, network.device, rounds) / sum(map(len, tensors))


def _at_once(
    served: Served, network: Network, files: Sequence[File], bodies: Sequence[tuple[bytes, str]], rounds: int
) -> list[float]:
    """Single requests at once, in the time of one batch in process, by turns."""
    ratios, given = list[float](), [picture for picture, _ in files]
    fovea.explain(network, given, batch=len(given))
    for _ in range(rounds):
        single = Load(served, bodies, len(bodies)).run()
        start = now(network.device)
        fovea.explain(network, given, batch=len(given))
        ratios.append(single / (now(network.device) - start))
    return ratios
