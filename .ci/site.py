"""The site of docs/: pages that lie beside it are taken in, and every public name has its docstring (mkdocs hooks)."""

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BESIDE = {"README.md": "index.md", "SECURITY.md": "", "CONTRIBUTING.md": "", "CHANGELOG.md": ""}  # as they are called
MOVED = {name: new or name for name, new in BESIDE.items()}
WORKER = "assets/iframe-worker.js"  # for the search of a site that is read from a folder
STYLE = "assets/site.css", ".md-typeset td code { white-space: nowrap }\n"  # names in wide tables stay whole
LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """What the site has besides docs/."""
    for name, new in MOVED.items():
        text = LINK.sub(lambda found: f"]({_from_root(found[1])})", (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, new, content=_plain(text)))
    files.append(File.generated(config, WORKER, content=(ROOT / ".ci/iframe-worker.js").read_text(encoding="utf-8")))
    files.append(File.generated(config, STYLE[0], content=STYLE[1]))
    files.append(File.generated(config, "api.md", content=_reference()))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Files) -> str:
    """Links of docs/ to what lies beside it."""
    return _plain(LINK.sub(lambda found: f"]({_moved(found[1].removeprefix('../'))})", text))


def _from_root(target: str) -> str:
    return _moved(target.removeprefix("docs/"))


def _moved(target: str) -> str:
    name, mark, part = target.partition("#")
    return MOVED.get(name, name) + mark + part


def _plain(text: str) -> str:
    """Links to files that are no pages, as [words](src/…), become their words."""
    return re.sub(r"\[([^\]]+)\]\((?:src|recipes|results|CITATION)[^)]*\)", r"\1", text)


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
