"""A service that is told to stop loses nothing that it was asked.

A request is accepted when its last byte was sent before the signal, however far it had come by then: computed, waiting,
in a socket that was not read yet, or in the system's queue of connections that nobody had taken up. One whose first
bytes were sent is answered too, if the rest comes. Who has sent nothing is let go of, and nobody new is let in."""

import json
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serve.conftest import Running
from serve.sending import Answer, Reader, address, asked, connect, picture, posted, request, start_short, uploaded

pytestmark = pytest.mark.security
CLIENTS = 16
WAIT = 120.0  # seconds, at most, on a busy machine
NET = ("--net", "efficientnet_lite0")
SIGNALS = pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
Started = Callable[..., Running]


def ended(running: Running) -> int:
    return running.process.wait(WAIT)


def until(true: Callable[[], bool]) -> None:
    last = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < last
        time.sleep(0.01)


def is_refused(running: Running) -> bool:
    """Nobody listens any more."""
    try:
        socket.create_connection(address(running.url), 5).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def events(running: Running) -> list[str]:
    """Of the log; before it, on a slow machine, the command line says that it is starting."""
    lines = running.log.read_text().splitlines()
    return [json.loads(line)["event"] for line in lines if line.startswith("{")]


class Asker(threading.Thread):
    """Asks again and again over one connection, and notes each request that was sent whole before the signal."""

    def __init__(self, running: Running, raw: bytes, signaled: threading.Event) -> None:
        super().__init__(daemon=True)
        self.running, self.raw, self.signaled = running, raw, signaled
        self.answers, self.lost = list[Answer](), list[str]()

    def run(self) -> None:
        while not self.signaled.is_set():
            try:
                with connect(self.running.url) as connection:
                    self.ask(connection, Reader(connection))
            except OSError:
                return

    def ask(self, connection: socket.socket, reader: Reader) -> None:
        """Until it is closed."""
        while True:
            try:
                connection.sendall(self.raw)
            except ConnectionError:
                return
            accepted = not self.signaled.is_set()
            try:
                answer = reader.answer()
            except Exception as error:
                self.lost.append(repr(error))
                return
            if answer is None:
                if accepted:
                    self.lost.append("closed")
                return
            self.answers.append(answer)
            if answer.headers.get("connection") == "close":
                return


@SIGNALS
def test_what_was_accepted_is_answered_under_load(started: Started, sign: signal.Signals) -> None:
    running, signaled = started(*NET), threading.Event()
    raws = [uploaded("explain", picture("jpeg", (300, 200))), posted("explain", {"picture_id": "example:coffee"}),
            posted("localize", {"picture_id": "example:cat"}), uploaded("predict", picture("png", (900, 700))),
            ]  # fmt: skip
    askers = [Asker(running, raws[number % len(raws)], signaled) for number in range(CLIENTS)]
    for asker in askers:
        asker.start()
    until(lambda: all(asker.answers for asker in askers))
    signaled.set()  # what is sent from here on is not promised an answer
    running.process.send_signal(sign)
    until(lambda: is_refused(running))
    for asker in askers:
        asker.join(WAIT)
        assert not asker.is_alive()
        assert not asker.lost
        assert {answer.status for answer in asker.answers} == {200}
    assert ended(running) == 0
    assert events(running)[-1] == "stopped"
    assert not {"fault", "refused"} & set(events(running))


def test_what_nobody_had_read_yet_is_answered(started: Started) -> None:
    """The process is held while requests come: they are in the system's queue when it goes on, with the signal."""
    running = started(*NET)
    raw = uploaded("predict", picture("jpeg", (300, 200)))
    kept = connect(running.url)  # an older connection, idle, whose next request nobody has read either
    kept.sendall(raw)
    reader = Reader(kept)
    first = reader.answer()
    assert first is not None
    assert first.status == 200
    running.process.send_signal(signal.SIGSTOP)
    connections = [connect(running.url) for _ in range(CLIENTS)]
    for connection in (*connections, kept):
        connection.sendall(raw)
    silent = connect(running.url)
    running.process.send_signal(signal.SIGTERM)
    running.process.send_signal(signal.SIGCONT)
    answers = [Reader(connection).answer() for connection in connections] + [reader.answer()]
    assert [answer is not None and answer.status for answer in answers] == [200] * (CLIENTS + 1)
    assert Reader(silent).answer() is None
    assert ended(running) == 0
    for connection in (*connections, kept, silent):
        connection.close()


def test_what_is_still_coming_is_answered(started: Started) -> None:
    running = started(*NET)
    raw = uploaded("predict", picture("png", (500, 400)))
    places = (
        20,
        raw.index(b"\r\n\r\n") + 4,
        len(raw) // 2,
        len(raw) - 1,
    )  # in the head, at its end, in the body, at last
    connections = [connect(running.url) for _ in places]
    for connection, place in zip(connections, places, strict=True):
        connection.sendall(raw[:place])
    idle = connect(running.url)
    assert asked(running.url, request("GET", "/readyz")).status == 200
    running.process.send_signal(signal.SIGTERM)
    until(lambda: is_refused(running))
    assert Reader(idle).answer() is None  # who waits with nothing said is not waited for
    for connection, place in zip(connections, places, strict=True):
        connection.sendall(raw[place:])
        answer = Reader(connection).answer()
        assert answer is not None
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        connection.close()
    idle.close()
    assert ended(running) == 0


def test_a_slow_look_is_waited_for(started: Started) -> None:
    running = started(*NET)
    with ThreadPoolExecutor(1) as pool:
        look = pool.submit(asked, running.url, posted("look", {"picture_id": "example:cat", "forwards": 250}))
        until(lambda: b"fovea_requests_at_work 1.0" in asked(running.url, request("GET", "/metrics")).body)
        running.process.send_signal(signal.SIGTERM)
        until(lambda: is_refused(running))
        assert running.process.poll() is None
        answer = look.result(WAIT)
    assert answer.status == 200
    assert json.loads(answer.body)["results"][0]["label"]
    assert ended(running) == 0
    assert events(running)[-1] == "stopped"


def test_it_says_that_it_stops(tmp_path: Path) -> None:
    """On a connection that it still listens to, since a request is on it."""
    running = start_short(tmp_path)
    raw = posted("predict", {"picture_id": "example:cat"})
    with connect(running.url) as connection:
        connection.sendall(raw[:-1])
        assert asked(running.url, request("GET", "/readyz")).status == 200
        running.process.send_signal(signal.SIGTERM)
        until(lambda: is_refused(running))
        connection.sendall(raw[-1:] + request("GET", "/readyz"))
        reader = Reader(connection)
        answer, after = reader.answer(), reader.answer()
    assert answer is not None
    assert answer.status == 200
    assert after is None  # the answer said that nothing follows it
    assert ended(running) == 0


@SIGNALS
def test_a_second_signal_ends_it_at_once(tmp_path: Path, sign: signal.Signals) -> None:
    running = start_short(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        raw = posted("look", {"picture_id": "example:cat", "forwards": 600})
        look = pool.submit(connect_and_ask, running, raw)
        until(lambda: b"fovea_requests_at_work 1.0" in asked(running.url, request("GET", "/metrics")).body)
        running.process.send_signal(sign)
        until(lambda: is_refused(running))
        assert running.process.poll() is None
        running.process.send_signal(sign)
        assert ended(running) == 130
        answer = look.result(WAIT)
        assert answer is None or (answer.status == 503 and "stopped" in answer.detail)
    assert events(running)[-1] == "stopped"
    assert list((tmp_path / "tmp").glob("fovea-*")) == []


def connect_and_ask(running: Running, raw: bytes) -> Answer | None:
    with connect(running.url) as connection:
        connection.sendall(raw)
        return Reader(connection).answer()


def test_one_that_does_nothing_stops_at_once(started: Started) -> None:
    running = started(*NET)
    idle = [connect(running.url) for _ in range(20)]
    assert asked(running.url, request("GET", "/healthz")).status == 200
    assert running.stop() == 0
    assert [Reader(connection).answer() for connection in idle] == [None] * 20
    for connection in idle:
        connection.close()
