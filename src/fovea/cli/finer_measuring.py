"""fovea measure finer: does the attention of a two-stream network narrow with its steps?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.cli.common import Batch, Data, Device, Json, Limit, Seed, Split, bar, listed, part_of, report, say, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fovea.measures.figures import Figures

app = typer.Typer(no_args_is_help=True)


@app.command("finer")
def measure_finer(
    data: Data,
    net: Annotated[str, typer.Option("--net", help="A two-stream network: a name, or a .safetensors file.")],
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,…",
            help="gradcam, l2caf (slow without a GPU), and self-attention where the network has it.",
        ),
    ] = "gradcam",
    json: Json = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw area against step, as a picture.")] = None,
    split: Split = None,
    limit: Limit = None,
    batch: Batch = 32,
    device: Device = None,
    seed: Seed = 0,
) -> None:
    """Does attention narrow with the steps? The part of a patch above half of its map's maximum, step by step."""
    from fovea.cli.zoom_measuring import loaded
    from fovea.data import open_data
    from fovea.measures import finer, plots

    network = loaded(net, device)
    opened = open_data(data, split, network.labels).first(limit)
    with bar(f"looking at {opened.name}") as advance:
        found = finer.measure(network, opened, listed(method), batch, seed, advance)
    report(_by_step(found), f"{found.rows[0]['images']} pictures of {opened.name}, step by step", None)
    for row in found.rows:
        if "step" not in row:
            say.print(finer.sentence(row, found.settings["steps"]), markup=False)
            if row["blank"]:
                say.print(f"{row['method']}: {row['blank']} blank map(s) left out", markup=False)
    write(part_of(found, data, split, limit), json, seed)
    if out:
        plots.save(finer.draw(found), out)
        say.print(str(out), markup=False)


def _by_step(found: "Figures") -> "Figures":
    """A row a step, the methods beside each other."""
    from fovea.measures.figures import Figures

    rows: dict[int, dict[str, Any]] = {}
    for row in found.rows:
        if "step" in row:
            own = rows.setdefault(row["step"], {key: row[key] for key in ("step", "weight", "top1")})
            own[f"area, {row['method']} (95 %)"] = _told(row)
    return Figures("finer", {}, list(rows.values()), found.skipped)


def _told(row: "Mapping[str, Any]") -> str | None:
    return None if row["area"] is None else f"{row['area']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
