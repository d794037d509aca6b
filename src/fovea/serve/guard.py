"""What every request passes first: who it is meant for, where it comes from, whether it may; then it is counted.

A page on the internet can make a browser send requests to this machine. It cannot forge Host, Origin or Sec-Fetch-Site,
so these say whether a request is meant for this service and comes from its own page, or from no page at all."""

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fovea.serve.metrics import Metrics, note
from fovea.serve.options import ServeOptions
from fovea.serve.refusing import FAULT, SAFE, Refused, busy, refusal

OPEN = ("/", "/healthz", "/readyz")  # without a token, and whatever is below PAGE
PAGE, API = "/page/", "/v1/"
OTHERS = ("cross-site", "same-site")  # of Sec-Fetch-Site: another site, or another port of this one
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::\d{1,5})?")  # nobody's name before an @, no path after it
VERSIONS = ("1.0", "1.1")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ALLOWED = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}
CLOSE = {"Connection": "close"}
PRIVATE = "access-control-request-private-network"  # of a page on the internet that asks a machine in a private network


class Guard:
    """ASGI around the application."""

    def __init__(self, app: ASGIApp, options: ServeOptions, metrics: Metrics) -> None:
        self.app, self.options, self.metrics = app, options, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, request = time.perf_counter(), 500, Request(scope)

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._complete(MutableHeaders(scope=message), request)
            await send(message)

        try:
            self._check(request)
        except Refused as reason:
            await refusal(reason)(scope, receive, answered)
        else:
            if _preflight(request):
                await _permit(request)(scope, receive, answered)
            else:
                await self._run(scope, receive, answered)
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        seconds = time.perf_counter() - start
        self.metrics.answered(route, status, seconds)
        level = logging.WARNING if status >= 500 else logging.INFO
        note("request", level, route=route, method=method, status=status, ms=round(1000 * seconds, 1))

    def _complete(self, headers: MutableHeaders, request: Request) -> None:
        """What every answer says beside itself."""
        for name, value in SAFE.items():
            headers.setdefault(name, value)
        if request.scope["path"].startswith((API, "/metrics")):
            headers.setdefault("Cache-Control", "no-store")
        if self.options.origins:
            headers.add_vary_header("Origin")
            origin = request.headers.get("origin", "")
            if _origin(origin) in map(_origin, self.options.origins):
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = "Retry-After, Server-Timing"

    async def _run(self, scope: Scope, receive: Receive, send: Callable[[Message], Awaitable[None]]) -> None:
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, sent)
        except asyncio.CancelledError:
            if not begun:
                await refusal(busy("the service was stopped before it had an answer"))(scope, receive, send)
        except Exception as error:
            note("fault", logging.ERROR, error)
            if not begun:
                await refusal(Refused(500, FAULT))(scope, receive, send)

    def _check(self, request: Request) -> None:
        headers, path = request.headers, request.scope["path"]
        self._demand_host(headers)
        self._demand_origin(request)
        if request.scope["http_version"] not in VERSIONS:
            raise Refused(400, "this service speaks HTTP/1.1", CLOSE)
        if "transfer-encoding" in headers and "content-length" in headers:
            raise Refused(400, "the request has two lengths: Content-Length and Transfer-Encoding", CLOSE)
        if self.options.token is None or path in OPEN or path.startswith(PAGE) or _preflight(request):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.options.token.encode()):
            words = "this service wants its token: send the header 'Authorization: Bearer TOKEN'"
            raise Refused(401, words, {"WWW-Authenticate": "Bearer"})

    def _demand_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if len(given) != 1 or _host(given[0]) not in self.options.names:
            words = "the service is not known by this Host; 'fovea serve --allow-host NAME' accepts another"
            raise Refused(421, words)

    def _demand_origin(self, request: Request) -> None:
        """A browser says where a page is from that asks; who says nothing of it is no browser, or our own page."""
        given, site = request.headers.getlist("origin"), request.headers.get("sec-fetch-site", "")
        allowed = {
            f"{request.scope['scheme']}://{request.headers['host']}".lower(),
            *map(_origin, self.options.origins),
        }
        if len(given) > 1 or any(_origin(origin) not in allowed for origin in given):
            raise Refused(403, "requests of other origins are refused; 'fovea serve --allow-origin URL' accepts one")
        visit = (
            request.method == "GET"
            and request.scope["path"] == "/"
            and request.headers.get("sec-fetch-mode") == "navigate"
        )
        if not given and site.strip().lower() in OTHERS and not visit:
            raise Refused(403, "requests that pages of other sites make are refused")


def _host(given: str) -> str | None:
    """The name in a Host header, without the port."""
    found = HOST.fullmatch(given)
    return found[1].lower().strip("[]") if found else None


def _origin(given: str) -> str:
    return given.strip().rstrip("/").lower()


def _preflight(request: Request) -> bool:
    """A browser asks whether a page of an allowed origin may ask."""
    headers = request.headers
    return request.method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def _permit(request: Request) -> Response:
    private = {"Access-Control-Allow-Private-Network": "true"} if PRIVATE in request.headers else {}
    return Response(status_code=204, headers=ALLOWED | private)
