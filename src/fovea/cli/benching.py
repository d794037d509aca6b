"""fovea bench WHAT: what it costs, beside others."""

from pathlib import Path
from typing import Annotated

import typer

from fovea.basics.errors import BadChoice
from fovea.cli import zoom_measuring
from fovea.cli.common import Json, Seed, bar, listed, report, say

app = typer.Typer(help="What it costs, beside others.", no_args_is_help=True)
app.add_typer(zoom_measuring.bench_app)


@app.command("explain")
def bench_explain(
    json: Json = None,
    nets: Annotated[
        str, typer.Option(help="Separated by commas; weights do not matter here.")
    ] = "timm/resnet50,efficientnet_lite0",
    batches: Annotated[str, typer.Option(help="Separated by commas.")] = "1,16",
    rounds: Annotated[
        int, typer.Option(min=3, help="Measurements of each row, twice that for batch 1; the median counts.")
    ] = 11,
) -> None:
    """Time every method against a bare forward pass, and against captum, torchcam and grad-cam where installed."""
    from fovea.measures import speed

    names, sizes = listed(nets), [int(one) for one in batches.split(",") if one.strip().isdecimal()]
    if not sizes or 0 in sizes:
        raise BadChoice(f"--batches takes whole numbers separated by commas, such as 1,16; got {batches!r}")
    with bar("timing") as advance:
        found = speed.measure(names, sizes, rounds, advance)
    report(found, f"explaining, in bare forwards ({found.settings['threads']} threads)", json)


@app.command("lip")
def bench_lip(
    json: Json = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each row; the median counts.")] = 9,
) -> None:
    """Time LIP on 256 maps of 21 x 21 cells against Algorithm 1 as a plain loop."""
    from fovea.measures import lip_speed

    found = lip_speed.measure(rounds)
    report(found, f"LIP against a plain loop ({found.settings['threads']} threads)", json)


@app.command("patches")
def bench_patches(
    json: Json = None,
    localizer: Annotated[str, typer.Option(help="A network with branches.")] = "anchornet-imagenette",
    nets: Annotated[
        str, typer.Option(help="Classifiers, separated by commas; weights do not matter here.")
    ] = "timm/resnet50,efficientnet_lite0",
    data: Annotated[str, typer.Option(help="Pictures to localise patches in; $FOVEA_DATA is where names are.")] = (
        "imagenette:split=test"
    ),
    overlap: Annotated[float, typer.Option(help="LIP's T: the IoU of two patches stays below.")] = 0.3,
    share: Annotated[float, typer.Option(help="LIP's P: the share of the cells that is looked at.")] = 0.04,
    pictures: Annotated[int, typer.Option(min=1, help="How many, spread evenly.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each row; the median counts.")] = 7,
) -> None:
    """Time a classifier on localised patches, localising included, against the same classifier on full pictures."""
    from fovea.data import open_data
    from fovea.measures import patch_speed
    from fovea.networks.loading import load
    from fovea.patches.localize import choice

    finder = load(localizer)
    opened = open_data(data).first(pictures)
    names = listed(nets)
    with bar("timing") as advance:
        found = patch_speed.measure(finder, names, opened, choice(None, overlap, share), batch, rounds, advance)
    report(found, f"patches against full pictures ({found.settings['threads']} threads)", json)


@app.command("families")
def bench_families(
    json: Json = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the times side by side.")] = None,
    nets: Annotated[
        str | None,
        typer.Option(help="Separated by commas; those of paper Fig. 12 and EfficientNet-Lite0 if not given."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of what is quick; the median counts.")] = 5,
    seed: Seed = 0,
) -> None:
    """Time vanilla, fast and exact L2-CAF and Grad-CAM over families of networks (L2-CAF, Fig. 12)."""
    from fovea.measures import families, plots

    names = families.FAMILIES if nets is None else listed(nets)
    with bar("timing") as advance:
        found = families.measure(names, rounds, seed, advance)
    report(found, f"L2-CAF over families of networks ({found.settings['threads']} threads)", json, seed)
    if out:
        plots.save(families.draw(found), out)
        say.print(str(out), markup=False)
