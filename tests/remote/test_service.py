"""What a service may answer: busy, nothing, damage, too much. All of it ends in words."""

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fovea
from conftest import Pooled, seeded
from fovea.basics import Damaged
from fovea.heatmaps import explain_batches, find
from fovea.networks import predict_steps
from fovea.pictures import Prepare, gather
from fovea.remote import service
from fovea.results import pack
from remote.conftest import StandIn

pytestmark = pytest.mark.security
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))


def answer(results: Any, **more: Any) -> dict[str, Any]:
    return {"what": "explain", "settings": {"net": "made", "layer": None}, "results": results, **more}


@pytest.fixture
def network() -> fovea.Network:
    return fovea.wrap(seeded(Pooled), Prepare((24, 24)), labels=["cat", "dog", "crane", "lynx", "ox"])


@pytest.fixture
def predicted(network: fovea.Network) -> Any:
    ((results, *_),) = predict_steps(network, gather([PICTURE]), 5, 16, 10**6)
    return answer(pack(results))


@pytest.fixture
def explained(network: fovea.Network) -> Any:
    (step,) = explain_batches(network, gather([PICTURE]), [find("cam")])
    return answer(pack(step.results))


def test_what_is_sent(stand_in: StandIn, predicted: Any, tmp_path: Path) -> None:
    (tmp_path / "my cat.png").write_bytes(b"sent as it is")
    stand_in.says(predicted)
    found = fovea.client(stand_in.url, "secret").predict([tmp_path / "my cat.png"], "made", 3)
    assert found[0].predictions
    ((path, headers, body),) = stand_in.asked
    assert (path, headers["Authorization"]) == ("/v1/predict", "Bearer secret")
    assert body.pop("picture") == "c2VudCBhcyBpdCBpcw=="
    assert body.pop("name").startswith("picture-")  # no path is told
    assert body == {"net": "made", "top": 3, "output": "exact"}


def test_an_address_with_a_folder(stand_in: StandIn, predicted: Any) -> None:
    stand_in.says(predicted)
    fovea.client(f"{stand_in.url}/pictures/#token=x").predict(PICTURE)
    assert (stand_in.asked[0][0], stand_in.asked[0][1]["Authorization"]) == ("/pictures/v1/predict", "Bearer x")


def test_names_are_the_readers(stand_in: StandIn, predicted: Any, explained: Any, tmp_path: Path) -> None:
    file = tmp_path / 'a "strange"\\ näme.png'
    PICTURE.save(file)
    stand_in.says(explained).says(predicted)
    found = fovea.client(stand_in.url).explain(file)
    assert (found[0].name, found[0].shown.image().size) == (str(file), PICTURE.size)
    assert found[0].draw().width


def test_a_busy_service_is_waited_for(stand_in: StandIn, predicted: Any) -> None:
    stand_in.says({"detail": "busy"}, 503, Retry_After="0").says(b"", 503, Retry_After="soon").says(predicted)
    assert len(fovea.client(stand_in.url).predict(PICTURE)) == 1
    assert len(stand_in.asked) == 3


def test_not_for_ever(stand_in: StandIn) -> None:
    stand_in.says({"detail": "too many requests"}, 503, Retry_After="0")
    with pytest.raises(fovea.FoveaError, match=r"refuses \(503\): too many requests"):
        fovea.client(stand_in.url).predict(PICTURE)
    assert len(stand_in.asked) == service.TRIES
    stand_in.answers[:] = []
    stand_in.says({"detail": "busy"}, 503, Retry_After="900")
    start = time.monotonic()
    with pytest.raises(fovea.FoveaError, match="busy"):
        fovea.client(stand_in.url, timeout=2).predict(PICTURE)
    assert time.monotonic() - start < 5


def test_a_connection_that_breaks(stand_in: StandIn, predicted: Any) -> None:
    stand_in.says(b"", 0).says(predicted)
    assert len(fovea.client(stand_in.url).predict(PICTURE)) == 1
    stand_in.answers[:] = []
    stand_in.says(b"", 0)
    with pytest.raises(fovea.FoveaError, match="breaks off"):
        fovea.client(stand_in.url).predict(PICTURE)


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(fovea.FoveaError, match=r"did not answer within 0.3 s"):
            fovea.client(f"http://127.0.0.1:{port}", timeout=0.3).predict(PICTURE)
    with pytest.raises(fovea.FoveaError, match="is 'fovea serve' running there"):
        fovea.client(f"http://127.0.0.1:{port}").models()


REFUSED = {
    400: "the body is broken",
    401: "a token is needed",
    403: "from another origin",
    404: "nothing here",
    408: "too slow",
    421: "not this host",
    500: "it is ours",
    302: "elsewhere",
}


@pytest.mark.parametrize("status", REFUSED)
def test_refusals_in_words(status: int, stand_in: StandIn) -> None:
    stand_in.says({"detail": REFUSED[status]}, status, Location="http://example.org")
    with pytest.raises(fovea.FoveaError, match=REFUSED[status]) as refused:
        fovea.client(stand_in.url).predict([PICTURE, PICTURE])
    assert str(status) in str(refused.value)
    assert ("$FOVEA_TOKEN" in str(refused.value)) == (status == 401)


def test_a_picture_that_is_too_large_is_skipped(stand_in: StandIn, predicted: Any) -> None:
    stand_in.says({"detail": "a request has at most 3 bytes here"}, 413).says(predicted)
    with pytest.warns(UserWarning, match="too large for the service: a request has at most 3 bytes"):
        found = fovea.client(stand_in.url, at_once=1).predict([PICTURE, PICTURE])
    assert [name for name, _ in found.skipped] == ["picture-0"]


STRANGE: dict[str, bytes] = {
    "HTML": b"<html><body>Welcome to nginx!</body></html>",
    "nothing": b"",
    "cut short": b'{"what": "explain", "settings": {}, "resul',
    "no UTF-8": b"\xff\xfe{}",
    "deep": b"[" * 100_000,
    "a list": b"[1, 2]",
    "a number": b"3",
    "no results": b'{"what": "explain", "settings": {}}',
    "no settings": b'{"what": "explain", "results": []}',
    "none": json.dumps(answer([])).encode(),
    "two": json.dumps(answer([{"parts": []}, {"parts": []}])).encode(),
    "no parts": json.dumps(answer([{"parts": []}])).encode(),
    "another class": json.dumps(answer([{"name": "a", "predictions": [["cat", 1.0]]}])).encode(),
    "a long number": b'{"settings": {}, "results": ' + b"9" * 5000 + b"}",
    "a long message": json.dumps(answer("x" * 100_000)).encode(),
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_is_no_answer(what: str, stand_in: StandIn) -> None:
    stand_in.says(STRANGE[what])
    with pytest.raises(Damaged) as refused:
        fovea.client(stand_in.url).explain(PICTURE)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    with pytest.raises(Damaged):
        fovea.client(stand_in.url).search(PICTURE)


def changed(data: Any, *path: Any, to: Any) -> Any:
    whole = json.loads(json.dumps(data))
    place = whole
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return whole


CELLS = ("results", 0, "parts", 0, "maps")
WRONG: list[tuple[tuple[Any, ...], Any]] = [
    ((*CELLS, "cells", "shape"), [1, 1, 600, 600]),
    ((*CELLS, "cells", "shape"), [1, 36]),
    ((*CELLS, "cells", "data"), "AAAA"),
    ((*CELLS, "shown"), []),
    ((*CELLS, "targets"), []),
    ((*CELLS, "targets"), [["a", "b", "c"]]),
    ((*CELLS, "classes"), [[]]),
    ((*CELLS, "method"), 3),
    ((*CELLS, "shown", 0, "placement", "scale"), [0.0, 0.0]),
    ((*CELLS, "shown", 0, "placement", "picture"), [-1, 3]),
    ((*CELLS, "shown", 0, "picture"), {"name": "x", "source": "/etc/passwd"}),
    ((*CELLS, "import"), "os"),
    (("results", 0, "parts", 0, "place"), 7),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("path", "to"), WRONG)
def test_parts_that_do_not_belong_together(path: tuple[Any, ...], to: Any, stand_in: StandIn, explained: Any) -> None:
    stand_in.says(changed(explained, *path, to=to))
    with pytest.raises(Damaged):
        fovea.client(stand_in.url).explain(PICTURE)


def test_too_much(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LARGEST", 1000)
    stand_in.says(b"[" + b" " * 100_000)
    with pytest.raises(Damaged, match="more than 1,000 bytes"):
        fovea.client(stand_in.url).models()


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://a", "http://", "http://a:b", "http://[::1", "http://a:99999", "file:///etc"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(fovea.BadChoice, match="the address of a service is as http://"):
        fovea.client(url)


def test_choices_that_are_none() -> None:
    strange: list[dict[str, Any]] = [
        {"timeout": 0},
        {"timeout": float("nan")},
        {"at_once": 0},
        {"at_once": 2.5},
        {"token": "nöt"},
        {"token": 3},
        {"url": 3},
    ]
    for given in strange:
        with pytest.raises(fovea.BadChoice):
            fovea.client(**{"url": "http://a", **given})


def test_without_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(fovea.FoveaError, match=r"pip install 'fovea\[client\]'"):
        fovea.client("http://127.0.0.1:8000")
