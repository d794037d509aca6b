"""Two thousand requests that nobody should send: each is refused in words, and the service is as it was before."""

import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fovea.basics import BadPicture
from fovea.pictures import read_bytes
from serve.conftest import Running
from serve.hostile_requests import FAMILIES, PATHS, fields, pictures, slow
from serve.sending import (
    Answer,
    Hostile,
    address,
    asked,
    connect,
    picture,
    posted,
    request,
    said,
    start_short,
    uploaded,
)

SEED, COUNT = 1, 2000
GROWTH = 400 << 20  # bytes by which the process may have grown: what its allocators keep for later
POOL = min(32, (os.cpu_count() or 1) + 4)  # threads of Python's own pool, which starts them when it needs them
WORDS = 3000  # letters of an answer, at most
SAFE = ("content-security-policy", "x-content-type-options", "referrer-policy", "cross-origin-resource-policy")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = start_short(tmp_path_factory.mktemp("hostile"))
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def is_picture(data: bytes) -> bool:
    """By the reader that the service uses, too: what was changed may still be a picture."""
    try:
        read_bytes(data, "a", 100_000_000)
    except BadPicture:
        return False
    return True


def state(running: Running) -> dict[str, int]:
    """Of the process: bytes, threads, handles."""
    process = Path(f"/proc/{running.process.pid}")
    told = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    handles = len(os.listdir(process / "fd"))
    return {"bytes": int(told["VmRSS"].split()[0]) << 10, "threads": int(told["Threads"]), "handles": handles}


def good(running: Running) -> bytes:
    """A map, to the bit."""
    raw = uploaded("explain", picture("png", (160, 120)), "a.png", [("output", "npy")])
    found = asked(running.url, raw)
    assert found.status == 200, found
    return found.body


def warm(running: Running) -> None:
    """All threads that a service starts when it is busy are there, and all that it imports."""
    raws = [posted("explain", {"picture_id": "example:rocket"}), uploaded("predict", picture("tiff")),
            uploaded("localize", picture("jpeg")), posted("look", {"picture_id": "example:rocket", "forwards": 40}),
            posted("sanity", {"picture_id": "example:rocket"}), posted("explain", {"nothing": 1})]  # fmt: skip
    with ThreadPoolExecutor(32) as pool:
        for answer in pool.map(lambda raw: asked(running.url, raw), raws * 12):
            assert answer.status in (200, 422), answer


def files(running: Running) -> set[str]:
    """Where the service could write without being told to."""
    folder = running.log.parent
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path != running.log}


def wrong_with(hostile: Hostile, answers: list[Answer]) -> str:
    """Nothing, where it was answered as it should be."""
    if hostile.answers is not None and len(answers) != hostile.answers:
        return f"{len(answers)} answers"
    for answer in answers:
        if not (400 <= answer.status < 500 or answer.status == 503):
            return f"status {answer.status}"
        if hostile.statuses and answer.status not in hostile.statuses:
            return f"status {answer.status}, not one of {hostile.statuses}: {answer.body[:200]!r}"
        if missing := [name for name in SAFE if name not in answer.headers]:
            return f"no {missing}"
        if "server" in answer.headers:
            return "it says what it is"
        if hostile.head:
            continue
        if answer.headers["content-type"] != "application/json":
            return f"{answer.headers['content-type']}"
        words = answer.detail
        if not words or not words.isprintable() or len(words) > WORDS:
            return f"words: {words[:300]!r}"
        if any(word in words for word in (*hostile.never, "Traceback", "/fovea-", "site-packages")):
            return f"it tells too much: {words[:300]!r}"
    return ""


def requests(api: dict[str, Any]) -> list[Hostile]:
    random = Random(SEED)
    made = [hostile for family in FAMILIES for hostile in family(random)]
    made += [*pictures(random, is_picture), *fields(random, api)]
    random.shuffle(made)
    return made


def test_two_thousand_hostile_requests(running: Running) -> None:
    warm(running)
    api = json.loads(asked(running.url, request("GET", "/openapi.json")).body)
    made, late = requests(api), list(slow(Random(SEED)))
    assert len({hostile.parts for hostile in made}) > COUNT
    before, map_before, files_before = state(running), good(running), files(running)
    wrong, counts, lock = list[tuple[str, str, bytes]](), Counter[str](), threading.Lock()

    def tell(hostile: Hostile) -> None:
        try:
            answers = said(running.url, hostile)
            reason = wrong_with(hostile, answers)
        except Exception as error:
            answers, reason = [], repr(error)
        with lock:
            counts.update(str(answer.status) for answer in answers or [Answer(0, {}, b"")])
            if reason:
                wrong.append((hostile.family, reason, b"".join(hostile.parts)[:300]))

    start = time.monotonic()
    with ThreadPoolExecutor(len(late)) as patient, ThreadPoolExecutor(12) as pool:
        waiting = [patient.submit(tell, hostile) for hostile in late]
        for done in [*(pool.submit(tell, hostile) for hostile in made), *waiting]:
            done.result()
    print(f"\n{len(made) + len(late)} requests, {time.monotonic() - start:.0f} s: {dict(sorted(counts.items()))}")
    assert not wrong, f"{len(wrong)} of {len(made)}: " + "\n".join(map(repr, wrong[:40]))
    assert running.process.poll() is None

    for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
        assert json.loads(asked(running.url, request("GET", path)).body) == {"status": status}
    assert good(running) == map_before
    assert files(running) == files_before
    _settled(running, before)
    _log_is_clean(running)


def _settled(running: Running, before: dict[str, int]) -> None:
    """Once the last slow ones are let go of."""
    after, until = state(running), time.monotonic() + 60
    while time.monotonic() < until and after["handles"] > before["handles"]:
        time.sleep(0.2)
        after = state(running)
    print(f"before {before}, after {after}")
    assert after["handles"] <= before["handles"]
    assert after["threads"] <= before["threads"] + POOL
    assert after["bytes"] <= before["bytes"] + GROWTH


def _log_is_clean(running: Running) -> None:
    text = running.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) > COUNT / 2
    assert [line for line in lines if line["event"] == "fault" or line["level"] == "error"] == []
    known = {"time", "level", "event", "route", "method", "status", "ms", "host", "port", "logger", "error", "at"}
    assert {key for line in lines for key in line} <= known
    for word in ("passwd", "a.png", "b.jpg", "evil", "iVBOR", "example:", "coffee", *PATHS[22:30]):
        assert word not in text, word


def test_a_flood_of_silent_connections_keeps_nobody_out(running: Running) -> None:
    """Those that have said nothing for longest are let go of."""
    before = state(running)
    silent = [connect(running.url) for _ in range(600)]
    try:
        assert asked(running.url, request("GET", "/healthz")).status == 200
        assert state(running)["handles"] < before["handles"] + 600
    finally:
        for connection in silent:
            connection.close()
    _settled(running, before | {"bytes": before["bytes"] + GROWTH})


def test_who_does_not_take_answers_is_cut(running: Running) -> None:
    """Nor does what cannot be sent hold up anybody else."""
    before = state(running)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address(running.url))
        connection.sendall(posted("explain", {"picture_id": "example:coffee", "output": "html"}) * 20)
        assert asked(running.url, request("GET", "/healthz")).status == 200
        _settled(running, before)
