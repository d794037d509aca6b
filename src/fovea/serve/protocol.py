"""HTTP as uvicorn speaks it, for those who speak it badly: one that does not end its request's head, or does not take
its answer, is not waited for; and what is no HTTP, or one connection too many, is answered in words."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from fovea.serve.metrics import note
from fovea.serve.refusing import AGAIN, SAFE

CONNECTIONS, MOST = 512, 768  # beyond the first, some are told to go; beyond the second, they are not told
MOMENT = 0.1  # seconds in which what was sent before is read
HEAD = 10.0  # seconds in which a request's first lines must have come
LINGER = 5.0  # seconds in which what is still sent after an answer is read and thrown away
TAKEN = 30.0  # seconds in which something of an answer that waits must have been taken
REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}
BROKEN = "this is no HTTP request that can be read, or its head is too long: {}"
LATE = "the request did not come in time"
FULL = "{} connections are open, and no more are taken: ask again later"


class PatientProtocol(H11Protocol):
    """Patient, but not forever."""

    late: asyncio.TimerHandle | None = None
    transport: "Lingering"  # type: ignore[assignment]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Lingering(self, transport))  # type: ignore[arg-type]
        if len(self.connections) > CONNECTIONS:
            self._make_room()
        if self._stopping:
            self.loop.call_later(MOMENT, self.shutdown)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self.transport.forget()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.hurry()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()
        if self._stopping:
            self.shutdown()

    def shutdown(self) -> None:
        """Whoever has begun to ask is answered; whoever has not is gone."""
        if not self._waiting:
            self.cycle.default_headers = self.server_state.default_headers  # the answer says that it is the last
        elif not self.unread:
            self.transport.close()

    @property
    def unread(self) -> bool:
        """A part of a request is here, or the next one."""
        return bool(self.conn.trailing_data[0])

    @property
    def _waiting(self) -> bool:
        """No request is at work."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _stopping(self) -> bool:
        return CLOSE_HEADER in self.server_state.default_headers

    def _make_room(self) -> None:
        """The one that has said nothing for longest goes; this one, where all others are at work."""
        others: Any = self.connections  # of this class, all of them
        silent = [other for other in others if other.late is not None]
        if silent:
            min(silent, key=lambda other: other.late.when())._give_up()
        elif len(self.connections) < MOST:
            self._refuse(503, FULL.format(CONNECTIONS), f"Retry-After: {AGAIN}\r\n")
        else:
            self.transport.abort()

    def _watch(self) -> None:
        if not self._waiting or self.transport.is_closing():
            self._unwatch()
        elif self.late is None:
            self.late = self.loop.call_later(HEAD, self._give_up)

    def _unwatch(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _give_up(self) -> None:
        self._unwatch()
        if self.unread and self.conn.our_state is h11.IDLE:
            self._refuse(408, LATE)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is None or self.conn.our_state is h11.IDLE or not self.cycle.response_started:
            self._refuse(400, BROKEN.format(msg))
        self.transport.close()

    def _refuse(self, status: int, words: str, more: str = "") -> None:
        """Without the application, which is told that the other side is gone."""
        note("refused", status=status)
        body = json.dumps({"detail": words}).encode()
        safe = "".join(f"{name}: {value}\r\n" for name, value in SAFE.items())
        head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n{safe}{more}"
        self.transport.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close(unread=True)
        if not self._waiting:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


class Lingering:
    """A transport that is closed in two steps where the other side may still be sending: the system resets a connection
    that is closed with bytes left to read, and the answer before it is lost. Whoever does not take an answer is cut."""

    def __init__(self, protocol: PatientProtocol, transport: asyncio.Transport) -> None:
        self.protocol, self.transport, self.closed = protocol, transport, False
        self.timers = dict[str, asyncio.TimerHandle]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def is_closing(self) -> bool:
        return self.closed or self.transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.transport.write(data)

    def close(self, unread: bool = False) -> None:
        if self.is_closing():
            return
        self.closed = True
        self.hurry()
        if unread or self.protocol.unread or self.protocol.conn.their_state in (h11.SEND_BODY, h11.ERROR):
            with suppress(OSError):  # it is gone
                self.transport.write_eof()
            self.transport.resume_reading()
            self.timers["linger"] = self.protocol.loop.call_later(LINGER, self.transport.close)
        else:
            self.transport.close()

    def hurry(self) -> None:
        """What waits to be taken is cut once nothing of it was taken for a while."""
        if (left := self.transport.get_write_buffer_size()) and "taken" not in self.timers:
            self.timers["taken"] = self.protocol.loop.call_later(TAKEN, self._look_after, left)

    def _look_after(self, before: int) -> None:
        del self.timers["taken"]
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self.hurry()

    def forget(self) -> None:
        self.closed = True
        for timer in self.timers.values():
            timer.cancel()
