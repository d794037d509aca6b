"""The files of the page, read once when the service starts: nothing that a request says is ever a path."""

import base64
from importlib.resources import files

from fovea.results import pages

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHARED = ("painting.js", "stage.js")  # of pages of results


def page_files() -> dict[str, tuple[bytes, str]]:
    """Bodies and their types, by path."""
    page = {file.name: file.read_bytes() for file in files("fovea.serve").joinpath("page").iterdir() if file.is_file()}
    shared = {name: files("fovea.results").joinpath(name).read_bytes() for name in SHARED}
    found = {name: body for name, body in (shared | page).items() if _type(name)}
    paths = {f"/page/{name}": (body, _type(name)) for name, body in found.items()}
    paths["/page/openseadragon.js"] = pages.viewer().encode(), TYPES[".js"]
    paths["/page/colors.bin"] = base64.b64decode(pages.colors()), "application/octet-stream"
    return paths | {"/": paths["/page/index.html"]} if "/page/index.html" in paths else paths


def _type(name: str) -> str:
    return TYPES.get(f".{name.rpartition('.')[2]}", "")
