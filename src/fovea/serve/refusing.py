"""What a request is refused with: a status and words, as JSON."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from fovea.basics import BadPicture, FoveaError, GivenUp

AGAIN = 2  # seconds after which a busy service may be asked again
FAULT = "something went wrong in the service itself, and is in its log; please report it"
SAFE = {  # headers of every answer
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(FoveaError):
    """An answer that is none."""

    def __init__(self, status: int, words: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(words)
        self.status, self.headers = status, dict(headers or {})


def busy(words: str) -> Refused:
    return Refused(503, words, {"Retry-After": str(AGAIN)})


def refusal(error: Refused) -> Response:
    return JSONResponse({"detail": str(error)}, error.status, error.headers)


def as_refused(error: Exception) -> Refused | None:
    """What went wrong in words, where it is the request's fault; None where it is ours."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, GivenUp) or (isinstance(error, BadPicture) and error.passing):  # a full disk, no memory left
        return busy(str(error))
    if isinstance(error, FoveaError):
        return Refused(422, str(error))
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return busy("there is not enough memory for this now: send a smaller picture, or ask again later")
    return None


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Of these refusals, for OpenAPI."""
    return {status: {"description": WORDS[status], **_content()} for status in statuses}


def found(words: str, content: Mapping[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Of an answer, for OpenAPI."""
    return {200: {"description": words, "content": content}}


def _content() -> dict[str, Any]:
    schema = {"type": "object", "required": ["detail"], "properties": {"detail": {"type": "string"}}}
    return {"content": {"application/json": {"schema": schema}}}


WORDS = {
    400: "The request is broken: no whole JSON or multipart.",
    401: "A token is needed.",
    403: "The request comes from another origin.",
    404: "There is no such thing, or no longer.",
    408: "The request came too slowly.",
    413: "The request is too large.",
    415: "The body is of another type than multipart/form-data or application/json.",
    421: "The service is not known by this Host.",
    422: "A value is wrong, or the picture cannot be read.",
    503: "Busy, stopping, or it would take too long; Retry-After says when to ask again.",
}
