"""fovea measure WHAT: figures for a network on data."""

from typing import Annotated

import typer

from fovea.cli.common import Batch, Data, Json, Limit, Net, Split, Untrained, Weights, bar, load, report, say

app = typer.Typer(help="Figures for a network on data.", no_args_is_help=True)


@app.command("wsol")
def measure_wsol(
    data: Data,
    net: Net = "efficientnet_lite0",
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = "cam,gradcam,l2caf",
    json: Json = None,
    split: Split = None,
    limit: Limit = None,
    crop: Annotated[
        bool, typer.Option("--crop", help="The network's own crop instead of squashing the whole picture in.")
    ] = False,
    weights: Weights = None,
    untrained: Untrained = False,
    batch: Batch = 16,
) -> None:
    """Weakly supervised localisation: are the boxes of the maps right?"""
    from fovea.data import open_data
    from fovea.explaining import find
    from fovea.measure import wsol

    found = [find(name.strip()) for name in methods.split(",") if name.strip()]
    network = load(net, weights, untrained)
    network = network if crop else network.squashed()
    opened = open_data(data, split, network.labels).first(limit)
    with bar(f"localising in {opened.name}") as advance:
        figures = wsol.measure(network, opened, found, batch, advance)
    report(figures, f"localisation on {opened.name}, {figures.settings['input']}", json)
    say.print(f"threshold: {figures.settings['threshold']}", markup=False)
