"""Results into a folder as they come: pictures, results.json, index.html. What was there before is never lost."""

import html
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fovea.basics import FoveaError, Names, write_json, write_text
from fovea.results import pages

if TYPE_CHECKING:
    from fovea.results.results import Result

Skipped = Sequence[tuple[str, str]]  # names, and why each could not be read
FILE, PAGE = "results.json", "index.html"
SECONDS = 5.0  # between two writings of the JSON


@dataclass(frozen=True)
class Saved:
    """What a results.json holds. Every verb writes the same envelope."""

    what: str
    settings: Mapping[str, Any]
    results: list[dict[str, Any]]  # one row per picture: what its result's to_dict gives, and `files`
    skipped: list[dict[str, str]]  # name, reason


def read(folder: str | Path) -> Saved:
    """What `Results.save` wrote into a folder."""
    path = Path(folder)
    path = path / FILE if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Saved(*(content[key] for key in ("what", "settings", "results", "skipped")))
    except FileNotFoundError:
        raise FoveaError(f"no {FILE} in {path.parent}: name a folder that a verb's save or --out wrote") from None
    except (ValueError, KeyError, TypeError):
        raise FoveaError(f"{path} is no results file of fovea's: name another folder") from None


@dataclass
class Writer:
    """A folder that fills as results come; results.json is written now and then, and at the end."""

    folder: Path
    what: str
    settings: Mapping[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)  # of this run
    skipped: list[tuple[str, str]] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    before: Saved | None = None
    written: float = 0.0

    def __post_init__(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise FoveaError(f"{self.folder} is a file; name a folder")
        if (self.folder / FILE).is_file():
            self.before = read(self.folder)
            for row in self.before.results:
                self.names.taken |= {stem: row["name"] for stem in [row.get("stem")] if stem}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or self.rows:  # a wrong choice found at once leaves the folder as it was
            self.finish()

    def add(self, results: "Iterable[Result]", skipped: Skipped = ()) -> None:
        for result in results:
            self.folder.mkdir(parents=True, exist_ok=True)
            stem = self.names.take(Path(result.name).stem or "picture", result.name)
            row = {"name": result.name, "stem": stem, **result.to_dict()}
            row["files"] = result.files(self.folder, stem)
            self.rows.append(row)
        self.skipped += skipped
        if time.monotonic() - self.written > SECONDS:
            self._write()

    def finish(self) -> None:
        rows = self._write()
        write_text(self.folder / PAGE, self.page(rows))

    def page(self, rows: list[dict[str, Any]]) -> str:
        """index.html of all rows, those that were there before first."""
        return _page(self.what, self.settings, figures(rows), self.skipped)

    def _write(self) -> list[dict[str, Any]]:
        """The rows of this run, after those of other pictures that the folder held."""
        self.folder.mkdir(parents=True, exist_ok=True)
        mine = {row["name"] for row in self.rows}
        kept = [row for row in self.before.results if row["name"] not in mine] if self.before else []
        content = {"what": self.what, "settings": dict(self.settings), "results": [*kept, *self.rows]}
        left = [{"name": name, "reason": reason} for name, reason in self.skipped]
        write_json(self.folder / FILE, content | {"skipped": left})
        self.written = time.monotonic()
        return [*kept, *self.rows]


def write_page(
    file: Path, what: str, settings: Mapping[str, Any], results: "Iterable[Result]", skipped: Skipped
) -> Path:
    """The same as one file with the pictures inside."""
    file.parent.mkdir(parents=True, exist_ok=True)
    drawn = [pages.figure(row.draw(), _caption(row.name, row.label, row.probability)) for row in results]
    write_text(file, _page(what, settings, drawn, skipped))
    return file


def figures(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The first picture of each row, with its caption."""
    for row in rows:
        pictures = [name for name in _strings(row.get("files", {})) if name.endswith((".png", ".jpg"))]
        caption = _caption(row["name"], row.get("label") or "", row.get("probability"))
        first = f'<img alt="" src="{html.escape(pictures[0])}">' if pictures else ""
        yield f"<figure>{first}<figcaption>{caption}</figcaption></figure>"


def _page(what: str, settings: Mapping[str, Any], drawn: Iterable[str], skipped: Skipped) -> str:
    about = ", ".join(f"{key}: {value}" for key, value in settings.items() if value is not None)
    left = "".join(f"<li>{html.escape(reason)}</li>" for _, reason in skipped)
    body = [
        f'<h1>{html.escape(what)}</h1><p class="dim">{html.escape(about)}</p>',
        f'<div class="strip">{"".join(drawn)}</div>',
        f"<section><h2>could not be read</h2><ul>{left}</ul></section>" if left else "",
    ]
    return pages.page(what, body)


def _caption(name: str, label: str, probability: float | None) -> str:
    share = "" if probability is None else f" {probability:.2f}"
    return f"<b>{html.escape(label)}{share}</b><br>{pages.breaking(Path(name).name)}"


def _strings(value: Any) -> list[str]:
    """The file names in a row's `files`, however deep."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [name for part in inner for name in _strings(part)]
