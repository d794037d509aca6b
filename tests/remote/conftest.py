"""A real service with a token and an index; and a stand-in that answers whatever it is told to."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fovea
from fovea.remote import Client
from serve.conftest import start

TOKEN = "a secret"
NETS = ("efficientnet_lite0-cub100", "anchornet-imagenette", "tnet-digits", "anchornet_text-mr")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pictures of one shape, and what is none."""
    found = tmp_path_factory.mktemp("pictures")
    for seed in range(3):
        noise = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((320, 240)).save(found / f"{seed}.png")
    (found / "bad.png").write_text("hello")
    return found


@pytest.fixture(scope="session")
def files(folder: Path) -> list[str]:
    return [str(folder / f"{seed}.png") for seed in range(3)]


@pytest.fixture(scope="session")
def index(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("index") / "made.fovea"
    fovea.index(NETS[0], files, file)
    return file


@pytest.fixture(scope="session")
def url(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    nets = [word for name in NETS for word in ("--net", name)]
    running = start(tmp_path_factory.mktemp("serve"), *nets, "--index", str(index), "--token", TOKEN)
    yield running.url
    running.stop()


@pytest.fixture(scope="session")
def client(url: str) -> Client:
    return fovea.client(url, TOKEN)


@dataclass
class StandIn:
    """Answers of a service that is none: (status, headers, body) each in turn, the last from then on."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    def says(self, body: Any, status: int = 200, **headers: str) -> "StandIn":
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, data))
        return self


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    made = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.answer(json.loads(body))

        def do_GET(self) -> None:
            self.answer(None)

        def answer(self, body: Any) -> None:
            made.asked.append((self.path, dict(self.headers), body))
            status, headers, data = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            if not status:  # breaks off
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(data))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Whoever asked may be gone."""

    server = Quiet(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()
