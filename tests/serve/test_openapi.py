"""What the service says of itself is what it does: schemathesis asks it all that its OpenAPI allows, and what it does
not, with every check that it has (schemathesis.toml)."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import fovea
from serve.conftest import Running
from serve.sending import asked, picture, request

pytest.importorskip("schemathesis")
ROOT = Path(__file__).parents[2]
EXAMPLES = 6  # by fuzzing, per operation; the examples and the bounds of every field come first


@pytest.fixture(scope="module")
def running(started: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory) -> Running:
    """With networks that are small, for all verbs, and an index."""
    folder = tmp_path_factory.mktemp("own")
    weights, index, photos = folder / "small.safetensors", folder / "small.fovea", folder / "photos"
    fovea.load("timm/test_resnet", pretrained=False, classes=3).save(weights)
    photos.mkdir()
    for side in (40, 50, 60):
        (photos / f"{side}.png").write_bytes(picture("png", (side, side)))
    fovea.index(weights, photos, index)
    nets = (str(weights), "tnet-digits", "anchornet_text-mr")
    return started(*(word for net in nets for word in ("--net", net)), "--index", str(index))


def api(running: Running) -> dict[str, dict[str, object]]:
    return json.loads(asked(running.url, request("GET", "/openapi.json")).body)["paths"]


def found(running: Running, paths: str, phases: str) -> str:
    """What schemathesis says of these."""
    words = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(ROOT / "schemathesis.toml"), "run"]
    words += [f"{running.url}/openapi.json", "--include-path-regex", paths, "--continue-on-failure", "--no-color"]
    words += ["--max-examples", str(EXAMPLES), "--phases", phases]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"(\d+) generated, \1 passed", done.stdout), done.stdout[-3000:]
    return done.stdout


def test_schemathesis_finds_nothing(running: Running) -> None:
    slow, phases = "/v1/(look|sanity|explain)$", "examples,coverage,fuzzing"
    with ThreadPoolExecutor(2) as pool:  # two processes: its own threads are not safe with Python 3.11
        given = (f"^{slow}", f"^(?!{slow})"), (phases, f"{phases},stateful")
        verbs, others = pool.map(partial(found, running), *given)
    assert "Selected: 3/16" in verbs
    assert "Selected: 13/16" in others
    assert "API Links:    3 covered" in others
    assert '"fault"' not in running.log.read_text()
    text = asked(running.url, request("GET", "/metrics")).body.decode()
    for path in api(running):  # every route was asked what it could answer
        assert re.search(rf'fovea_requests_total{{route="{re.escape(path)}",status="20[014]"}}', text), path


def test_where_a_network_lies_is_not_told(running: Running) -> None:
    for path in ("/openapi.json", "/v1/models", "/metrics"):
        text = asked(running.url, request("GET", path)).body.decode()
        assert str(running.log.parent.parent) not in text, path
    assert "small" in asked(running.url, request("GET", "/openapi.json")).body.decode()
