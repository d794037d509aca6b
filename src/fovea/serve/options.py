"""What a service is given when it starts: its networks, who may ask, and how much."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fovea.basics import BadChoice, shown

REPLICAS, MOST = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?"), 1000
LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Limits:
    """What one request may take, and all together."""

    bytes: int = 256 << 20  # of a request: a large tiled picture
    pixels: int = 100_000_000  # of a picture that is decoded whole
    seconds: float = 60.0  # from a whole request to its answer
    queue: int = 64  # requests at work or waiting
    batch: int = 16  # pictures that go through the network together
    window: float = 0.004  # seconds that a request waits for others of its kind
    body: float = 30.0  # seconds in which a request must have come
    coming: int = 512 << 20  # bytes of all requests that are coming or at work
    kept: int = 256 << 20  # bytes of pictures that stay between requests, decoded ones included


@dataclass(frozen=True)
class Scale:
    """How many replicas of the networks there are, and what each takes of a cluster."""

    least: int = 1
    most: int = 1
    cpus: float = 1.0
    gpus: float = 0.0

    @classmethod
    def of(cls, text: str, cpus: float = 1.0, gpus: float = 0.0) -> "Scale":
        """As it is typed: 2, or 1-4."""
        found = REPLICAS.fullmatch(text.strip())
        least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= least <= most <= MOST:
            raise BadChoice(f"--replicas takes a number or a range of 1 to {MOST}, as 2 or 1-4; got {shown(text)}")
        return cls(least, most, cpus, gpus)

    def sharing(self, cores: int) -> "Scale":
        """The same on one machine: all replicas together have its cores."""
        return replace(self, cpus=float(cores // self.most) or round(cores / self.most, 3))

    @property
    def cores(self) -> int:
        """For all of them."""
        return math.ceil(self.cpus * self.most)


@dataclass(frozen=True)
class ServeOptions:
    """`hosts` and `origins` are accepted beside the service's own address."""

    nets: Sequence[str] = ()  # the first is the usual one; all that come with fovea where none is named
    index: Path | None = None
    host: str = LOCAL[0]
    port: int = 8000
    token: str | None = None
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    device: str = "auto"
    limits: Limits = Limits()

    @property
    def local(self) -> bool:
        """Only this machine can reach it."""
        return self.host in LOCAL

    @property
    def names(self) -> frozenset[str]:
        """By which it may be called: what a Host header may say, without the port."""
        named = {self.host} if self.host not in ("0.0.0.0", "::") else set()
        return frozenset(name.lower().strip("[]") for name in (*LOCAL, *named, *self.hosts))


def demand_token(options: ServeOptions) -> None:
    """A token is what a header can carry."""
    token = options.token
    if token is not None and not (token.isascii() and token.isprintable() and token and token == token.strip()):
        raise BadChoice("--token is letters, digits and signs of ASCII, at least one of them, without spaces around it")
