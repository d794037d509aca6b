"""fovea explain, fovea sanity."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.cli.common import Json, Net, Untrained, Weights, bar, load, say, warn, write
from fovea.errors import BadChoice

if TYPE_CHECKING:
    from fovea.writing import Writer

app = typer.Typer()


@app.command(
    epilog="Examples:  fovea explain cat.jpg  |  fovea explain photos/ --method gradcam --target top5 --out maps/"
)
def explain(
    pictures: Annotated[list[str], typer.Argument(help="Files, folders (searched through) or 'globs'.")],
    net: Net = "efficientnet_lite0",
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="l2caf (default), cam, gradcam, gradcam-abs, l2caf-sum, l2caf-signed, l2caf-oblivious. "
            "Repeat, or separate by commas.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASS",
            help="A class name or index, top1 (default), top5, output (no class), pair (two by two). "
            "Repeat for several.",
        ),
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Where to look, e.g. layer4; found if not given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for overlays, .npy values and manifest.json.")] = Path(
        "out/explain"
    ),
    weights: Weights = None,
    untrained: Untrained = False,
    squash: Annotated[
        bool, typer.Option("--squash", help="Squash the whole picture in, instead of the network's own crop.")
    ] = False,
    batch: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    max_pixels: Annotated[int, typer.Option(min=1, help="Refuse larger pictures before decoding them.")] = 200_000_000,
) -> None:
    """Show where a network looks: an overlay a map, the raw values, and a manifest."""
    from fovea.explaining import explain_batches, find
    from fovea.writing import Writer

    found = [find(name.strip()) for names in method or ["l2caf"] for name in names.split(",") if name.strip()]
    network = load(net, weights, untrained)
    network = network.squashed() if squash else network
    aim: Any = None if not target else target[0] if len(target) == 1 else target
    if out.exists() and not out.is_dir():
        raise BadChoice(f"--out {out} is a file; name a folder")
    settings = {"net": net, "layer": layer, "methods": [one.name for one in found], "target": target}
    with Writer(out, settings) as writer, bar("explaining") as advance:
        for step in explain_batches(network, pictures, found, aim, layer, batch, max_pixels=max_pixels):
            writer.add(step)
            advance(step.done, step.total)
    _report(writer)


def _report(writer: "Writer") -> None:
    for _, reason in writer.skipped[:10]:
        warn.print(f"skipped: {reason}", markup=False)
    if len(writer.skipped) > 10:
        warn.print(f"… and {len(writer.skipped) - 10} more, listed in the manifest")
    for reason, count in writer.blank.most_common(5):
        warn.print(f"blank: {count} map(s): {reason}", markup=False)
    blanks = f", {writer.blank.total()} map(s) blank" if writer.blank else ""
    where = writer.folder / "manifest.json"
    say.print(f"explained {writer.explained} picture(s), skipped {len(writer.skipped)}{blanks}: {where}", markup=False)
    if not writer.explained:
        raise typer.Exit(1)


@app.command()
def sanity(
    pictures: Annotated[list[str], typer.Argument(help="Files, folders or globs.")],
    net: Net = "efficientnet_lite0",
    method: Annotated[str, typer.Option(help="The method to check.")] = "l2caf",
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("out/sanity.png"),
    json: Json = None,
    weights: Weights = None,
) -> None:
    """Randomise the network's weights, layer by layer: do its maps change, as they must?"""
    from fovea.explaining.sanity import sanity as check
    from fovea.measure.figures import Figures

    network = load(net, weights, False)
    with say.status("explaining copies with random weights"):
        found = check(network, pictures, method)
    out.parent.mkdir(parents=True, exist_ok=True)
    found.save(out)
    write(Figures("sanity", {"net": net, "method": method}, found.rows), json)
    say.print(str(found), markup=False)
    say.print(str(out), markup=False)
