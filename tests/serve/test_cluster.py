"""The service on a Ray cluster answers as the ordinary one, whatever happens to its replicas, and leaves nothing."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serve import sending
from serve.conftest import Running, start
from serve.sending import Answer, asked, picture, posted, request, uploaded

ray = pytest.importorskip("ray")
cluster = pytest.importorskip("fovea.serve.cluster")

from fovea.basics import BadChoice  # noqa: E402
from fovea.serve import Limits, Scale  # noqa: E402
from fovea.serve.elsewhere import Question, Reply  # noqa: E402
from fovea.serve.refusing import Refused  # noqa: E402

NETS = ("--net", "efficientnet_lite0", "--net", "tnet-gtsdb", "--net", "anchornet_text-mr")
SMALL = ("--max-pixels", "1000000", "--timeout", "240")  # what is larger is read window by window
WAIT = 240.0  # seconds, at most, on a busy machine
COFFEE = {"picture_id": "example:coffee"}
LOOK = COFFEE | {"forwards": 100}


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """On a cluster of its own, with one replica, or two if there is much to do."""
    options = ("--engine", "ray", "--replicas", "1-2", *NETS, *SMALL)
    running = start(tmp_path_factory.mktemp("ray"), *options)
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture(scope="module")
def plain(started: Callable[..., Running]) -> Running:
    return started(*NETS, *SMALL)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask wait for a replica that starts."""
    monkeypatch.setattr(sending, "PATIENCE", WAIT)


def until(true: Callable[[], Any], pause: float = 0.1) -> None:
    last = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < last
        time.sleep(pause)


def below(pid: int) -> dict[int, str]:
    """The processes that this one started, and those that they did, by what they are called."""
    parents, names = dict[int, int](), dict[int, str]()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            stat, words = (place / "stat").read_text(), (place / "cmdline").read_bytes()
        except OSError:
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state != "Z":
            parents[int(place.name)], names[int(place.name)] = int(parent), words.replace(b"\0", b" ").decode()
    found, more = set[int](), {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return {each: names[each] for each in found}


def replicas(running: Running) -> list[int]:
    return [pid for pid, name in below(running.process.pid).items() if "ServeReplica" in name]


def metric(running: Running, name: str) -> float:
    text = asked(running.url, request("GET", "/metrics")).body.decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(found[1]) if found else 0.0


def tiled() -> bytes:
    """Larger than is decoded whole."""
    y, x = np.mgrid[:1536, :1536]
    image = Image.fromarray(np.stack([x % 251, y % 241, (x // 96 + y // 96) % 2 * 200], 2).astype(np.uint8))
    buffer = BytesIO()
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(buffer, np.asarray(image), tile=(256, 256), photometric="rgb")
    return buffer.getvalue()


JPEG = picture("jpeg", (300, 200))
QUESTIONS = {
    "explain": posted("explain", COFFEE | {"output": "exact", "method": ["l2caf", "gradcam"], "target": ["top2"]}),
    "a drawing": posted("explain", COFFEE | {"output": "png"}),
    "an array": uploaded("explain", JPEG, more=[("output", "npy")]),
    "predict": uploaded("predict", JPEG, more=[("output", "exact")]),
    "localize": posted("localize", COFFEE | {"output": "exact", "count": 3}),
    "a text": posted("localize", {"text": "a warm, funny film", "output": "exact"}),
    "zoom": posted("zoom", COFFEE | {"output": "exact", "glimpses": 2}),
    "look": posted("look", COFFEE | {"output": "exact", "forwards": 30}),
    "a large file": uploaded("explain", tiled(), "large.tif", [("output", "exact")]),
    "no picture": uploaded("explain", b"nothing", "a.png"),
    "an empty one": uploaded("explain", b"", "a.png"),
    "cut": uploaded("predict", JPEG[: len(JPEG) // 2], "cut.jpg"),
    "too large": uploaded("predict", picture("png", (1200, 1100)), "wide.png"),
    "no class": posted("explain", COFFEE | {"target": ["no such class"]}),
    "no method": posted("explain", COFFEE | {"method": ["gradcan"]}),
    "no network": posted("predict", COFFEE | {"net": "resnet"}),
    "a pair": posted("explain", COFFEE | {"target": ["pair"]}),
    "no example": posted("predict", {"picture_id": "example:none"}),
    "no map of a text": posted("localize", {"text": "a film", "output": "npy"}),
}
REFUSED = {"no picture": 422, "an empty one": 422, "cut": 422, "too large": 422, "no class": 422, "no method": 422,
           "no network": 422, "a pair": 422, "no example": 404, "no map of a text": 422}  # fmt: skip


def timeless(answer: Answer) -> bytes:
    """Without the milliseconds that a look took."""
    return re.sub(rb'"ms": [0-9.]+', b"", answer.body)


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_the_ordinary_services_to_the_bit(scaled: Running, plain: Running, name: str) -> None:
    here, there = asked(plain.url, QUESTIONS[name]), asked(scaled.url, QUESTIONS[name])
    assert here.status == there.status == REFUSED.get(name, 200), there.body[:300]
    assert timeless(there) == timeless(here)
    assert there.headers["content-type"] == here.headers["content-type"]


def test_pages_are_told_the_same(scaled: Running, plain: Running) -> None:
    for path in ("/v1/models", "/v1/labels?net=tnet-gtsdb", "/openapi.json", "/"):
        assert asked(scaled.url, request("GET", path)).body == asked(plain.url, request("GET", path)).body


def test_a_picture_that_stays_is_asked_about_again(scaled: Running) -> None:
    kept = asked(scaled.url, uploaded("pictures", tiled(), "large.tif"))
    assert kept.status == 201
    facts = json.loads(kept.body)
    assert facts["deep"]
    answers = [asked(scaled.url, posted("explain", {"picture_id": facts["id"]})) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert json.loads(answers[0].body)["results"][0]["name"] == "large.tif"
    assert asked(scaled.url, request("DELETE", f"/v1/pictures/{facts['id']}")).status == 204
    assert asked(scaled.url, posted("predict", {"picture_id": facts["id"]})).status == 404


def at_once(running: Running, raws: list[bytes]) -> list[Answer]:
    with ThreadPoolExecutor(len(raws)) as pool:
        return list(pool.map(lambda raw: asked(running.url, raw), raws))


def test_requests_at_once_go_through_the_network_together(scaled: Running) -> None:
    names = 'fovea_batch_size_count{lane="quick"}', 'fovea_batch_size_sum{lane="quick"}'
    before = [metric(scaled, name) for name in names]
    assert {answer.status for answer in at_once(scaled, [uploaded("explain", JPEG)] * 16)} == {200}
    batches, pictures = (metric(scaled, name) - was for name, was in zip(names, before, strict=True))
    assert pictures == 16
    assert 4 <= batches < 16  # four at most in each


@pytest.mark.slow
def test_a_replica_that_is_killed_loses_no_answer(scaled: Running) -> None:
    (victim,) = replicas(scaled)
    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(asked, scaled.url, posted("look", LOOK)) for _ in range(4)]
        until(lambda: metric(scaled, "fovea_requests_at_work") == 4)
        os.kill(victim, signal.SIGKILL)
        answers = [look.result(WAIT) for look in looks]
    assert [answer.status for answer in answers] == [200] * 4, [answer.body[:200] for answer in answers]
    assert {json.loads(answer.body)["results"][0]["label"] for answer in answers} == {"espresso"}
    assert '"replica lost"' in scaled.log.read_text()
    assert victim not in replicas(scaled)
    until(lambda: asked(scaled.url, request("GET", "/readyz")).status == 200)


def test_nobody_talks_to_the_cluster_without_its_token(scaled: Running) -> None:
    raylet, words = next((pid, name) for pid, name in below(scaled.process.pid).items() if "/raylet/raylet" in name)
    found, secret = re.search(r"--gcs-address=(\S+)", words), Path(f"/proc/{raylet}/environ").read_bytes()
    token = re.search(rb"RAY_AUTH_TOKEN=([0-9a-f]{64})\0", secret)
    assert found
    assert token
    script = f"import ray; ray.init({found[1]!r}, log_to_driver=False); print(ray.cluster_resources())"

    def joined(**own: str) -> "subprocess.CompletedProcess[str]":
        names = os.environ | {"RAY_NUM_REDIS_GET_RETRIES": "1", **own}
        return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=names)

    assert "'CPU'" in joined(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token[1].decode()).stdout
    for refused in (joined(RAY_AUTH_MODE="disabled"), joined(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)):
        assert refused.returncode
        assert "InvalidAuthToken" in refused.stderr


@pytest.mark.slow
def test_replicas_grow_with_the_load(scaled: Running) -> None:
    until(lambda: metric(scaled, "fovea_replicas") == 1)
    raw, over = posted("explain", COFFEE), list[bool]()

    def load() -> set[int]:
        return {asked(scaled.url, raw).status for _ in iter(lambda: not over, False)}

    with ThreadPoolExecutor(16) as pool:
        senders = [pool.submit(load) for _ in range(16)]
        try:
            until(lambda: metric(scaled, "fovea_replicas") == 2)
            assert len(replicas(scaled)) == 2
        finally:
            over.append(True)
        assert set[int]().union(*(sender.result(WAIT) for sender in senders)) == {200}


def test_it_ends_once_all_is_answered_and_leaves_nothing(scaled: Running) -> None:
    processes = below(scaled.process.pid)
    assert any("raylet" in name for name in processes.values())
    with ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(asked, scaled.url, posted("look", LOOK)) for _ in range(4)]
        until(lambda: metric(scaled, "fovea_requests_at_work") == 4)
        scaled.process.send_signal(signal.SIGINT)
        assert [look.result(WAIT).status for look in looks] == [200] * 4
    assert scaled.process.wait(WAIT) == 0
    until(lambda: not {pid for pid in processes if Path(f"/proc/{pid}/exe").exists() and is_ours(pid, processes)})
    lines = [json.loads(line) for line in scaled.log.read_text().splitlines() if line.startswith("{")]
    assert lines[-1]["event"] == "stopped"  # and Ray has nothing to say after it
    assert not [line for line in lines if line["event"] == "fault"]


def is_ours(pid: int, processes: dict[int, str]) -> bool:
    """Not another one that has its number by now."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() == processes[pid]
    except OSError:
        return False


class Handle:
    """A handle of Ray's, as far as it is used; what it gives is prepared."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked, self.cancelled, self.ask = iter(answers), count(), 0, self

    def remote(self, question: Question) -> "Handle":
        next(self.asked)
        return self

    def __await__(self) -> Any:
        answer = next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        return (yield from answer.__await__()) if hasattr(answer, "__await__") else answer

    def cancel(self) -> None:
        self.cancelled += 1


GONE = ray.exceptions.RayActorError
QUESTION = Question("predict", {})


def test_the_next_replica_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAUSE", 0.0)
    handle = Handle(GONE(), GONE(), Reply(b"x", "text/plain"))
    assert asyncio.run(cluster.Replicas(handle, "a").ask(QUESTION)).demand() == (b"x", "text/plain")
    assert next(handle.asked) == 3


def test_a_question_that_ends_replicas_is_not_sent_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAUSE", 0.0)
    handle = Handle(*[GONE()] * 100)
    with pytest.raises(Refused, match="replicas ended") as refused:
        asyncio.run(cluster.Replicas(handle, "a").ask(QUESTION))
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "2")
    assert next(handle.asked) == cluster.TRIES


def test_what_nobody_waits_for_is_cancelled() -> None:
    async def leave() -> Handle:
        handle = Handle(asyncio.get_running_loop().create_future())
        work = asyncio.ensure_future(cluster.Replicas(handle, "a").ask(QUESTION))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return handle

    assert asyncio.run(leave()).cancelled == 1


def test_a_refusal_stays_one() -> None:
    with pytest.raises(Refused, match="no") as refused:
        Reply(refused=(415, "no", {"A": "b"})).demand()
    assert (refused.value.status, refused.value.headers) == (415, {"A": "b"})


@pytest.mark.parametrize(("text", "least", "most"), [("2", 2, 2), ("1-4", 1, 4), (" 3-3 ", 3, 3)])
def test_replicas_as_they_are_typed(text: str, least: int, most: int) -> None:
    scale = Scale.of(text)
    assert (scale.least, scale.most) == (least, most)


@pytest.mark.parametrize("text", ["", "0", "4-1", "1-", "-3", "a", "1-4-5", "0-2", "1-100000", "1.5"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(BadChoice, match="--replicas takes"):
        Scale.of(text)


@pytest.mark.parametrize(("most", "cores", "each"), [(4, 2, 0.5), (2, 2, 1.0), (1, 16, 16.0), (4, 18, 4.0)])
def test_replicas_share_one_machine(most: int, cores: int, each: float) -> None:
    """No replica waits for ever for a core that another holds."""
    scale = Scale.of(f"1-{most}").sharing(cores)
    assert scale.cpus == each
    assert scale.cores <= cores


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--replicas", "2"), "--replicas is for a Ray cluster: add --engine ray"),
        (("--address", "auto"), "--address is for a Ray cluster: add --engine ray"),
        (("--engine", "ray", "--replicas", "none"), "--replicas takes a number or a range"),
        (("--engine", "spark"), "'spark' is not one of 'local'"),
    ],
)
def test_what_does_not_fit_is_refused_before_ray_is_started(words: tuple[str, ...], said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "fovea", "serve", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_without_ray_the_extra_is_named() -> None:
    script = "import sys; sys.modules['ray'] = None; from fovea.cli import program; program()"
    words = [sys.executable, "-c", script, "serve", "--engine", "ray", "--port", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "pip install 'fovea[serve,cluster]'" in done.stderr


def test_arguments_as_a_file_and_serve_run_give_them() -> None:
    typed = cluster.Arguments.model_validate({"net": "a,b", "replicas": "2", "batch": "4", "max_bytes": "1000"})
    filed = cluster.Arguments.model_validate({"net": ["a", "b"], "replicas": 2, "batch": 4, "max_bytes": 1000})
    assert typed == filed
    options = typed.options()
    assert (options.nets, options.limits.batch, options.limits.bytes) == (["a", "b"], 4, 1000)
    assert cluster.Arguments().options().limits == Limits()


@pytest.mark.parametrize("wrong", [{"nets": "a"}, {"batch": 0}, {"timeout": -1}, {"queue": 10**9}, {"cpus": 0}])
def test_other_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        cluster.Arguments.model_validate(wrong)


def test_a_network_that_is_not_there_is_said_before_a_cluster_is_started() -> None:
    given = [sys.executable, "-m", "fovea", "serve", "--engine", "ray", "--port", "0", "--net", "no-such-net"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 2
    assert "no-such-net" in done.stderr


@pytest.mark.parametrize(
    ("scale", "said"),
    [(Scale(3, 4), "take 3 CPU, and it has 2"), (Scale(1, 4, 1.0, 1.0), "take 1 GPU, and it has 0"), (Scale(2, 9), "")],
)
def test_a_cluster_that_is_too_small_is_said(monkeypatch: pytest.MonkeyPatch, scale: Scale, said: str) -> None:
    """Replicas would wait for room for ever."""

    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with pytest.raises(BadChoice, match=said) if said else nullcontext():
        cluster.demand_room(scale)


def free() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def head(tmp_path: Path) -> Iterator[dict[str, int]]:
    """A cluster of somebody's."""
    ports = {"port": free(), "ray-client-server-port": free(), "dashboard-port": free()}
    words = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=3",
             "--object-store-memory=200000000", *(f"--{name}={port}" for name, port in ports.items())]  # fmt: skip
    place, log = tempfile.mkdtemp(prefix="ray-", dir="/tmp"), tmp_path / "head.log"  # names of sockets are short
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": place}
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=os.environ | own)
    try:
        until(lambda: "Ray runtime started" in log.read_text())
        yield ports
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(place, ignore_errors=True)


def applications(head: dict[str, int], command: str = "status", *more: str) -> str:
    """What `serve status` says."""
    words = [str(Path(sys.executable).with_name("serve")), command, *more]
    own = {"RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{head['dashboard-port']}", "RAY_AUTH_MODE": "disabled"}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=os.environ | own).stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ray://127.0.0.1:{ray-client-server-port}", "127.0.0.1:{port}"])
def test_a_cluster_that_is_joined_is_left_as_it_was(
    head: dict[str, int], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    options = ("--engine", "ray", "--address", kind.format(**head), "--replicas", "2")
    running = start(tmp_path, "--net", "efficientnet_lite0", *options)
    try:
        assert asked(running.url, posted("predict", COFFEE)).status == 200
        said = applications(head)
        assert "fovea-" in said
        assert "RUNNING: 2" in said
    finally:
        code = running.stop()
    assert code == 0
    assert "fovea-" not in applications(head)
    assert "applications: {}" in applications(head)  # and the cluster is there


CONFIG = """
http_options: {{host: 127.0.0.1, port: {port}}}
applications:
- name: pictures
  route_prefix: /
  import_path: fovea.serve.cluster:app
  args: {{net: [efficientnet_lite0], replicas: "1", batch: 4, cpus: 0.5, token: secret}}
"""


@pytest.mark.slow
def test_a_config_file_of_serve(head: dict[str, int], plain: Running, tmp_path: Path) -> None:
    """Behind Ray's proxy: the same answers, the same checks."""
    port, file = free(), tmp_path / "fovea.yaml"
    file.write_text(CONFIG.format(port=port))
    applications(head, "deploy", str(file))
    until(lambda: applications(head).count("status: HEALTHY") == 2, 1.0)
    url = f"http://127.0.0.1:{port}"
    secret = {"Authorization": "Bearer secret"}
    assert asked(url, posted("predict", COFFEE)).status == 401
    assert asked(url, posted("predict", COFFEE, **secret)).body == asked(plain.url, posted("predict", COFFEE)).body
    assert asked(url, posted("predict", {"picture_id": "x"}, **secret)).status == 404
    assert asked(url, posted("predict", COFFEE, Origin="https://example.org", **secret)).status == 403
    assert asked(url, request("GET", "/readyz")).status == 200
    assert asked(url, request("GET", "/readyz", Host="example.org")).status == 421
    assert b"fovea_replicas 1.0" in asked(url, request("GET", "/metrics", **secret)).body
