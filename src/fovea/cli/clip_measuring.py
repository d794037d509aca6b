"""fovea measure clips: a network over clips."""

from typing import Annotated

import typer

from fovea.cli.common import Batch, Device, Json, Seed, bar, listed, part_of, report, say, write

app = typer.Typer()


@app.command("clips")
def measure_clips(
    net: Annotated[str, typer.Option("--net", help="A network for clips: a .safetensors file, or a name.")],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="moving, with options as in moving:split=test,count=500, or segments:file=clip.mp4,split=test.",
        ),
    ] = "moving:split=test,count=500",
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = "l2caf-oblivious,gradcam,gradcam-abs",
    json: Json = None,
    batch: Batch = 32,
    device: Device = None,
    seed: Seed = 0,
) -> None:
    """Clips: is the nearest one of the same class (R@1, NMI), and do the maps of its frames sit on what moves?"""
    from fovea.cli.zoom_measuring import loaded
    from fovea.data.segments import open_clips
    from fovea.measures import clips
    from fovea.measures.figures import Figures
    from fovea.networks.loading import ours

    network, opened = loaded(net, device), open_clips(data)
    with bar(f"watching {opened.name}") as advance:
        found = clips.measure(network, opened, listed(methods), batch, seed, advance)
    row = found.rows[0]
    shown = [
        {key: row[key] for key in ("net", "method", "in_box", "chance") if row[key] is not None} for row in found.rows
    ]
    title = f"{row['clips']:,} clips of {row['frames']} frames, {opened.name}, {row['classes']} classes"
    if "in_box" in shown[0]:
        report(Figures("clips", {}, shown), title, None)
    else:
        say.print(title, markup=False)
    say.print(f"R@1 {row['recall_at_1']:.3f}, NMI {row['nmi']:.3f} ({found.settings['distance']})", markup=False)
    write(part_of(found, data, None, None), json, seed, net in ours())
