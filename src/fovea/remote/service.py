"""HTTP: a question to a service, its answer, and what goes wrong in words. It is waited for where it is busy."""

import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fovea.basics import BadChoice, Damaged, FoveaError, printable, shown

TRIES, PAUSE, LONGEST = 6, 1.0, 10.0  # of a busy service: how often, seconds between if it says nothing, and at most
CONNECT = 10.0  # seconds until there is a connection
LARGEST = 512 << 20  # bytes of an answer
WORDS = 500  # letters of what a service says
TOKENS = "give its token: fovea.client(url, token=…), --token TOKEN, or $FOVEA_TOKEN"


class Refusal(FoveaError):
    """What a service answered instead of an answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def library() -> Any:
    """httpx, which everything else does without."""
    try:
        import httpx
    except ImportError:
        raise FoveaError("a service is asked by a package that is not installed: pip install 'fovea[client]'") from None
    return httpx


class Service:
    """Where it is, and how long it may take. A token may come with the address, as 'fovea serve' prints it."""

    def __init__(self, url: str, token: str | None, timeout: float, at_once: int) -> None:
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            known = False
        if not known:
            raise BadChoice(f"the address of a service is as http://127.0.0.1:8000; got {shown(url)}")
        self.url = parts._replace(query="", fragment="").geturl().rstrip("/")
        self.timeout, self.at_once = timeout, at_once
        token = token or parse_qs(parts.fragment).get("token", [None])[0]
        if token is not None and not (token.isascii() and token.isprintable()):
            raise BadChoice("a token is letters, digits and signs of ASCII")
        httpx, headers = library(), {"Accept-Encoding": "identity"}
        self._connections = httpx.Client(
            base_url=self.url,
            headers=headers | ({"Authorization": f"Bearer {token}"} if token else {}),
            limits=httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once),
        )

    def close(self) -> None:
        self._connections.close()

    def ask(self, path: str, body: Any = None) -> bytes:
        """The answer to GET, or to a POST of this as JSON; Refusal, or another FoveaError, where there is none."""
        end, content = time.monotonic() + self.timeout, None if body is None else json.dumps(body).encode()
        for left in reversed(range(TRIES)):
            status, wait, answer = self._once(path, content, end, last=not left)
            if status != 503 or not left or time.monotonic() + wait > end:
                break
            time.sleep(wait)
        if status == 200:
            return answer
        raise Refusal(status, self._said(status, answer))

    def _once(self, path: str, content: bytes | None, end: float, last: bool) -> tuple[int, float, bytes]:
        """The status, seconds to wait where it is busy, and what came."""
        httpx, parts, size = library(), list[bytes](), 0
        how: dict[str, Any] = {"content": content, "headers": {"Content-Type": "application/json"}} if content else {}
        try:
            left = max(end - time.monotonic(), 0.1)
            how["timeout"] = httpx.Timeout(left, connect=min(left, CONNECT))
            with self._connections.stream("POST" if content else "GET", path, **how) as answer:
                for part in answer.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > LARGEST:
                        raise Damaged(f"{self.url} answers with more than {LARGEST:,} bytes, which is refused")
                    if time.monotonic() > end:
                        raise httpx.ReadTimeout("slow")
                given = answer.headers.get("retry-after", "")
                wait = float(given) if given.isdecimal() and len(given) < 4 else PAUSE
                return answer.status_code, min(wait, LONGEST), b"".join(parts)
        except httpx.TimeoutException:
            words = f"{self.url} did not answer within {self.timeout:g} s: ask for less, or give it more time"
            raise FoveaError(words) from None
        except httpx.RemoteProtocolError as error:  # a connection that it had closed meanwhile, maybe
            if last:
                raise FoveaError(f"{self.url} breaks off its answers: {error}") from None
            return 503, 0.0, b""
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = "is 'fovea serve' running there, and is the address right?"
            raise FoveaError(f"{self.url} cannot be reached ({error}): {words}") from None

    def _said(self, status: int, answer: bytes) -> str:
        """Its own words where it has any."""
        try:
            words = self.read(answer).get("detail")
        except (Damaged, AttributeError):
            words = None
        words = printable(words)[:WORDS] if isinstance(words, str) else "without a word"
        if status in (413, 422):
            return words
        return f"{self.url} refuses ({status}): {words}{f'; {TOKENS}' if status == 401 else ''}"

    def read(self, answer: bytes) -> Any:
        """As JSON."""
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            begins = shown(printable(answer[:60].decode(errors="replace")))
            raise Damaged(f"what answers at {self.url} is no fovea service, or is damaged: it says {begins}") from None
