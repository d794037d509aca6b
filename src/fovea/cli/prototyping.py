"""fovea prototypes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fovea.basics.errors import BadChoice
from fovea.cli.common import Batch, bar, is_shipped, load, say, shortened, warn

app = typer.Typer()

USUAL = "protopnet-cub100"


@app.command(
    epilog="Examples:  fovea prototypes  |  fovea prototypes --class 'Painted Bunting'  |  fovea prototypes bird.jpg"
)
def prototypes(
    pictures: Annotated[
        list[str] | None,
        typer.Argument(help="Say of these (files, folders or 'globs') what they look like; none: show the prototypes."),
    ] = None,
    net: Annotated[str, typer.Option("--net", help="A ProtoPNet that comes with fovea, or its .safetensors file.")] = (
        USUAL
    ),
    data: Annotated[
        str | None,
        typer.Option("--data", help="What it was trained on, as cub100:split=train; its card tells if not given."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, sheets and JSON.")] = Path("out/prototypes"),
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", help="All prototypes of this class. Repeat. If not given, some of 20 classes."),
    ] = None,
    nearest: Annotated[int, typer.Option(min=0, help="Patches beside each prototype.")] = 4,
    top: Annotated[int, typer.Option(min=1, help="Prototypes told for each picture.")] = 5,
    batch: Batch = 32,
    max_pixels: Annotated[int, typer.Option(min=1, help="Refuse larger pictures before decoding them.")] = 200_000_000,
) -> None:
    """Show what a ProtoPNet's prototypes are, or which of them a picture's parts look like: a page, sheets and JSON."""
    if out.exists() and not out.is_dir():
        raise BadChoice(f"--out {out} is a file; name a folder")
    if pictures and classes:
        raise BadChoice("--class shows prototypes, and pictures are compared with all of them: give one of the two")
    from fovea.data import open_data
    from fovea.prototypes import likeness as prototyping
    from fovea.prototypes import page

    network = load(net, None, False)
    where = data or _trained_on(net)
    opened = open_data(where)
    settings: dict[str, Any] = {"net": network.name, "data": shortened(where)}
    if pictures:
        with bar("comparing") as advance:
            answers = prototyping.looks_like(network, pictures, opened, top, batch, advance, max_pixels)
        for one in answers.pictures:
            say.print(f"{one.name}: {one.line()}", markup=False)
        skipped, done = answers.skipped, len(answers.pictures)
        index = page.write_answers(answers, opened, out, settings) if done else None
    else:
        wanted = prototyping.choose(network, classes or ())
        with bar("looking for the nearest") as advance:
            found = prototyping.nearest(network, opened, nearest, wanted, batch, advance)
        skipped = found.skipped
        index = page.write_prototypes(found, opened, out, settings)
    for name, reason in skipped[:10]:
        warn.print(f"skipped {name}: {reason}", markup=False)
    if len(skipped) > 10:
        warn.print(f"… and {len(skipped) - 10} more")
    if index is None:
        raise typer.Exit(1)
    say.print(f"open in a browser: {index}", markup=False)


def _trained_on(net: str) -> str:
    from fovea.networks.loading import ours

    if not is_shipped(net, None, False):
        raise BadChoice(f"which data was {net} trained on? --data NAME, as --data cub100:split=train")
    return str(ours()[net]["trained_on"])
