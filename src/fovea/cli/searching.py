"""fovea index, fovea search."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fovea.basics.errors import BadChoice, BadPicture
from fovea.cli.common import Batch, Device, Json, Net, Weights, bar, say, warn

if TYPE_CHECKING:
    from fovea.retrieval import Found

app = typer.Typer()

MaxPixels = Annotated[int, typer.Option(min=1, help="Refuse larger pictures before decoding them.")]


@app.command(
    epilog="Examples:  fovea index photos/ --out photos.fovea  |  fovea index birds/ --net efficientnet_lite0-cub100"
)
def index(
    pictures: Annotated[list[str], typer.Argument(metavar="DIR…", help="Folders (searched through), 'globs', files.")],
    net: Net = "efficientnet_lite0",
    out: Annotated[Path, typer.Option(help="The index: a file, or a folder for index.fovea.")] = Path(
        "out/index.fovea"
    ),
    weights: Weights = None,
    features: Annotated[
        str | None,
        typer.Option(help="pooled (what a classifier's last layer reads; its default) or output (any other's)."),
    ] = None,
    batch: Batch = 16,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the index holds.")] = False,
    device: Device = None,
    max_pixels: MaxPixels = 200_000_000,
) -> None:
    """Index pictures by what a network knows them by; again, it takes up what is new, changed or gone, and goes on
    where it was stopped."""
    from fovea import retrieval as searching

    start = time.perf_counter()
    with bar("indexing") as advance:
        found = searching.index(
            pictures, net, out, weights=weights, features=features, batch=batch, fresh=fresh, device=device,
            max_pixels=max_pixels, progress=advance,
        )  # fmt: skip
    _tell(found.skipped, "cannot be read")
    say.print(
        f"{found.pictures:,} pictures in {found.file}: {found.added:,} new, {found.changed:,} changed, "
        f"{found.already:,} already there, {found.dropped:,} dropped, {len(found.skipped):,} that cannot be read; "
        f"{time.perf_counter() - start:.1f} s",
        markup=False,
    )


@app.command(epilog="Examples:  fovea search bird.jpg --index birds.fovea  |  fovea search new/ --index birds.fovea")
def search(
    pictures: Annotated[list[str], typer.Argument(help="Files, folders (searched through) or 'globs'.")],
    where: Annotated[Path, typer.Option("--index", metavar="PATH", help="What 'fovea index' made.")] = Path(
        "out/index.fovea"
    ),
    count: Annotated[
        int | None, typer.Option(min=1, help="Neighbours of each; 8, or all of a smaller index, if not given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, sheets and search.json.")] = Path("out/search"),
    json: Json = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the indexed pictures are now, if they were moved without the index.")
    ] = None,
    device: Device = None,
    max_pixels: MaxPixels = 200_000_000,
) -> None:
    """Find the pictures of an index that are nearest to a picture, and show where they are alike: a page to open."""
    start = time.perf_counter()
    if out.exists() and not out.is_dir():
        raise BadChoice(f"--out {out} is a file; name a folder")
    from fovea.pictures import gather
    from fovea.retrieval import open_index
    from fovea.retrieval.knowing import readable
    from fovea.retrieval.page import write

    opened = open_index(where, folder=folder, device=device)
    loaded = time.perf_counter() - start
    if opened.unfinished:
        warn.print(
            f"{where} is unfinished: {len(opened):,} of {opened.unfinished:,} pictures; 'fovea index' goes on",
            markup=False,
        )
    found, skipped = list["Found"](), list[tuple[str, str]]()
    for picture in gather(pictures):
        try:
            found.append(opened.search(picture, count, max_pixels))
        except BadPicture as reason:
            skipped.append((readable(picture.name), readable(str(reason))))
    _tell(skipped, "skipped")
    for one in found:
        _show(one)
    if not found:
        raise typer.Exit(1)
    seconds = sum(one.seconds for one in found) / len(found)
    each = f"answered in {seconds:.2f} s" + (" each" if len(found) > 1 else "")
    say.print(f"loaded in {loaded:.1f} s, {each}, {len(opened):,} pictures", markup=False)
    start = time.perf_counter()
    with bar("drawing the page") as advance:
        page = write(found, out, skipped, json, advance)
    say.print(f"open in a browser: {page} (drawn in {time.perf_counter() - start:.1f} s)", markup=False)


def _show(found: "Found") -> None:
    own = f" (itself in the index, as {found.itself.name})" if found.itself else ""
    say.print(f"{found.name}{own}", markup=False)
    for one in found.neighbours:
        words = f", {one.label}" if one.label and one.label not in Path(one.name).parts else ""
        say.print(f"  {one.similarity:.3f}  {one.name}{words}{', itself' if one.itself else ''}", markup=False)


def _tell(skipped: "list[tuple[str, str]] | tuple[tuple[str, str], ...]", what: str) -> None:
    for _, reason in skipped[:10]:
        warn.print(f"{what}: {reason}", markup=False)
    if len(skipped) > 10:
        warn.print(f"… and {len(skipped) - 10} more")
