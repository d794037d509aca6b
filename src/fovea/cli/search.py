"""fovea index, fovea search."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fovea.basics import write_json
from fovea.cli.bulk import ENGINE, engine_of
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, say_page, warn, write

if TYPE_CHECKING:
    from fovea.retrieval import Search


@command(
    "index",
    arguments=("pictures",),
    options=("net", "weights", "features", "out", "json", "batch", "fresh", "fit", "device", "max_pixels", *ENGINE),
    usual={"out": Path("out/index.fovea")},
    help={"out": "The index: a file, or a folder for index.fovea."},
    examples=(
        "fovea index photos/ --out photos.fovea",
        "fovea index birds/ --net efficientnet_lite0-cub100 --out birds.fovea",
    ),
)
def index(asked: Asked) -> None:
    """Make an index of pictures by what a network recognizes in them, for 'fovea search'.

    Run again, it takes up pictures that are new, changed or gone; stopped, it goes on where it was."""
    start = time.perf_counter()
    keys = ("weights", "features", "batch", "fresh", "max_pixels", "device")
    with bar("indexing", resumes=True) as advance:
        from fovea import retrieval
        from fovea.measures.figures import Figures

        options = {key: asked.values[key] for key in keys} | {"fit": asked.fit_asked, "engine": engine_of(asked)}
        found = retrieval.index(asked.one("net"), asked.pictures, asked.out, **options, progress=advance)
    _tell(found.skipped, "cannot be read")
    counts = {name: getattr(found, name) for name in ("pictures", "added", "changed", "already", "dropped")}
    write(Figures("index", {"net": asked.one("net"), "file": found.file.name}, [counts], found.skipped), asked.json)
    say.print(
        f"{found.pictures:,} pictures in {found.file}: {found.added:,} new, {found.changed:,} changed, "
        f"{found.already:,} already there, {found.dropped:,} dropped, {len(found.skipped):,} that cannot be read; "
        f"{time.perf_counter() - start:.1f} s"
    )


@command(
    "search",
    arguments=("pictures",),
    options=("index", "net", "count", "out", "files", "json", "folder", "device", "max_pixels"),
    usual={"out": Path("out/search"), "net": None},
    help={
        "net": "The network of the index, where it is your own and the index cannot name it.",
        "count": "Neighbors shown for each picture; 8, or all of a smaller index, if not given.",
    },
    examples=(
        "fovea search bird.jpg --index birds.fovea",
        "fovea search new/ --index photos.fovea --count 3",
    ),
)
def search(asked: Asked) -> None:
    """Find the pictures of an index most like a given one, and show where they are alike: a page to open."""
    start = time.perf_counter()
    asked.folder()
    with bar("opening the index"):
        from fovea.results import PAGE
        from fovea.retrieval import Searches, open_index

        opened = open_index(asked.index, asked.one("net"), asked.values["folder"], asked.device)
    writer = asked.writer("search", opened.settings, Searches.writer)
    loaded = time.perf_counter() - start
    if opened.unfinished:
        words = f"{len(opened):,} of {opened.unfinished:,} pictures; run 'fovea index' again to finish it"
        warn.print(f"{asked.index} is unfinished: {words}")
    found, skipped = list["Search"](), list[tuple[str, str]]()
    with bar(f"searching {len(opened):,} pictures") as advance:
        for step in opened.steps(asked.pictures, asked.count, asked.max_pixels):
            found += step.results
            skipped += step.skipped
            advance(step.done, step.total)
    _tell(skipped, "skipped")
    for result in found:
        _show(result)
    if found:
        seconds = sum(result.seconds for result in found) / len(found)
        each = f"answered in {seconds:.2f} s" + (" each" if len(found) > 1 else "")
        say.print(f"loaded in {loaded:.1f} s, {each}, {len(opened):,} pictures")
    start = time.perf_counter()
    with bar("drawing the page") as advance, writer:
        writer.add((), skipped)
        for done, result in enumerate(found, 1):
            writer.add([result])
            advance(done, len(found))
    _tell(writer.skipped[len(skipped) :], "skipped")  # gone since it was read
    if asked.json:
        left = [{"name": name, "reason": reason} for name, reason in writer.skipped]
        write_json(asked.json, {"what": "search", "settings": opened.settings, "results": writer.rows, "skipped": left})
    say.print(f"drawn in {time.perf_counter() - start:.1f} s")
    say_page(writer.folder / PAGE)
    if not writer.rows:
        raise typer.Exit(1)


def _show(found: "Search") -> None:
    itself = f" (itself in the index, as {found.itself.name})" if found.itself else ""
    say.print(f"{found.name}{itself}")
    for near in found.neighbors:
        words = f", {near.label}" if near.label and near.label not in Path(near.name).parts else ""
        say.print(f"  {near.similarity:.3f}  {near.name}{words}{', itself' if near.itself else ''}")


def _tell(skipped: Sequence[tuple[str, str]], what: str) -> None:
    for _, reason in skipped[:10]:
        warn.print(f"{what}: {reason}")
    if len(skipped) > 10:
        warn.print(f"… and {len(skipped) - 10} more")
