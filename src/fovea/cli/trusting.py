"""fovea measure trust: which map should I trust?"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.cli.common import (
    Batch,
    Data,
    Json,
    Limit,
    Net,
    Seed,
    Split,
    Untrained,
    Weights,
    bar,
    is_shipped,
    listed,
    load,
    part_of,
    report,
    say,
    warn,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fovea.measures.figures import Figures

app = typer.Typer(no_args_is_help=True)


@app.command("trust")
def measure_trust(
    data: Data,
    net: Net = "efficientnet_lite0",
    methods: Annotated[
        str | None, typer.Option(help="Separated by commas; all that fovea has if not given. random is the control.")
    ] = None,
    json: Json = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the measures side by side.")] = None,
    split: Split = None,
    limit: Limit = None,
    curve_pictures: Annotated[
        int, typer.Option(min=2, help="How many, spread evenly, for insertion, deletion and sanity.")
    ] = 32,
    steps: Annotated[int, typer.Option(min=2, help="Of each curve.")] = 8,
    crop: Annotated[
        bool, typer.Option("--crop", help="The network's own crop instead of squashing the whole picture in.")
    ] = False,
    weights: Weights = None,
    untrained: Untrained = False,
    batch: Batch = 16,
    seed: Seed = 0,
) -> None:
    """Which map should I trust? Every method's localisation, insertion, deletion, sanity and time, and a verdict."""
    from fovea.data import open_data
    from fovea.measures import plots, trust, trust_figure

    network = load(net, weights, untrained)
    network = network if crop else network.squashed()
    opened = open_data(data, split, network.labels).first(limit)
    own = None if methods is None else listed(methods)
    with bar(f"trying every map on {opened.name}") as advance:
        found = trust.measure(network, opened, own, curve_pictures, steps, batch, seed, advance, os.cpu_count() or 1)
    first = found.rows[0]
    images = f"{first['images']} pictures of {opened.name}"
    report(_readable(found), f"{first['net']} on {images}, {first['curve_images']} of them for curves and sanity", None)
    say.print("good maps: localisation and insertion high, deletion low, sanity near 0; 95 % intervals", markup=False)
    for name, reason in found.details["refused"].items():
        warn.print(f"{name} gives no maps of this network: {reason}", markup=False)
    for sentence in found.details["recommendation"]:
        say.print(sentence, markup=False)
    write(part_of(found, data, split, limit), json, seed, is_shipped(net, weights, untrained))
    if out:
        plots.save(trust_figure.draw(found), out)
        say.print(str(out), markup=False)


def _readable(found: "Figures") -> "Figures":
    """Intervals beside their figures, so that a row fits a screen."""
    from fovea.measures.figures import Figures

    rows: list[dict[str, Any]] = []
    for row in found.rows:
        own: dict[str, Any] = {"method": row["method"]}
        for what, word in (("gt_known", "localisation"), ("insertion", "insertion"), ("deletion", "deletion")):
            if row[what] is not None:
                own[word] = _told(row, what)
        own |= {"last layer random": row["sanity_last"], "all random": row["sanity_all"], "x forward": row["x_forward"]}
        rows.append(own | {"verdict": row["verdict"]})
    return Figures("trust", {}, rows, found.skipped)


def _told(row: "Mapping[str, Any]", what: str) -> str:
    return f"{row[what]:.3f} ({row[what + '_low']:.3f} to {row[what + '_high']:.3f})"
