"""The published attacks, with the versions of timm that they work on: options that name a checkpoint or a URL.

The old versions lie in the folder that FOVEA_OLD_TIMM names, each below its number: `make lowest` puts them there.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import timm
from PIL import Image

import fovea
from checks import raises
from forging import Forge

pytestmark = pytest.mark.security
ROOT = Path(__file__).parents[2]
BOTH = """
import sys
from pathlib import Path
import timm
bad, trace, net, index = sys.argv[1:]
try:
    timm.create_model("test_resnet", checkpoint_path=bad)
except Exception:
    pass
print(timm.__version__, Path(trace).exists())
Path(trace).unlink()

import fovea
by_recipe = "timm/test_resnet", None, False, 3, {"checkpoint_path": bad}
for call, given in ((fovea.load, [net]), (fovea.open_index, [index]), (fovea.load, by_recipe)):
    try:
        call(*given)
        print("accepted")
    except fovea.FoveaError as error:
        print(error)
"""


class Code:
    """Unpickled, it makes a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("version", ["1.0.15", "1.0.25"])
def test_a_checkpoint_named_by_a_file_is_not_unpickled(version: str, forge: Forge, tmp_path: Path) -> None:
    old = Path(os.environ.get("FOVEA_OLD_TIMM", "nowhere"), version)
    if not (old / "timm").is_dir():
        pytest.skip(f"timm {version} is not at hand: make lowest, or FOVEA_OLD_TIMM=FOLDER with {version}/timm in it")
    trace, bad = tmp_path / "code ran", tmp_path / "bad.pth"
    bad.write_bytes(pickle.dumps(Code(trace)))
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (32, 32), (200, 10, 10)).save(tmp_path / "pictures/red.png")
    file = fovea.index(forge("net.safetensors"), tmp_path / "pictures", tmp_path / "a.fovea").file
    net = forge("net.safetensors", options={"checkpoint_path": str(bad)})  # where the index looks for its network
    path = os.pathsep.join(map(str, (old, ROOT / "src")))
    command = [sys.executable, "-c", BOTH, *map(str, (bad, trace, net, file))]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    first, *told = done.stdout.splitlines()
    assert first == f"{version} True", done.stderr  # timm alone runs the code
    assert [line.startswith("option checkpoint_path ") and " is refused: " in line for line in told] == [True] * 3
    assert not trace.exists()


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine: its address, and what it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/weights.pth", paths
        server.shutdown()


def test_a_url_named_by_a_file_is_not_fetched(
    asked: tuple[str, list[str]], forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, paths = asked
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    options = {"pretrained": True, "pretrained_cfg_overlay": {"url": url, "hf_hub_id": None}}
    raises(Exception, "404", timm.create_model, "test_resnet", **options)
    assert paths == ["/weights.pth"]  # timm alone asks for it

    path = forge(options=options)
    raises(fovea.BadNetwork, f"option pretrained of {path} is refused", fovea.load, path)
    del options["pretrained"]
    raises(fovea.BadNetwork, "option pretrained_cfg_overlay of .* is refused", fovea.load, forge(options=options))
    for pretrained in (True, False):
        words = "option pretrained_cfg_overlay is refused"
        raises(fovea.BadChoice, words, fovea.load, "timm/test_resnet", None, pretrained, None, options)
    assert paths == ["/weights.pth"]
