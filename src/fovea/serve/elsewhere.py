"""Work that another process does: what is sent to it, and what comes back."""

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
