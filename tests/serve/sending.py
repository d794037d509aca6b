"""Requests said to the byte, the answers to them, and a service that waits less long for slow ones."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from serve.conftest import LINE, Running

HOST = "127.0.0.1"
PATIENCE = 60.0  # seconds that a client of ours waits: more than any service takes
BOUNDARY = "a-boundary-of-ours"
SHORT = """
import sys
import fovea.serve.protocol
from fovea.serve import Limits, ServeOptions, application, loaded, serve

fovea.serve.protocol.HEAD, fovea.serve.protocol.LINGER, fovea.serve.protocol.TAKEN = 3.0, 2.0, 3.0
limits = Limits(body=4.0, batch=4, **{SHORT})
options = ServeOptions(("efficientnet_lite0",), port=0, limits=limits)
app = application(options, loaded(options))
serve(app, options, lambda url: print("fovea is at " + url, flush=True))
"""


def start_short(folder: Path, script: str = SHORT, **limits: Any) -> Running:
    """A service of one network, that waits seconds for slow requests; it has its own home and temporary folder."""
    for name in ("home", "tmp", "here"):
        (folder / name).mkdir()
    log = folder / "serve.log"
    own = {"OMP_NUM_THREADS": "1", "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "MPLBACKEND": "agg"}
    words = [sys.executable, "-c", script.replace("{SHORT}", repr(limits))]
    with log.open("w") as errors:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | own, cwd=folder / "here"
        )
    assert process.stdout is not None
    found = next((match for line in process.stdout if (match := LINE.search(line))), None)
    assert found is not None, log.read_text()
    return Running(found[1].rstrip("/"), process, log)


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        return json.loads(self.body)["detail"]


@dataclass(frozen=True)
class Hostile:
    """What is sent, in parts with pauses between them, and how many answers come; None where silence is as good."""

    family: str
    parts: tuple[bytes, ...]
    answers: int | None = 1
    statuses: tuple[int, ...] = ()  # one of these, where it is known
    pause: float = 0.0  # seconds between parts
    wait: bool = True  # for the answer; else it is cut
    head: bool = False  # an answer to HEAD has no body
    never: tuple[str, ...] = field(default=())  # words that no answer has


class Reader:
    """Answers, one after the other, from a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.data = connection, b""

    def more(self) -> bool:
        try:
            found = self.connection.recv(65536)
        except ConnectionError:
            found = b""
        self.data += found
        return bool(found)

    def answer(self, head: bool = False) -> Answer | None:
        """The next one; None where the other side has closed."""
        while b"\r\n\r\n" not in self.data:
            if not self.more():
                assert not self.data, f"half an answer: {self.data[:200]!r}"
                return None
        first, _, self.data = self.data.partition(b"\r\n\r\n")
        line, *lines = first.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(line.split()[1])
        if status == 100:
            return self.answer(head)
        length = 0 if head or status == 204 else int(headers["content-length"])
        while len(self.data) < length:
            assert self.more(), "half an answer"
        body, self.data = self.data[:length], self.data[length:]
        return Answer(status, headers, body)


def connect(url: str) -> socket.socket:
    return socket.create_connection(address(url), PATIENCE)


def said(url: str, hostile: Hostile) -> list[Answer]:
    """What comes back."""
    with connect(url) as connection:
        reader, found = Reader(connection), list[Answer]()
        with suppress(ConnectionError):  # answered before all was said
            for place, part in enumerate(hostile.parts):
                time.sleep(hostile.pause if place else 0.0)
                connection.sendall(part)
        if not hostile.wait:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # cut, not closed
            return []
        while len(found) < (hostile.answers or 1):
            answer = reader.answer(hostile.head)
            if answer is None:
                break
            found.append(answer)
        return found


def asked(url: str, raw: bytes, head: bool = False) -> Answer:
    (found,) = said(url, Hostile("", (raw,), head=head))
    return found


def request(
    method: str = "GET",
    path: str = "/v1/explain",
    body: bytes = b"",
    headers: Iterable[tuple[str, str]] = (),
    **own: str,
) -> bytes:
    """HTTP as it should be, but for what is given: a header that is given is not added."""
    lines = list(headers) + [(name.replace("_", "-"), value) for name, value in own.items()]
    named = {name.lower() for name, _ in lines}
    if "host" not in named:
        lines.insert(0, ("Host", HOST))
    if (body or method == "POST") and not named & {"content-length", "transfer-encoding"}:
        lines.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace") + body


def posted(verb: str, value: Any, **headers: str) -> bytes:
    """A request in JSON."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return request("POST", f"/v1/{verb}", body, Content_Type="application/json", **headers)


def form(verb: str, body: bytes, kind: str = f"multipart/form-data; boundary={BOUNDARY}") -> bytes:
    return request("POST", f"/v1/{verb}", body, Content_Type=kind)


def part(name: str | None, data: bytes, filename: str | None = None, more: str = "") -> bytes:
    said = "form-data" + (f'; name="{name}"' if name is not None else "")
    said += f'; filename="{filename}"' if filename is not None else ""
    head = f"--{BOUNDARY}\r\nContent-Disposition: {said}\r\n{more}\r\n".encode("utf-8", "surrogateescape")
    return head + data + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


def uploaded(verb: str, data: bytes, name: str = "a.png", more: Iterable[tuple[str, str]] = ()) -> bytes:
    """A request as a form."""
    fields = b"".join(part(key, value.encode()) for key, value in more)
    return form(verb, fields + part("picture", data, name) + END)


def picture(kind: str = "png", size: tuple[int, int] = (48, 32), **how: Any) -> bytes:
    """A small file of this format, with something for every coder to do."""
    y, x = np.mgrid[: size[1], : size[0]]
    values = np.stack([x * 5, y * 7, (x // 4 + y // 4) % 2 * 200], 2).astype(np.uint8)
    buffer = BytesIO()
    image = Image.fromarray(values)
    (image.quantize(16) if kind == "gif" else image).save(buffer, kind, **how)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of(width: int, height: int, data: bytes | None = None, depth: int = 1, color: int = 0) -> bytes:
    """A PNG that says so of itself; all of its rows are there, unless other data is."""
    packer, row = zlib.compressobj(9), bytes(1 + (width * depth + 7) // 8)
    if data is None:
        data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b"")
