"""What loading, explaining and searching open: the given files and the package, and nothing else.

Python tells an audit hook of every file, connection and process that it opens; not of what compiled packages open by
themselves
(safetensors maps the weights file, which Python has opened before). The same is done once before, with other
files, so that the imports of installed packages are not counted.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import fovea
from forging import Forge

pytestmark = pytest.mark.security
ROOT = Path(__file__).parents[1]
WATCHED = """
import json, os, sys
from pathlib import Path
import fovea

def use(folder):
    told = []
    for weights in sorted(folder.glob("*.safetensors")):
        try:
            fovea.explain(weights, folder / "pictures").save(folder / "out" / weights.stem)
        except fovea.FoveaError as error:
            told.append(str(error))
    for index in sorted(folder.glob("*.fovea")):
        try:
            fovea.open_index(index).search(folder / "pictures/a.png").save(folder / "out" / index.stem)
        except fovea.FoveaError as error:
            told.append(str(error))
    return told

before, given = map(Path, sys.argv[1:])
use(before)
forbidden = "socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "pty.", "urllib."
allowed = str(given) + os.sep, str(Path(fovea.__file__).parent) + os.sep
seen = []

def hook(event, args):
    if event.startswith(forbidden):
        seen.append([event, repr(args)])
    elif event == "open" and isinstance(args[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(args[0]))
        if not path.startswith(allowed):
            seen.append([event, path])

sys.addaudithook(hook)
told = use(given)
open(os.devnull).close()  # which the hook sees
print(json.dumps({"told": told, "seen": list(seen)}))
"""


def made(folder: Path, forge: Forge) -> Path:
    """Weights, an index and pictures; beside them an attack, and the index of a network that has become one."""
    (folder / "pictures").mkdir(parents=True)
    for name, color in {"a": (200, 10, 10), "b": (10, 10, 200)}.items():
        Image.new("RGB", (40, 40), color).save(folder / f"pictures/{name}.png")
    for name in ("good", "attacked"):
        weights = forge().rename(folder / f"{name}.safetensors")
        fovea.index(weights, folder / "pictures", folder / f"{name}.fovea")
    options = {
        "checkpoint_path": str(folder.parent / "secret.pth"),
        "pretrained_cfg_overlay": {"url": "http://127.0.0.1"},
    }
    forge(options=options).rename(folder / "attacked.safetensors")
    return folder


def test_only_the_given_files_and_the_package_are_opened(forge: Forge, tmp_path: Path) -> None:
    before, given = (made(tmp_path / name, forge) for name in ("before", "given"))
    command = [sys.executable, "-c", WATCHED, str(before), str(given)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["seen"] == [["open", os.devnull]]
    assert (given / "out/good/results.json").is_file()
    assert len(found["told"]) == 2
    assert all(line.startswith("option checkpoint_path of ") for line in found["told"])
