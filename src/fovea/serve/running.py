"""uvicorn with the application: what is listened to, how it ends."""

import asyncio
import os
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.flow_control import CLOSE_HEADER

from fovea.basics import BadChoice
from fovea.serve.metrics import log_to_stderr, note
from fovea.serve.options import ServeOptions
from fovea.serve.protocol import HEAD, MOMENT, PatientProtocol

HEADERS = 64 << 10  # bytes of a request's head
ROUNDS = 10  # of the event loop, at least, between the signal and the end of listening
LAST = 10  # seconds for what is left, at the very end
STOPPED_TWICE = 130  # as of a program that ended by Ctrl+C


class Server(uvicorn.Server):
    """Told to stop, it lets nobody in, and answers all who have begun to ask; told again, it ends at once."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.config.app.state.service.engine.stopping = True  # type: ignore[union-attr]
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        note("stopping")
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        for _ in range(ROUNDS):  # what was sent before is read, and who waits at the door let in
            await asyncio.sleep(MOMENT / ROUNDS)
        await super().shutdown(sockets)


def serve(app: FastAPI, options: ServeOptions, ready: Any) -> None:
    """Until it is stopped; `ready` is called with the address once it listens."""
    log_to_stderr()
    limits = options.limits
    config = uvicorn.Config(
        app, http=PatientProtocol, loop="asyncio", ws="none", log_config=None, access_log=False, server_header=False,
        date_header=False, h11_max_incomplete_event_size=HEADERS, timeout_keep_alive=int(HEAD), proxy_headers=False,
        timeout_graceful_shutdown=int(HEAD + limits.body + limits.seconds) + LAST, lifespan="on",
    )  # fmt: skip
    with listening_at(options) as listener:
        port = listener.getsockname()[1]
        host = f"[{options.host}]" if ":" in options.host else options.host
        ready(f"http://{host}:{port}")
        note("listening", host=options.host, port=port)
        server = Server(config)
        server.run(sockets=[listener])
    note("stopped", at_once=server.force_exit)
    if server.force_exit:
        app.state.service.store.close()
        os._exit(STOPPED_TWICE)  # what is at work would be waited for


def listening_at(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except (OSError, UnicodeError) as error:
        listener.close()
        words = getattr(error, "strerror", None) or str(error)
        raise BadChoice(f"cannot listen at {options.host}, port {options.port}: {words}; name another --port") from None
    listener.listen(2048)
    listener.setblocking(False)
    return listener
