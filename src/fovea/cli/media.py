"""fovea measure text, fovea measure sounds: figures for media other than pictures."""

from pathlib import Path
from typing import Annotated

import typer

from fovea.cli.common import Json, Net, bar, is_shipped, report, say, write

app = typer.Typer()


@app.command("text")
def measure_text(
    seeds: Annotated[int, typer.Option(min=1, help="Each divides the sentences and starts the weights anew.")] = 5,
    ablation: Annotated[
        bool, typer.Option("--ablation/--no-ablation", help="Also without attention, and without auxiliary training.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Keep the runs in this folder; finished ones are not made again.")
    ] = None,
    recipes: Annotated[Path, typer.Option(help="Folder of the recipes.")] = Path("recipes"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Json = None,
) -> None:
    """AnchorNet-T and the text CNN on MR, trained by their recipes: a CPU takes a few minutes a seed."""
    from fovea.measures import text
    from fovea.measures.figures import Figures

    with say.status("training") as status:
        found = text.measure(
            seeds, device, out, recipes, ablation, tell=lambda line: status.update(line.replace("[", "("))
        )
    about = f"means over {seeds} seed{'s' if seeds > 1 else ''}"
    for table, title in (("4", f"text for classification, {about}"), ("7", f"what attention brings, {about}")):
        rows = [{key: row[key] for key in row if key != "table"} for row in found.rows if str(row["table"]) == table]
        if rows:
            Figures("text", {}, rows).show(title, say)
    write(found, json, 0)


@app.command("sounds")
def measure_sounds(
    net: Net = "anchornet_sound-made",
    data: Annotated[str, typer.Option("--data", help="sounds, with options as in sounds:count=1000,snr=-10.")] = (
        "sounds:count=1000,split=test"
    ),
    json: Json = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
) -> None:
    """AnchorNet on sounds made in code: is the event named, does the best span lie on it?"""
    from fovea.data.sounds import open_sounds
    from fovea.measures import sounds
    from fovea.networks.loading import load

    network, opened = load(net), open_sounds(data)
    with bar("listening") as advance:
        found = sounds.measure(network, opened, seed=seed, progress=advance)
    report(found, f"events in {len(opened):,} sounds", json, seed, is_shipped(net, None, False))
