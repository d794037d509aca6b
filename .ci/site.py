"""The site of docs/: pages that lie beside it are taken in, and every public name has its docstring (mkdocs hooks)."""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BESIDE = {"README.md": "index.md", "SECURITY.md": "", "CONTRIBUTING.md": "", "CHANGELOG.md": ""}  # as they are called
MOVED = {name: new or name for name, new in BESIDE.items()}
WORKER = "assets/iframe-worker.js"  # for the search of a site that is read from a folder
STYLE = "assets/site.css", ".md-typeset td code { white-space: nowrap }\n"  # names in wide tables stay whole
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]+)?\)")


def on_files(files: Files, config: Any) -> Files:
    """What the site has besides docs/."""
    for name, new in MOVED.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, new, content=_linked(text, "", "").replace("](docs/", "](")))
    files.append(File.generated(config, WORKER, content=(ROOT / ".ci/iframe-worker.js").read_text(encoding="utf-8")))
    files.append(File.generated(config, STYLE[0], content=STYLE[1]))
    files.append(File.generated(config, "api.md", content=_reference()))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Files) -> str:
    """Links of docs/ to what lies beside it."""
    if page.file.generated_by:
        return text
    folder = posixpath.dirname(page.file.src_uri)
    return _linked(text, posixpath.join("docs", folder), folder)


def _linked(text: str, folder: str, place: str) -> str:
    """A page of this folder of the repository as one of that folder of the site. Links to files that are no pages, as
    [words](src/…), become their words."""

    def moved(found: re.Match[str]) -> str:
        words, target, part = found[1], posixpath.normpath(posixpath.join(folder, found[2])), found[3] or ""
        if target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif target in MOVED:
            target = MOVED[target]
        else:
            return words
        return f"[{words}]({posixpath.relpath(target, place or '.')}{part})"

    return LINK.sub(moved, text)


def _reference() -> str:
    """What `import fovea` gives, by the stub that says it."""
    stub = ast.parse((ROOT / "src/fovea/__init__.pyi").read_text(encoding="utf-8"))
    names = [
        (f"fovea.{node.module}", alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    verbs = sorted((one for one in names if one[1][0].islower()), key=lambda one: one[1])
    things = sorted((one for one in names if one[1][0].isupper()), key=lambda one: one[1])
    listed = "\n\n".join(f"::: {module}.{name}" for module, name in (*verbs, *things))
    return f"# Python\n\nEverything that `import fovea` gives; verbs first.\n\n{listed}\n"
