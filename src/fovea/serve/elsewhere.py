"""Work that another process does: what is sent to it, and what comes back."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fovea.remote.questions import Asking
from fovea.serve.refusing import Refused


@dataclass(frozen=True)
class Question:
    """What a verb is asked, in its words; about a picture, or about a text among the words."""

    verb: str
    words: Mapping[str, Any]
    name: str = ""
    data: bytes | None = None  # the picture's file

    @classmethod
    def of(cls, asked: Asking, picture: tuple[str, bytes] | None) -> "Question":
        words = asked.model_dump(exclude={"picture", "picture_id", "name"})
        return cls(asked.verb, words, *(picture or ()))


@dataclass(frozen=True)
class Reply:
    """A body and its type, or a refusal: its status, words and headers. No error travels by itself: what an exception
    says may be a request's, and others would log it."""

    body: bytes = b""
    media: str = ""
    refused: tuple[int, str, Mapping[str, str]] | None = None
    batches: Sequence[tuple[str, int]] = field(default=())  # lanes and sizes of those since the last reply

    def demand(self) -> tuple[bytes, str]:
        if self.refused is not None:
            raise Refused(*self.refused)
        return self.body, self.media


class Elsewhere(Protocol):
    """Replicas of the networks."""

    async def ask(self, question: Question) -> Reply: ...

    async def running(self) -> int:
        """How many there are now."""


def before_ray(address: str | None) -> None:
    """What Ray reads when it is imported. A cluster of our own listens on ports of this machine: nobody talks to it who
    has not its token. One that is joined is not waited for a quarter of an hour. Nothing is told to Ray's makers."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # a thread that outlives our cluster would join anybody's
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "20" if address is None else "1")
    if address is None and "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
