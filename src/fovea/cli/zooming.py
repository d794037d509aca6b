"""fovea zoom."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.basics.errors import BadChoice
from fovea.cli.common import Json, Untrained, Weights, bar, load, say, warn, write

if TYPE_CHECKING:
    from fovea.glimpses.writing import Writer

app = typer.Typer()

USUAL = "tnet-imagenette"


@app.command(
    epilog="Examples:  fovea zoom photo.jpg --glimpses 3  |  fovea zoom canvases/ --net tnet-digits --out zooms/"
)
def zoom(
    pictures: Annotated[list[str], typer.Argument(help="Files, folders (searched through) or 'globs'.")],
    net: Annotated[
        str | None,
        typer.Option(
            "--net",
            help="A TNet that comes with fovea ('fovea models tnet'), or the .safetensors file of a TNet, Saccader or "
            f"DRAM that you trained. If not given: {USUAL}.",
        ),
    ] = None,
    glimpses: Annotated[
        int | None,
        typer.Option(
            metavar="K", min=0, help="Regions read of each picture; as the network usually does if not given."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for pictures of the descents and zoom.json.")] = Path("out/zoom"),
    json: Json = None,
    weights: Weights = None,
    untrained: Untrained = False,
    max_pixels: Annotated[int, typer.Option(min=1, help="Refuse larger pictures before decoding them.")] = 200_000_000,
) -> None:
    """Classify pictures from a few regions read closely: a picture of each descent, and JSON."""
    if out.exists() and not out.is_dir():
        raise BadChoice(f"--out {out} is a file; name a folder")
    from fovea.glimpses.writing import Writer
    from fovea.glimpses.zoom import zoom_batches

    name = net or _usual()
    network = load(name, weights, untrained)
    if net is None:
        say.print(f"by {name}", markup=False)
    if weights is None and not untrained and _begins_untrained(name):
        warn.print(f"{name} comes untrained: its answers mean nothing before 'fovea train'", markup=False)
    about = {"net": network.name, "glimpses": glimpses}
    notes: dict[str, int] = {}
    with Writer(out, about) as writer, bar("zooming") as advance:
        for step in zoom_batches(network, pictures, glimpses, max_pixels=max_pixels):
            for one in step.answers:
                say.print(f"{one.name}: {one.line()}", markup=False)
                if one.note:
                    notes[one.note] = notes.get(one.note, 0) + 1
            writer.add(step.answers, step.skipped)
            advance(step.done, step.total)
    for note, count in notes.items():
        warn.print(f"note on {count} picture(s): {note}", markup=False)
    _report(writer, json, about)


def _usual() -> str:
    from fovea.networks.loading import ours

    if USUAL not in ours():
        raise BadChoice(
            f"no TNet for photographs comes with this fovea: train one (fovea train recipes/{USUAL}.toml) and name the "
            "file, --net FILE.safetensors"
        )
    return USUAL


def _begins_untrained(name: str) -> bool:
    """Whether a name stands for an architecture alone, or for one with a new last layer."""
    from fovea.networks.registry import is_untrained

    return is_untrained(name)


def _report(writer: "Writer", json: Path | None, about: dict[str, Any]) -> None:
    for _, reason in writer.skipped[:10]:
        warn.print(f"skipped: {reason}", markup=False)
    if len(writer.skipped) > 10:
        warn.print(f"… and {len(writer.skipped) - 10} more, listed in zoom.json")
    if json is not None:
        from fovea.measures.figures import Figures

        write(Figures("zoom", about, writer.rows), json)
    where = writer.folder / "zoom.json"
    say.print(f"zoomed into {len(writer.rows)} picture(s), skipped {len(writer.skipped)}: {where}", markup=False)
    if not writer.rows:
        raise typer.Exit(1)
