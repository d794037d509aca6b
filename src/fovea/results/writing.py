"""Results into a folder as they come: results.json, index.html and the pictures that it shows, loose files where they
are asked for. What was there before is never lost.

Several runs may write into one folder, after each other or at once. A row is replaced by the same picture, verb and
settings alone; where rows are of other runs than the file's `what` and `settings`, `runs` tells of which. A run that is
asked again after it was stopped keeps the rows of files that have not changed (`Writer.resume`).
"""

import html
import json
import os
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field

from fovea import basics
from fovea.basics import BadChoice, BadPicture, Count, Damaged, FoveaError, Names, Record, Text
from fovea.pictures import tell_skipped
from fovea.results import pages, resuming, views
from fovea.results.drawing import Size

if TYPE_CHECKING:
    from fovea.results.results import Result

Skipped = Sequence[tuple[str, str]]  # names, and why each could not be read
FILE, PAGE = "results.json", "index.html"
WAITING = 8  # results that are drawn later, at most
SECONDS = 5.0  # between two writings of the JSON
REMEDY = "name another folder, or move the file away"


class _Entry(Record):
    """What every entry has; each verb adds what its results say."""

    model_config = ConfigDict(extra="allow")

    name: Text
    reason: Text = ""
    stem: Annotated[str, Field(max_length=200, pattern=r"^[\w-]+$")] | None = None


def _followed(content: dict[str, Any]) -> dict[str, Any]:
    names_in(content)  # a RecursionError where it is too deep
    return content


Flat = Annotated[dict[Text, Any], AfterValidator(_followed)]
Entry = Annotated[Flat, AfterValidator(lambda entry: _Entry.model_validate(entry) and entry)]


class _Done(Record):
    """A line of a journal: a row with its files, and the picture's file as it was before it was looked at."""

    stamp: tuple[int, int]
    row: Entry


class Run(Record):
    """A verb and how it was asked, and the places of its entries among all."""

    what: Text
    settings: Flat
    results: list[Count]
    skipped: list[Count]


class Saved(Record):
    """What a results.json holds. Every verb writes the same envelope."""

    what: Text  # of the last run
    settings: Flat
    results: list[Entry]  # one row per picture: what its result's to_dict gives, and `files`
    skipped: list[Entry]  # name, reason
    runs: tuple[Run, ...] = ()  # those before

    @property
    def run(self) -> str:
        return _run(self.what, self.settings)

    def with_runs(self, kind: Literal["results", "skipped"]) -> list[tuple[dict[str, Any], str]]:
        """The entries, each with the run that it is of."""
        runs = dict.fromkeys(range(len(getattr(self, kind))), self.run)
        for run in self.runs:
            runs |= dict.fromkeys(getattr(run, kind), _run(run.what, run.settings))
        return [(entry, runs[place]) for place, entry in enumerate(getattr(self, kind))]


def _run(what: str, settings: Mapping[str, Any]) -> str:
    """A run by what it is known by, as JSON."""
    return json.dumps({"what": what, "settings": dict(settings)})


def read(folder: str | Path) -> Saved:
    """What `Results.save` wrote into a folder."""
    path = Path(folder)
    path = path / FILE if path.is_dir() else path
    try:
        return Saved.read(path.read_bytes(), path, REMEDY)
    except FileNotFoundError:
        raise FoveaError(f"no {FILE} in {path.parent}: name a folder that a verb's save or --out wrote") from None


def page_of(folder: Path) -> Path:
    """Where a folder's page goes: never over one that is not fovea's."""
    page, beside = folder / PAGE, folder / views.FOLDER
    if not basics.replaceable(page) or (page.is_file() and not pages.is_ours(page)):
        raise BadChoice(f"{page} is not fovea's and would be lost: {REMEDY}")
    if os.path.lexists(beside) and (beside.is_symlink() or not beside.is_dir()):
        raise BadChoice(f"{beside} is no folder of fovea's: {REMEDY}")
    return page


def write_picture(path: Path, image: Any, **options: Any) -> None:
    """A PIL picture, or what saves itself alike, in the format that the name ends in."""
    with basics.whole(path) as part:
        image.save(part, **options)


def write_values(path: Path, values: Any) -> None:
    """As .npy."""
    with basics.whole(path) as part:
        np.save(part, values)


@dataclass
class Writer:
    """A folder that fills as results come; results.json and index.html are written now and then, and at the end.

    `files`: loose pictures and values, too; "full": with overlays at the pictures' own size. `fresh`: where the folder
    is there already, one beside it, folder-2, ….
    """

    growing: ClassVar[bool] = True  # the page, too, is written now and then

    folder: Path
    what: str
    settings: Mapping[str, Any]
    files: bool | Literal["full"] = False
    fresh: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)  # of this run
    skipped: list[tuple[str, str]] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    before: Saved | None = None  # what the folder holds, as it was last read or written
    due: float = 0.0  # when to write next

    def __post_init__(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise FoveaError(f"{self.folder} is a file; name a folder")
        self.run = _run(self.what, self.settings)
        self.names.taken |= {Path(name).stem: name for name in (FILE, PAGE)}
        self._keys: list[str] = []  # of `rows`
        self._known: list[str] = []  # of the rows in `before`
        self._stamp: tuple[int, ...] | None = None
        self._claims: set[Path] = set()
        self._drawing = deque[tuple[dict[str, Any], str, Future[dict[str, Any]]]]()  # rows, keys and their files
        self._pool, self._failed = ThreadPoolExecutor(1, "fovea"), False  # one: none is drawn after a failure
        self._stamps: dict[str, tuple[int, int] | None] = {}  # of what is to be done, in its order
        self._notes = ""  # the name of its journal, which is made with the first row
        self._journal: resuming.Journal | None = None
        if not self.fresh:
            self._look()
            page_of(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = False
        try:
            try:
                self._pool.shutdown()  # what was added is drawn, also when something else has failed
                self.collect()
            finally:
                if kind is None or self.rows:  # a wrong choice found at once leaves the folder as it was
                    self.finish()
            ended = kind is None
        finally:
            self._release()
            if self._journal is not None:
                self._journal.close(ended)

    def resume(self, groups: Sequence[Sequence[str]], asked: Any) -> set[str]:
        """The files among these that a run that asked the same had done when it was stopped: their rows are taken
        over. A group is what is done together. From now on this run can be gone on with, too."""
        self._stamps = {name: resuming.stamp_of(name) for group in groups for name in group}
        self._notes = resuming.name_of([self.run, self.files, asked])
        for folder in resuming.folders(self.folder) if self.fresh else [self.folder]:
            if (folder / self._notes).is_file() and (journal := resuming.Journal.held(folder / self._notes)):
                self.folder, self.fresh, self._journal = folder, False, journal
                self._look()
                page_of(folder)
                rows = self._rows_of(journal)
                done = [group for group in groups if all(name in rows and self._is_there(rows[name]) for name in group)]
                self.rows = [rows[name] for group in done for name in group]
                self._keys = [_key(row, self.run) for row in self.rows]
                break
        return {row["name"] for row in self.rows}

    def _rows_of(self, journal: resuming.Journal) -> dict[str, dict[str, Any]]:
        """By the names of files that are still what they were."""
        rows = {}
        for line in journal.lines():
            with suppress(Damaged):
                done = _Done.read(line, journal.path, REMEDY)
                if done.stamp == self._stamps.get(name := done.row["name"]):
                    rows[name] = done.row
        return rows

    def _is_there(self, row: Mapping[str, Any]) -> bool:
        """Whether the files of a row are, under a stem that is this run's."""
        key, stem = _key(row, self.run), row.get("stem") or ""
        claim = self.folder / f".{stem}.claim"
        if self.names.taken.setdefault(stem, key) != key or not basics.claimed(claim, key):
            return False
        self._claims.add(claim)
        self.names.given[key] = stem
        return all(os.path.isfile(self.folder / name) for name in names_in(row.get("files", {})))

    def add(self, results: "Iterable[Result]", skipped: Skipped = ()) -> None:
        """Drawn in a thread, while what comes next is looked at; a few at most wait for it.

        One whose picture cannot be read again to be drawn (gone, cut, changed) is skipped like any other."""
        self.skipped += skipped
        for result in results:
            self._make()
            if self._notes and self._journal is None:
                self._journal = resuming.Journal.held(self.folder / self._notes)
                self._notes = self._notes if self._journal else ""  # another run has it
            try:
                row = {"name": result.name, "stem": "", **result.to_dict()}
            except BadPicture as reason:
                self.skipped.append((result.name, str(reason)))
                continue
            key = _key(row, self.run)
            row["stem"] = self._claim(result, key)
            self._drawing.append((row, key, self._pool.submit(copy_context().run, self._draw, result, row)))
            self.collect(WAITING)
        if time.monotonic() > self.due:
            self.collect()
            self._write()

    def _draw(self, result: "Result", row: Mapping[str, Any]) -> dict[str, Any]:
        """The names of a result's files, once they are written."""
        if self._failed:
            raise CancelledError
        size: Size = "full" if self.files == "full" else None
        try:
            view = result.view()
            files: dict[str, Any] = {"view": views.write(view, self.folder, row["stem"])}
            files |= views.write_beside(view, self.folder, row["stem"])
            files |= result.files(self.folder, row["stem"], size) if self.files else {}
            if self._journal is not None and (stamp := self._stamps.get(result.name)):
                self._journal.add({"stamp": stamp, "row": {**row, "files": files}})
            return files
        except BaseException as error:
            self._failed = not isinstance(error, BadPicture)
            raise

    def collect(self, most: int = 0) -> None:
        """Rows whose files are written, until at most so many wait for theirs."""
        while len(self._drawing) > most or (self._drawing and self._drawing[0][2].done()):
            row, key, drawn = self._drawing.popleft()
            try:
                row["files"] = drawn.result()
            except CancelledError:
                continue
            except BadPicture as reason:
                self.skipped.append((row["name"], str(reason)))
            else:
                self.rows.append(row)
                self._keys.append(key)

    @property
    def waiting(self) -> int:
        """How many of those added last are not in the folder yet."""
        return len(self._drawing)

    def finish(self) -> None:
        """Rows that were taken over stand among the others as if all had been done now."""
        places = {name: place for place, name in enumerate(self._stamps)}
        order = sorted(range(len(self.rows)), key=lambda i: places.get(self.rows[i]["name"], len(places)))
        self.rows, self._keys = [self.rows[i] for i in order], [self._keys[i] for i in order]
        self._write(last=True)

    def _make(self) -> None:
        """The folder: that of another run is left to it where this one has its own."""
        if self.fresh:
            self.folder, self.fresh = basics.taken(self.folder), False
        self.folder.mkdir(parents=True, exist_ok=True)

    def page(self, saved: Saved) -> str:
        """index.html of all rows, those of the last run first."""
        rows = saved.with_runs("results")
        runs = dict.fromkeys([saved.run, *(run for _, run in rows)])
        drawn = [(json.loads(run), [_article(row) for row, of in rows if of == run]) for run in runs]
        maps = any(_view_of(row).get("photograph") for row, _ in rows)
        return _page(drawn, [str(entry.get("reason")) for entry in saved.skipped], maps)

    @property
    def others(self) -> list[dict[str, Any]]:
        """The rows of other pictures and runs that were there when it was last written."""
        rows = self.before.results if self.before is not None else []
        return rows[: len(rows) - len(self.rows)]

    def _claim(self, result: "Result", key: str) -> str:
        """A stem that no other row has and no other run takes at this moment; that of the same row before, if any."""
        path, end = Path(result.name), getattr(result, "saved_as", ("", ""))[1]
        while True:
            stem = self.names.take(path.stem or "picture", key)
            claim = self.folder / f".{stem}.claim"
            if basics.claimed(claim, key):
                self._claims.add(claim)
                self._look()
                written = self.folder / f"{stem}.{end}", self.folder / views.FOLDER / f"{stem}.jpg"
                itself = any(file.exists() and path.exists() and path.samefile(file) for file in written)
                if self.names.taken[stem] == key and not itself:  # a picture is not drawn over
                    return stem
            self.names.taken[stem] = ""

    def _release(self) -> None:
        while self._claims:
            self._claims.pop().unlink(missing_ok=True)

    def _look(self) -> None:
        """Read results.json where it is not as it was."""
        path = self.folder / FILE
        if not os.path.lexists(path):
            self.before, self._known, self._stamp = None, [], None
            return
        if not path.is_file():
            raise Damaged(f"{path} is no file: {REMEDY}")
        stamp = _stamp(path)
        if stamp == self._stamp:
            return
        self.before, self._stamp = read(path), stamp
        self._known = [_key(row, run) for row, run in self.before.with_runs("results")]
        for row, key in zip(self.before.results, self._known, strict=True):
            if row.get("stem"):
                self.names.taken[row["stem"]] = key
                self.names.given[key] = row["stem"]

    def _write(self, last: bool = False) -> None:
        start = time.monotonic()
        self._make()
        with basics.locked(self.folder):
            try:
                self._look()
            except Damaged as error:  # it was none of fovea's when this run began
                aside = self.folder / f"results.{os.getpid()}-{time.time_ns()}.json"
                (self.folder / FILE).rename(aside)
                warnings.warn(f"{error}; it is kept as {aside.name}", stacklevel=2)
                self._look()
            saved, keys = self._merged()
            content = dict(saved) | {"runs": [dict(run) for run in saved.runs]}
            kept = {name: content[name] for name in content if name != "runs" or saved.runs}
            basics.write_json(self.folder / FILE, kept)
            self.before, self._known, self._stamp = saved, keys, _stamp(self.folder / FILE)
            if last or self.growing:
                basics.write_text(self.folder / PAGE, self.page(saved))
        self._release()
        now = time.monotonic()
        self.due = now + SECONDS * max(1, 2 * (now - start))  # a long file is written less often

    def _merged(self) -> tuple[Saved, list[str]]:
        """The rows of this run, after those of other pictures and runs that the folder holds; and the rows' keys."""
        before, mine = self.before, set(self._keys)
        head = self.run if self.rows or before is None else before.run
        noted = {row["name"] for row in self.rows} | {name for name, _ in self.skipped}
        rows, keys, left = list[Any](), list[str](), list[Any]()
        if before is not None:
            old = zip(before.with_runs("results"), self._known, strict=True)
            rows, keys = [row for row, key in old if key not in mine], [key for key in self._known if key not in mine]
            skipped = before.with_runs("skipped")
            left = [(entry, run) for entry, run in skipped if run != self.run or entry["name"] not in noted]
        rows += [(row, self.run) for row in self.rows]
        left += [({"name": name, "reason": reason}, self.run) for name, reason in self.skipped]
        places = {
            run: json.loads(run) | {"results": [], "skipped": []}
            for run in dict.fromkeys(run for _, run in [*rows, *left])
        }
        for kind, entries in (("results", rows), ("skipped", left)):
            for place, (_, run) in enumerate(entries):
                places[run][kind].append(place)
        content = json.loads(head) | {"results": [row for row, _ in rows], "skipped": [entry for entry, _ in left]}
        content["runs"] = tuple(Run.model_construct(**about) for run, about in places.items() if run != head)
        return Saved.model_construct(**content), [*keys, *self._keys]


def _stamp(path: Path) -> tuple[int, ...]:
    facts = path.stat()
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _key(row: Mapping[str, Any], run: str) -> str:
    """Whose a row is: a picture's, a verb's and its settings'. What is no file is known by all that is said of it."""
    said = {name: value for name, value in row.items() if name not in ("stem", "files")}
    which = row["name"] if os.path.isfile(row["name"]) else said
    return sha256(json.dumps([run, which], sort_keys=True).encode()).hexdigest()[:32]


def page_text(what: str, settings: Mapping[str, Any], results: "Iterable[Result]", skipped: Skipped) -> str:
    """The same as one page with the pictures inside."""
    drawn, left, maps, deep = list[str](), list(skipped), False, False
    for result in results:
        try:
            drawn.append(article_of(result))
            view = result.view()
            maps, deep = maps or bool(view.overlays), deep or view.deep
        except BadPicture as reason:
            left.append((result.name, str(reason)))
    tell_skipped(True, left[len(skipped) :], stacklevel=4)
    return _page([({"what": what, "settings": settings}, drawn)], [reason for _, reason in left], maps, deep)


def article_of(result: "Result") -> str:
    """A result as a part of a page, with everything inside."""
    view = result.view()
    pictures = view.pictures()
    sources = ["", *map(pages.inside, pictures[1:])][: len(pictures)]  # the first is in the article
    content = view.to_dict([picture.size for picture in pictures], sources, [""] * len(pictures))
    row = {"name": result.name, "label": result.label, "probability": result.probability}
    src = pages.inside(pictures[0]) if pictures else ""
    return pages.article(row, "", src, content=views.script_json(content))


def _view_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    files = row.get("files")
    view = files.get("view") if isinstance(files, Mapping) else None
    return view if isinstance(view, Mapping) else {}


def _article(row: Mapping[str, Any]) -> str:
    """Of a row of results.json; the first picture of one that says of none what the page shows."""
    shown = _view_of(row)
    data = str(shown.get("data") or "")
    return pages.article(row, str(row.get("stem") or ""), _picture(row), pages.address(data))


def _picture(row: Mapping[str, Any]) -> str:
    pictures = [name for name in names_in(row.get("files", {})) if name.endswith((".png", ".jpg"))]
    return pages.address(pictures[0]) if pictures else ""


def figures(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The first picture of each row, with its caption."""
    for row in rows:
        first = f'<img alt="" loading="lazy" src="{src}">' if (src := _picture(row)) else ""
        share = row.get("probability")
        words = f"{row.get('label') or ''} {share:.2f}" if isinstance(share, (int, float)) else row.get("label") or ""
        caption = f"<b>{html.escape(str(words))}</b><br>{pages.breaking(Path(row['name']).name)}"
        yield f"<figure>{first}<figcaption>{caption}</figcaption></figure>"


def strip(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a page of its own shows of the rows before."""
    return [f'<h2>before</h2><div class="strip">{"".join(figures(rows))}</div>'] if rows else []


def _page(
    runs: Sequence[tuple[Mapping[str, Any], Sequence[str]]], skipped: Sequence[str], maps: bool, deep: bool = False
) -> str:
    body = []
    for number, (run, drawn) in enumerate(runs):
        told = {key: value for key, value in run["settings"].items() if value is not None}
        note = f"<p>{html.escape(str(told.pop('note')))}</p>" if "note" in told else ""
        about = ", ".join(f"{key}: {_in_words(value)}" for key, value in told.items())
        level = "h2" if number else "h1"
        body.append(f'<{level}>{html.escape(run["what"])}</{level}><p class="dim">{html.escape(about)}</p>{note}')
        if number == 0:
            body += [pages.legend() if maps else "", pages.controls(sum(len(articles) for _, articles in runs), maps)]
        body.append(f'<div class="run">{"".join(drawn)}</div>')
    left = "".join(f"<li>{html.escape(reason)}</li>" for reason in skipped)
    body.append(f"<section><h2>could not be read</h2><ul>{left}</ul></section>" if left else "")
    return pages.page(runs[0][0]["what"], body, scripts=pages.scripts(deep), maps=maps)


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_in_words(part)} ({key})" for key, part in value.items())
    return ", ".join(map(_in_words, value)) if isinstance(value, (list, tuple)) else str(value)


def names_in(value: Any) -> list[str]:
    """The file names in a row's `files`, however deep."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [name for part in inner for name in names_in(part)]
