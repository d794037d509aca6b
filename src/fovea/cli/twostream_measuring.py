"""fovea measure twostream: what each stream and each step of a two-stream network is worth."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.cli.common import Batch, Data, Device, Json, Limit, Seed, Split, bar, part_of, report, write

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(no_args_is_help=True)

SHOWN = ("net", "seeds", "local", "source", "readout", "top1", "global_top1", "local_top1", "gain")


@app.command("twostream")
def measure_twostream(
    data: Data,
    net: Annotated[
        list[str], typer.Option("--net", help="A name, or a .safetensors file; repeat for several, in one table.")
    ],
    json: Json = None,
    split: Split = None,
    limit: Limit = None,
    batch: Batch = 32,
    device: Device = None,
    seed: Seed = 0,
) -> None:
    """The global stream, the local stream, both; every step alone, sums of steps, attention.

    Networks that are called the same but for a last -seed<N> are told as one, with an interval over them. Where a
    global stream alone (local=none) is among them, the gain over it is told.
    """
    from fovea.cli.zoom_measuring import loaded
    from fovea.data import open_data
    from fovea.measures import twostream
    from fovea.measures.figures import Figures

    networks = [loaded(name, device) for name in net]
    opened = open_data(data, split, networks[0].labels).first(limit)
    with bar(f"looking at {opened.name}") as advance:
        found = twostream.measure(networks, opened, batch, seed, advance)
    rows = [
        {key: row.get(key) for key in SHOWN} | {"top1": _told(row, "top1"), "gain": _told(row, "gain")}
        for row in found.rows
    ]
    report(Figures("twostream", {}, rows, found.skipped), f"{found.settings['images']} pictures of {opened.name}", None)
    write(part_of(found, data, split, limit), json, seed)


def _told(row: "Mapping[str, Any]", key: str) -> str | None:
    if row.get(key) is None:
        return None
    low, high = (row.get(one if key == "top1" else f"{key}_{one}") for one in ("low", "high"))
    return f"{row[key]:.3f}" + ("" if low is None or high is None else f" ({low:.3f} to {high:.3f})")
