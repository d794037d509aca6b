"""fovea bench WHAT: what it costs, beside others."""

from typing import Annotated

import typer

from fovea.cli.common import Json, bar, report
from fovea.errors import BadChoice

app = typer.Typer(help="What it costs, beside others.", no_args_is_help=True)


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
    from fovea.measure import speed
    from fovea.measure.figures import Figures

    names, sizes = nets.split(","), [int(one) for one in batches.split(",") if one.strip().isdecimal()]
    if not sizes or 0 in sizes:
        raise BadChoice(f"--batches takes whole numbers separated by commas, such as 1,16; got {batches!r}")
    with bar("timing") as advance:
        rows = speed.explain(names, sizes, rounds, advance)
    settings = {
        "rounds": rounds,
        "threads": speed.threads(),
        "device": "cpu",
        "input": "224 x 224",
        "x_forward": "median of ratios to the bare forwards before and after",
    }
    report(
        Figures("bench explain", settings, rows), f"explaining, in bare forwards ({settings['threads']} threads)", json
    )
