"""The docs as a site: built without a warning, read and searched from a folder, on a phone, with nothing fetched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("playwright.sync_api")
ROOT = Path(__file__).parents[1]
PHONE = {"width": 390, "height": 800}
LONG = 90_000  # milliseconds that the index may take on a busy machine


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_docs_is_there_and_every_public_name(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages |= {Path(f"{name}.html") for name in ("index", "SECURITY", "CONTRIBUTING", "CHANGELOG")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    reference = (site / "api.html").read_text(encoding="utf-8")
    for name in ("explain", "localize", "zoom", "look_longer", "watch", "HeatMap", "Network"):
        assert f'.{name}"' in reference


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_it_is_read_and_searched_from_a_folder(site: Path, browser: Any) -> None:
    page = browser.new_context(viewport=PHONE, offline=True).new_page()
    page.set_default_timeout(LONG)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for file in sorted(site.rglob("*.html")):
        if file.stem != "404":
            page.goto(file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], file.name
    page.goto((site / "index.html").as_uri())
    page.set_viewport_size({"width": 1400, "height": 900})
    page.locator(".md-search__input").fill("glimpse")
    page.locator(".md-search-result__item").first.wait_for()
    assert all(address.startswith(("file:", "blob:", "data:")) for address in asked)
