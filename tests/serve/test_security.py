"""Who may ask, and what asking cannot do: a page on the internet cannot drive a service of this machine, nobody asks
without the token where there is one, and nothing in a request opens a file or a connection."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from urllib.parse import quote

import pytest

import fovea
from serve.conftest import Running
from serve.hostile_requests import PATHS, broken_json, names, pictures, types
from serve.sending import Answer, asked, form, part, picture, posted, request, start_short, uploaded

pytestmark = pytest.mark.security
TOKEN = "a token+of&32%letters=or#so/00000"
PAGE = "https://pictures.example"
CAT = {"picture_id": "example:cat"}
EVERY = {
    "content-security-policy": re.compile(r"default-src 'none'.*frame-ancestors 'none'"),
    "x-content-type-options": re.compile("nosniff"),
    "referrer-policy": re.compile("no-referrer"),
    "cross-origin-opener-policy": re.compile("same-origin"),
    "cross-origin-resource-policy": re.compile("same-origin"),
}


@pytest.fixture(scope="module")
def plain(started: Callable[..., Running]) -> str:
    return started("--net", "efficientnet_lite0").url


@pytest.fixture(scope="module")
def allowed(started: Callable[..., Running]) -> Running:
    """Behind a proxy of that name, for a page of that origin, with a token."""
    names = ("--allow-host", "pictures.example", "--allow-origin", f"{PAGE}/", "--token", TOKEN)
    return started("--net", "efficientnet_lite0", *names)


@pytest.fixture(scope="module")
def allowing(allowed: Running) -> str:
    return allowed.url


def own(url: str) -> str:
    return url.removeprefix("http://")


CASES: dict[str, tuple[dict[str, str], int]] = {  # headers of a request that explains a picture, and its answer
    "by address": ({}, 200),
    "by name": ({"Host": "localhost"}, 200),
    "by name, in capitals": ({"Host": "LocalHost:8000"}, 200),
    "by IPv6": ({"Host": "[::1]:8000"}, 200),
    "own page": ({"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}, 200),
    "own page, older browser": ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, 200),
    "typed by the user": ({"Sec-Fetch-Site": "none"}, 200),
    "DNS rebinding": ({"Host": "evil.example:8000"}, 421),
    "DNS rebinding, page and all": (
        {"Host": "evil.example:8000", "Origin": "http://evil.example:8000", "Sec-Fetch-Site": "same-origin"},
        421,
    ),
    "a name that begins with ours": ({"Host": "127.0.0.1.evil.example"}, 421),
    "a name that ends with ours": ({"Host": "evil.localhost"}, 421),
    "user before our name": ({"Host": "evil@127.0.0.1"}, 421),
    "path after our name": ({"Host": "127.0.0.1/evil"}, 421),
    "everybody's address": ({"Host": "0.0.0.0"}, 421),
    "another page": ({"Origin": "https://evil.example"}, 403),
    "another page, no CORS": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    "another page's form": ({"Origin": "https://evil.example", "Sec-Fetch-Mode": "navigate"}, 403),
    "another page's form, no origin": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    "a frame in a sandbox": ({"Origin": "null"}, 403),
    "a file": ({"Origin": "file://"}, 403),
    "another service of this machine": ({"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:3000"}, 403),
    "another service, no origin": ({"Sec-Fetch-Site": "same-site"}, 403),
    "our name by another scheme": ({"Host": "127.0.0.1:8000", "Origin": "https://127.0.0.1:8000"}, 403),
    "our other name": ({"Host": "127.0.0.1:8000", "Origin": "http://localhost:8000"}, 403),
    "an extension": ({"Origin": "chrome-extension://abcdefghijklmnop"}, 403),
    "a proxy's word for it": (
        {"Host": "evil.example", "X-Forwarded-Host": "127.0.0.1", "Forwarded": "host=127.0.0.1"},
        421,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_may_ask(plain: str, case: str) -> None:
    headers, status = CASES[case]
    body, kind = json.dumps(CAT).encode(), ("Content-Type", "application/json")
    for method, path, content in (
        ("POST", "/v1/explain", body),
        ("GET", "/v1/models", b""),
        ("GET", "/page/main.js", b""),
    ):
        lines = [*headers.items(), *([kind] if content else [])]
        answer = asked(plain, request(method, path, content, lines))
        assert answer.status == status, (method, path)
        assert "access-control-allow-origin" not in answer.headers
        if status != 200:
            assert answer.detail


def test_a_link_to_the_page_may_be_followed(plain: str) -> None:
    """From anywhere; to the page alone, which does nothing by itself."""
    follow = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for method, path, status in (
        ("GET", "/", 200),
        ("POST", "/", 403),
        ("GET", "/v1/models", 403),
        ("GET", "/healthz", 403),
    ):
        assert asked(plain, request(method, path, b"", follow.items())).status == status, path


def test_a_simple_form_of_another_site_changes_nothing(plain: str) -> None:
    """What a browser sends without asking first,
    and without Origin where it is old: the types of a form are no way in."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert asked(plain, request("POST", "/v1/explain", json.dumps(CAT).encode(), Content_Type=kind)).status == 415


class TestAllowed:
    """A name and a page that the service is told of."""

    bearer = ("Authorization", f"Bearer {TOKEN}")

    def test_its_host(self, allowing: str) -> None:
        for name, status in (("pictures.example", 200), ("pictures.example:443", 200), ("other.example", 421)):
            assert asked(allowing, request("GET", "/v1/models", b"", [("Host", name), self.bearer])).status == status

    def test_its_page_asks(self, allowing: str) -> None:
        lines = [("Origin", PAGE), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors"), self.bearer]
        kind = ("Content-Type", "application/json")
        answer = asked(allowing, request("POST", "/v1/explain", json.dumps(CAT).encode(), [*lines, kind]))
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-credentials" not in answer.headers
        wrong = asked(allowing, request("POST", "/v1/explain", b"{", [*lines, kind]))
        assert wrong.status == 400
        assert wrong.headers["access-control-allow-origin"] == PAGE  # it may read what was wrong

    def test_its_page_asks_whether_it_may(self, allowing: str) -> None:
        """Without the token, which a browser does not send then."""
        lines = [("Origin", PAGE), ("Access-Control-Request-Method", "POST"), ("Sec-Fetch-Site", "cross-site"),
                 ("Access-Control-Request-Headers", "authorization,content-type"),
                 ("Access-Control-Request-Private-Network", "true")]  # fmt: skip
        answer = asked(allowing, request("OPTIONS", "/v1/explain", b"", lines))
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert {"authorization", "content-type"} <= set(
            answer.headers["access-control-allow-headers"].lower().split(", ")
        )
        assert answer.headers["access-control-allow-private-network"] == "true"

    def test_no_other_page_does(self, allowing: str) -> None:
        for origin in (
            "https://evil.example",
            "http://pictures.example",
            f"{PAGE}.evil.example",
            f"{PAGE}:444",
            "null",
        ):
            for method, more in (("OPTIONS", [("Access-Control-Request-Method", "POST")]), ("GET", [self.bearer])):
                answer = asked(allowing, request(method, "/v1/models", b"", [("Origin", origin), *more]))
                assert answer.status == 403, origin
                assert "access-control-allow-origin" not in answer.headers

    def test_without_it_nobody_else_is_allowed_to(self, plain: str) -> None:
        lines = [("Origin", PAGE), ("Access-Control-Request-Method", "POST")]
        assert asked(plain, request("OPTIONS", "/v1/explain", b"", lines)).status == 403


def routes(url: str, bearer: tuple[str, str]) -> list[tuple[str, str]]:
    api = json.loads(asked(url, request("GET", "/openapi.json", b"", [bearer])).body)
    return [(method.upper(), re.sub(r"\{\w+\}", "0", path)) for path, found in api["paths"].items() for method in found]


def test_the_token_guards_every_route(allowing: str) -> None:
    found = routes(allowing, TestAllowed.bearer)
    assert {path for _, path in found} >= {"/v1/explain", "/v1/pictures", "/v1/models", "/metrics"}
    free = ("/healthz", "/readyz")
    for method, path in [
        *found,
        ("GET", "/openapi.json"),
        ("GET", "/v1/nothing"),
        ("GET", "/nothing"),
        ("PUT", "/v1/models"),
    ]:
        wrong = (
            "",
            "Bearer",
            "Bearer ",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}x",
            f"Basic {TOKEN}",
            TOKEN,
            "Bearer \xff",
        )
        for given in wrong if path not in free else ():
            lines = [("Authorization", given)] if given else []
            answer = asked(allowing, request(method, path, b"", lines))
            assert answer.status == 401, (method, path, given)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in answer.detail
        assert asked(allowing, request(method, path, b"", [TestAllowed.bearer])).status != 401, path
    for path in ("/", "/page/main.js", "/page/openseadragon.js", *free):
        assert asked(allowing, request("GET", path)).status == 200, path
    for path in ("/page/../v1/models", "/page/%2e%2e/v1/models", "/?/v1/models", "//v1/models", "/%2fv1/models"):
        assert asked(allowing, request("GET", path)).status in (200, 401, 404), path
        assert b'"models"' not in asked(allowing, request("GET", path)).body


def test_the_address_that_is_printed_holds_the_token(allowed: Running) -> None:
    """Whatever signs are in it."""
    assert TOKEN not in allowed.printed
    assert fovea.client(allowed.printed).models()["models"]
    with pytest.raises(fovea.FoveaError, match=r"refuses \(401\)"):
        fovea.client(allowed.url).models()


def test_a_token_in_a_query_or_a_cookie_is_none(allowing: str) -> None:
    assert asked(allowing, request("GET", f"/v1/models?token={quote(TOKEN)}")).status == 401
    assert asked(allowing, request("GET", "/v1/models", Cookie=f"token={TOKEN}")).status == 401


def some_of_everything(url: str) -> Iterator[Answer]:
    for raw in (
        request("GET", "/"), request("GET", "/page/main.js"), request("GET", "/healthz"), request("GET", "/readyz"),
        request("GET", "/metrics"), request("GET", "/openapi.json"), request("GET", "/v1/models"), posted("explain",
        CAT),
        request("GET", "/v1/pictures/example:cat/preview"), uploaded("pictures", picture()), posted("explain", b"{"),
        posted("explain", CAT | {"output": "html"}), posted("explain", CAT | {"output": "png"}), request("PUT", "/"),
        request("GET", "/nothing"), request("GET", "/", Host="evil.example"), request("GET", "/", Origin="null"),
        b"no HTTP at all\r\n\r\n", request("POST", "/v1/explain", b"", Content_Length="99999999999",
        Content_Type="application/json"), request("GET", "/v1/models", b"", [("X-A", "a" * 100_000)]),
    ):  # fmt: skip
        yield asked(url, raw)


def test_every_answer_is_safe_in_a_browser_and_says_nothing_of_the_server(plain: str) -> None:
    statuses = set[int]()
    for answer in some_of_everything(plain):
        statuses.add(answer.status)
        for name, value in EVERY.items():
            assert value.search(answer.headers.get(name, "")), (name, answer)
        assert not {"server", "x-powered-by", "via", "set-cookie", "location"} & set(answer.headers)
    assert statuses == {200, 201, 400, 403, 404, 405, 413, 421}


def test_what_is_said_of_the_service_has_no_path_in_it(plain: str) -> None:
    for path in ("/openapi.json", "/v1/models", "/metrics"):
        text = asked(plain, request("GET", path)).body.decode()
        assert not re.search(r"/(home|root|usr|tmp|var|opt|Users)/|[A-Z]:\\\\|site-packages|\.venv", text), path


WATCHED = '''
import sys
from fovea.serve import Limits, ServeOptions, application, loaded, serve

WATCHED = """
open socket.connect socket.getaddrinfo subprocess.Popen os.system os.exec os.posix_spawn os.fork import os.listdir
os.scandir exec compile pickle.find_class ctypes.dlopen urllib.Request shutil.rmtree
""".split()
seen, on = [], []

def hook(event, args):
    if on and event in WATCHED:
        seen.append([event, repr(args)[:300]])

sys.addaudithook(hook)
options = ServeOptions(("efficientnet_lite0",), port=0, limits=Limits(body=4.0))
app = application(options, loaded(options))

@app.middleware("http")
async def watch(request, call_next):
    from starlette.responses import JSONResponse
    if request.url.path == "/watch":
        on.append(1)
        return JSONResponse([])
    if request.url.path == "/seen":
        open("/dev/null").close()  # which the hook sees
        return JSONResponse(list(seen))
    return await call_next(request)

serve(app, options, lambda url: print("fovea is at " + url, flush=True))
'''


def test_nothing_in_a_request_opens_anything(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Python tells of every file, folder, connection, process and module; all is done once before, to be imported."""
    running = start_short(tmp_path_factory.mktemp("watched"), WATCHED)
    random = Random(2)
    hostile = [
        raw for family in (names(random), types(random), broken_json(random)) for one in family for raw in one.parts
    ]
    hostile += [raw for one in list(pictures(random, lambda data: False))[::6] for raw in one.parts]
    for word in PATHS:
        for field in ("net", "layer", "fit", "picture_id", "name", "picture", "output"):
            hostile.append(posted("explain", CAT | {field: word}))
        hostile += [posted("explain", CAT | {field: [word]}) for field in ("method", "target")]
        hostile.append(posted("localize", {"text": word}))
        hostile.append(form("explain", part(word.replace("\r\n", ""), b"x") + part("picture", picture(), word)))
    good = [uploaded(verb, picture(kind), "../../etc/passwd") for verb in ("explain", "predict", "localize", "pictures")
            for kind in ("jpeg", "png", "webp", "gif", "bmp")]  # fmt: skip
    good += [
        posted("explain", CAT | {"output": kind}) for kind in ("json", "maps", "view", "png", "npy", "html", "exact")
    ]
    good += [posted("look", CAT | {"forwards": 20}), posted("explain", CAT | {"method": ["gradcam", "layercam"]})]
    good += [request("GET", f"/v1/pictures/example:cat/{rest}") for rest in ("preview", "tiles/0/0/0", "tiles/9/1/1")]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(partial(asked, running.url), hostile[::9] + good * 2))
        assert asked(running.url, request("GET", "/watch")).status == 200
        assert {answer.status for answer in pool.map(partial(asked, running.url), good)} == {200, 201}
        list(pool.map(partial(asked, running.url), hostile))
    seen = json.loads(asked(running.url, request("GET", "/seen")).body)
    running.process.kill()
    running.process.wait()
    assert seen[-1][0] == "open"
    assert "/dev/null" in seen[-1][1]
    others = [[event, what] for event, what in seen[:-1] if not _is_ours(event, what)]
    assert others == [], "\n".join(map(repr, others))


def _is_ours(event: str, what: str) -> bool:
    """A TIFF is looked at from a file of our own; a handle that is open already; the C library, about its memory."""
    own = r"\('[^']*/tmp/fovea-[^'/]*/[0-9a-f]{32}\.tif'|\(\d+, "
    return (event == "open" and re.match(own, what) is not None) or (event, what) == ("ctypes.dlopen", "(None,)")
