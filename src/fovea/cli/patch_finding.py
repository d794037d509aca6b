"""fovea patches, which finds them in pictures and data sets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fovea.basics.errors import BadChoice
from fovea.cli.common import Batch, Limit, Split, _writable, bar, say, warn

if TYPE_CHECKING:
    from fovea.data import DataSet
    from fovea.patches.patching import Extracted

app = typer.Typer()

SOURCE = (
    "KIND:NET,key=value,…, as l2caf:efficientnet_lite0-cub100, anchornet:anchornet-cub100, "
    "prototypes:FILE.safetensors,count=5, whole, random:seed=0."
)


@app.command(
    epilog="Examples: fovea patches photos/ --source l2caf:efficientnet_lite0 --sheet sheet.jpg  |  "
    "fovea patches --data cub100:split=train --source l2caf:efficientnet_lite0-cub100"
)
def patches(
    source: Annotated[str, typer.Option("--source", help=SOURCE)],
    pictures: Annotated[list[str] | None, typer.Argument(help="Files, folders or 'globs': no labels needed.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="Or a data set, as cub100:split=train.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=_writable, help="Where they are kept; out/patches/… if not given."),
    ] = None,
    split: Split = None,
    limit: Limit = None,
    batch: Batch = 16,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, whatever the file holds.")] = False,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=_writable, help="Draw 24 pictures with their patches.")
    ] = None,
) -> None:
    """Find patches in every picture, without boxes. Stopped at any moment, it goes on where it was."""
    from fovea.data import open_data
    from fovea.patches.patching import extract, open_source, pictures_of

    if (data is None) == (not pictures):
        raise BadChoice("name pictures, as photos/, or a data set, as --data cub100:split=train: one of the two")
    if pictures and split:
        raise BadChoice("--split is of a data set, and pictures have none: leave it out")
    opened = open_source(source, _device())
    given = (pictures_of(pictures) if pictures else open_data(str(data), split)).first(limit)
    with bar(f"looking for patches in {given.name}") as advance:
        found = extract(given, opened, out, batch, fresh, progress=advance)
    for name, reason in found.skipped[:10]:
        warn.print(f"skipped {name}: {reason}", markup=False)
    if len(found.skipped) > 10:
        warn.print(f"… and {len(found.skipped) - 10} more")
    number = sum(len(one.boxes) for one in found.values())
    before = f", {found.already} pictures already there" if found.already else ""
    left_out = f", {len(found.skipped)} skipped" if found.skipped else ""
    say.print(f"{number} patches of {len(found)} pictures{before}{left_out}", markup=False)
    _say_where(given, found)
    say.print(str(found.file), markup=False)
    if sheet:
        from fovea.patches.sheet import sheet as drawn

        sheet.parent.mkdir(parents=True, exist_ok=True)
        drawn(given, found).save(sheet)
        say.print(str(sheet), markup=False)


def _say_where(data: "DataSet", found: "Extracted") -> None:
    """Where true boxes are known, how many first patches have their centre in one."""
    from fovea.measures.patch_sources import centers_inside

    own = [one for one in data.with_boxes().samples if one.boxes and one.name in found]
    if own:
        inside = sum(bool(centers_inside(found[one.name], one.boxes)[0]) for one in own)
        say.print(f"centre of the first patch in a true box: {inside / len(own):.3f} of {len(own)} pictures")


def _device() -> str:
    """On the GPU where there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
