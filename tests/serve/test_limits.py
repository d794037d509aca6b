"""What one request may take, and all of them together: bytes, pixels, time, places in the queue, memory."""

import json
import os
import re
import struct
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serve.conftest import Running
from serve.sending import Answer, Reader, asked, connect, picture, png_of, posted, request, start_short, uploaded

CAT = {"picture_id": "example:cat"}
SLOW = CAT | {"method": ["scorecam"], "target": ["top5"]}
WAIT = 120.0
MB = 1 << 20
TOGETHER = {"bytes": 4 * MB, "coming": 12 * MB, "kept": 4 * MB, "pixels": 40_000_000}


@pytest.fixture(scope="module")
def small(started: Callable[..., Running]) -> str:
    """Little of everything."""
    options = ("--max-bytes", "300000", "--max-pixels", "1000000", "--timeout", "1", "--queue", "3")
    return started("--net", "efficientnet_lite0", *options).url


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With bounds for all requests that are small enough to be reached."""
    running = start_short(tmp_path_factory.mktemp("together"), **TOGETHER)
    yield running
    running.process.kill()
    running.process.wait()


def until(true: Callable[[], bool]) -> None:
    last = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < last
        time.sleep(0.02)


def metric(url: str, name: str) -> float:
    text = asked(url, request("GET", "/metrics")).body.decode()
    found = re.search(rf"^{name} (\S+)$", text, re.M)
    return float(found[1]) if found else 0.0


def again(answer: Answer) -> bool:
    """Refused for now, and told when to ask again."""
    return answer.status == 503 and int(answer.headers["retry-after"]) > 0 and bool(answer.detail)


def noise(side: int) -> bytes:
    """A PNG that does not shrink."""
    buffer = BytesIO()
    Image.fromarray(np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8)).save(buffer, "png")
    return buffer.getvalue()


class TestBytes:
    def test_by_what_it_says(self, small: str) -> None:
        """Before any of it is sent."""
        for length in (300_001, 10**12):
            raw = request("POST", "/v1/explain", b"", Content_Type="application/json", Content_Length=str(length))
            answer = asked(small, raw)
            assert answer.status == 413
            assert "300,000" in answer.detail

    @pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=a"])
    def test_as_it_streams(self, small: str, kind: str) -> None:
        """The sender goes on for a while, and still has the answer."""
        head = request("POST", "/v1/explain", b"", Content_Type=kind, Transfer_Encoding="chunked")
        start = (
            b'--a\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
            if "form" in kind
            else b'{"a": "'
        )
        with connect(small) as connection:
            connection.sendall(head + b"%x\r\n%s\r\n" % (len(start), start))
            try:
                for _ in range(64):
                    connection.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
            except ConnectionError:
                pytest.fail("cut off while it was sent, not answered")
            answer = Reader(connection).answer()
        assert answer is not None
        assert answer.status == 413

    def test_just_enough_is_enough(self, small: str) -> None:
        body = json.dumps(CAT).encode()
        body = body + b" " * (300_000 - len(body))
        assert asked(small, posted("predict", body)).status == 200
        assert asked(small, posted("predict", body + b" ")).status == 413


class TestPixels:
    @pytest.mark.parametrize("verb", ["explain", "look", "predict", "localize", "pictures", "sanity"])
    def test_too_many(self, small: str, verb: str) -> None:
        for raw in (
            uploaded(verb, png_of(1001, 1000)),
            posted(verb, {"picture": b64encode(png_of(1001, 1000)).decode()}),
        ):
            answer = asked(small, raw)
            assert answer.status == 422
            assert "1,001 x 1,000" in answer.detail
        assert asked(small, uploaded("predict", png_of(1000, 1000))).status == 200

    def test_many_large_ones_wait_for_one_another(self, together: Running) -> None:
        """Each is 40 million pixels, 160 MB once decoded: no more than five at a time."""
        raw = uploaded("predict", png_of(8000, 5000))
        assert asked(together.url, raw).status == 200
        before = peak(together, reset=True)
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(partial(asked, together.url), [raw] * 16))
        assert {answer.status for answer in answers} == {200}
        grown = peak(together) - before
        print(f"{grown >> 20} MB more at the peak of 16 x 160")
        assert grown < 1600 * MB


def peak(running: Running, reset: bool = False) -> int:
    """Bytes of memory, at most since it was reset."""
    process = Path(f"/proc/{running.process.pid}")
    if reset:
        (process / "clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    assert found is not None
    return int(found[1]) << 10


def endless_tiff() -> bytes:
    """Some kB that say 4,096 x 1,048,576 pixels: all of its tiles are the same one."""
    tile, across, down = zlib.compress(bytes(2048 * 512 * 3)), 512, 8
    tags = [
        (256, 4, 1, 2048 * across), (257, 4, 1, 512 * down), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 2),
        (277, 3, 1, 3), (322, 4, 1, 2048), (323, 4, 1, 512), (324, 4, across * down, 0), (325, 4, across * down, 0),
    ]  # fmt: skip
    offsets = 8 + 2 + 12 * len(tags) + 4
    lengths = offsets + 4 * across * down
    places = {324: offsets, 325: lengths}
    found = struct.pack("<2sHIH", b"II", 42, 8, len(tags))
    for tag, kind, count, value in tags:
        found += struct.pack("<HHII", tag, kind, count, places.get(tag, value))
    start = lengths + 4 * across * down
    found += struct.pack("<I", 0) + struct.pack("<I", start) * (across * down)
    return found + struct.pack("<I", len(tile)) * (across * down) + tile


class TestTime:
    def test_a_small_file_of_endless_pixels_ends_in_time_and_in_memory(self, small: str, together: Running) -> None:
        """Wherever it is read: for a verb, a preview or a tile."""
        raw = endless_tiff()
        assert len(raw) < 60_000
        kept = asked(small, uploaded("pictures", raw, "a.tif"))
        assert kept.status == 201, kept.body
        key = json.loads(kept.body)["id"]
        for asking in (
            request("GET", f"/v1/pictures/{key}/preview"),
            request("GET", f"/v1/pictures/{key}/tiles/0/0/0"),
            posted("localize", {"picture_id": key}),
            posted("explain", {"picture_id": key}),
        ):
            answer = asked(small, asking)
            assert again(answer), answer
            until(lambda: asked(small, posted("predict", CAT)).status == 200)  # nothing is held up by it
        before = peak(together, reset=True)
        with connect(together.url) as connection:
            connection.sendall(uploaded("explain", raw, "a.tif"))
            time.sleep(4)
        assert peak(together) - before < 900 * MB
        until(lambda: metric(together.url, "fovea_requests_at_work") == 0)

    def test_what_takes_too_long_is_given_up(self, small: str) -> None:
        """And the service goes on with what comes next."""
        for body, verb in ((SLOW, "explain"), (CAT | {"forwards": 600}, "look")):
            start = time.monotonic()
            answer = asked(small, posted(verb, body))
            assert again(answer), answer
            assert "longer than 1 s" in answer.detail
            assert time.monotonic() - start < WAIT
            until(lambda: asked(small, posted("predict", CAT)).status == 200)

    def test_the_quick_do_not_wait_for_the_slow(self, together: Running) -> None:
        with connect(together.url) as connection:
            connection.sendall(posted("look", CAT | {"forwards": 600}))
            until(lambda: metric(together.url, "fovea_requests_at_work") == 1)
            assert asked(together.url, posted("predict", CAT)).status == 200
            assert metric(together.url, "fovea_requests_at_work") == 1
        until(lambda: metric(together.url, "fovea_requests_at_work") == 0)

    def test_who_is_gone_is_not_worked_for(self, together: Running) -> None:
        """Nor for those behind: the thread is free long before it would have been done."""
        waiting = [connect(together.url) for _ in range(6)]
        for connection in waiting:
            connection.sendall(posted("look", CAT | {"forwards": 600, "trust": True}))
        until(lambda: metric(together.url, "fovea_requests_at_work") == 6)
        for connection in waiting:
            connection.close()
        until(lambda: metric(together.url, "fovea_requests_at_work") == 0)
        found = re.findall(r'"status": (\d+)', together.log.read_text())
        assert found.count("499") >= 6
        assert asked(together.url, posted("look", CAT | {"forwards": 20, "trust": False})).status == 200


class TestQueue:
    def test_no_more_than_so_many_at_once(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        running = start_short(tmp_path_factory.mktemp("queue"), queue=3)
        waiting = [connect(running.url) for _ in range(3)]
        for connection in waiting:
            connection.sendall(posted("look", CAT | {"forwards": 600}))
        until(lambda: metric(running.url, "fovea_requests_at_work") == 3)
        for raw in (posted("predict", CAT), uploaded("pictures", picture()), posted("explain", b"")):
            answer = asked(running.url, raw)
            assert again(answer)
            assert "3 requests" in answer.detail
        assert asked(running.url, request("GET", "/healthz")).status == 200
        for connection in waiting:
            connection.close()
        until(lambda: asked(running.url, posted("predict", CAT)).status == 200)
        running.process.kill()
        running.process.wait()

    def test_the_slow_to_send_take_nobodys_place(self, small: str) -> None:
        raw = posted("predict", CAT)
        slow = [connect(small) for _ in range(20)]
        for connection in slow:
            connection.sendall(raw[:-3])
        assert asked(small, raw).status == 200
        for connection in slow:
            connection.close()


class TestMemory:
    def test_bodies_that_come_at_once_have_a_bound_together(self, together: Running) -> None:
        """Four of nearly 4 MB are more than 12: one of them is refused; and all is well once they are gone."""
        raw = posted("predict", json.dumps(CAT).encode().ljust(4 * MB - 1000))
        coming = [connect(together.url) for _ in range(4)]
        statuses = list[int]()
        for connection in coming:
            connection.sendall(raw[:-1000])
        for connection in coming:
            connection.sendall(raw[-1000:])
        for connection in coming:
            answer = Reader(connection).answer()
            assert answer is not None
            assert answer.status == 200 or again(answer)
            statuses.append(answer.status)
            connection.close()
        assert statuses.count(200) >= 3
        assert asked(together.url, raw).status == 200

    def test_json_takes_memory_in_proportion(self, together: Running) -> None:
        """However many values it holds, each of which would take a hundred bytes."""
        before = peak(together, reset=True)
        for body in (b'{"method": [' + b"0," * 1_900_000 + b"0]}", b"{" + b'"a":0,' * 600_000 + b'"a":0}'):
            answer = asked(together.url, posted("explain", body))
            assert answer.status == 422
            assert "more than 25,000 values" in answer.detail
        assert peak(together) - before < 60 * MB

    def test_what_is_decoded_has_a_bound_when_all_is_asked_for_at_once(self, together: Running) -> None:
        keys = [json.loads(asked(together.url, uploaded("pictures", noise(300))).body)["id"] for _ in range(8)]
        raws = [posted("predict", {"picture_id": key}) for key in keys]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(partial(asked, together.url), raws))
        assert {answer.status for answer in answers} <= {200, 404}
        assert metric(together.url, "fovea_pictures_kept_bytes") <= TOGETHER["kept"]

    def test_many_big_ones_at_once(self, together: Running) -> None:
        assert asked(together.url, uploaded("pictures", noise(1000))).status == 201
        before = peak(together, reset=True)
        raws = [uploaded("pictures", noise(1100))] * 60
        with ThreadPoolExecutor(30) as pool:
            answers = list(pool.map(partial(asked, together.url), raws))
        assert all(answer.status == 201 or again(answer) for answer in answers)
        assert any(answer.status == 201 for answer in answers)
        assert peak(together) - before < 300 * MB

    def test_pictures_that_stay_have_a_bound(self, together: Running) -> None:
        """The least recently used goes."""
        url, one = (
            together.url,
            uploaded("pictures", noise(500)),
        )  # 0.75 MB; what is decoded goes first

        def sent() -> str:
            return json.loads(asked(url, one).body)["id"]

        def there(key: str) -> bool:
            return asked(url, posted("predict", {"picture_id": key})).status == 200

        keys = [sent() for _ in range(3)]
        assert there(keys[0])  # so it is the second that goes first
        keys += [sent(), sent(), sent()]
        assert metric(url, "fovea_pictures_kept_bytes") <= TOGETHER["kept"]
        assert there(keys[0])
        assert there(keys[-1])
        gone = asked(url, posted("predict", {"picture_id": keys[1]}))
        assert gone.status == 404
        assert "send it again" in gone.detail
        assert asked(url, request("GET", f"/v1/pictures/{keys[1]}/preview")).status == 404
        assert asked(url, request("DELETE", f"/v1/pictures/{keys[-1]}")).status == 204
        assert not there(keys[-1])

    def test_nor_do_large_files_fill_the_disk(self, together: Running) -> None:
        """TIFFs that are read window by window are files of ours: they count, and go, as the others do."""
        buffer = BytesIO()
        tifffile = pytest.importorskip("tifffile")
        values = np.random.default_rng(0).integers(0, 256, (512, 512, 3), np.uint8)
        tifffile.imwrite(buffer, values, tile=(256, 256), photometric="rgb")
        first = None
        for _ in range(12):
            answer = asked(together.url, uploaded("pictures", buffer.getvalue(), "a.tif"))
            assert answer.status == 201, answer.body
            first = first or json.loads(answer.body)
        assert first is not None
        assert first["deep"]
        (folder,) = (together.log.parent / "tmp").glob("fovea-*")
        assert sum(file.stat().st_size for file in folder.iterdir()) <= TOGETHER["kept"]
        assert asked(together.url, request("GET", f"/v1/pictures/{first['id']}/preview")).status == 404
        before = len(os.listdir(folder))
        broken = buffer.getvalue()[:-200_000]
        statuses = [asked(together.url, uploaded("pictures", broken, "a.tif")).status for _ in range(3)]
        assert len(os.listdir(folder)) <= before + statuses.count(201)
        assert asked(together.url, uploaded("predict", buffer.getvalue(), "a.tif")).status == 200
        assert len(os.listdir(folder)) <= before + statuses.count(201)  # what was sent for one request goes with it
