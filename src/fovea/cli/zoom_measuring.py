"""fovea measure zoom, fovea bench zoom: what reading a few glimpses gives, and what it costs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.basics.errors import BadChoice
from fovea.cli.common import Batch, Data, Device, Json, Limit, Seed, Split, bar, part_of, report, say, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fovea.networks.network import Network

app, bench_app = typer.Typer(no_args_is_help=True), typer.Typer(no_args_is_help=True)

SHOWN = (  # the columns of the table; _at: of every level
    "net", "seeds", "glimpses", "levels", "top1", "top5", "alone", "first", "found_at", "contains_at", "read", "macs",
    "ms_per_picture", "peak_mb",
)  # fmt: skip


@app.command("zoom")
def measure_zoom(
    data: Data,
    net: Annotated[
        list[str], typer.Option("--net", help="A name, or a .safetensors file; repeat for several, in one table.")
    ],
    glimpses: Annotated[
        str | None,
        typer.Option(metavar="K,K,…", help="How many are read, separated by commas; a ladder up to 8 if not given."),
    ] = None,
    json: Json = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw accuracy against multiplications, as a picture.")
    ] = None,
    split: Split = None,
    limit: Limit = None,
    batch: Batch = 32,
    time: Annotated[bool, typer.Option("--time/--no-time", help="Time and peak memory, which take a while.")] = True,
    device: Device = None,
    seed: Seed = 0,
) -> None:
    """Networks that read glimpses, beside ones that read whole pictures: accuracy, cost, and where they looked.

    Networks that are called the same but for a last -seed<N> are also told as one, with an interval over them.
    """
    from fovea.data import open_data
    from fovea.measures import plots, zoom
    from fovea.measures.figures import Figures

    counts = None if glimpses is None else whole_numbers(glimpses, "--glimpses")
    networks = [loaded(name, device) for name in net]
    opened = open_data(data, split, networks[0].labels).first(limit)
    with bar(f"zooming into {opened.name}") as advance:
        found = zoom.measure(networks, opened, counts, batch, seed, time, advance)
    shown = [{_title(key): _short(row, key) for key in _columns(found.rows)} for row in found.rows]
    title = f"{found.rows[0]['images']} pictures of {opened.name}"
    report(Figures("zoom", {}, shown, found.skipped), title, None)
    write(part_of(found, data, split, limit), json, seed)
    if figure:
        plots.save(zoom.draw(found), figure)
        say.print(str(figure), markup=False)


def loaded(name: str, device: str | None) -> "Network":
    """A run's weights.safetensors is called as the run's folder."""
    import torch

    from fovea.networks.cost import placed
    from fovea.networks.loading import load

    network = load(name)
    path = Path(name)
    if path.name == "weights.safetensors":
        network.name = path.absolute().parent.name
    return placed(network, device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _columns(rows: "Sequence[Mapping[str, Any]]") -> list[str]:
    """Those with anything in them."""
    told = sorted({key for row in rows for key, value in row.items() if value is not None})
    return [key for name in SHOWN for key in told if key == name or re.fullmatch(rf"{name}_\d+", key)]


def _short(row: "Mapping[str, Any]", key: str) -> object:
    value = row.get(key)
    if key == "macs":
        return f"{row[key] / 1e9:.3g} G"
    return f"{value:.3f} ({row['low']:.3f} to {row['high']:.3f})" if key == "top1" else value


def _title(key: str) -> str:
    return {"top1": "top1 (95 %)", "ms_per_picture": "ms"}.get(key, key)


def whole_numbers(text: str, option: str, least: int = 0) -> list[int]:
    words = [one.strip() for one in text.split(",") if one.strip()]
    if not words or not all(one.isdecimal() and int(one) >= least for one in words):
        raise BadChoice(
            f"{option} takes whole numbers of at least {least}, separated by commas, as 1,2,4; got {text!r}"
        )
    return [int(one) for one in words]


@bench_app.command("zoom")
def bench_zoom(
    json: Json = None,
    net: Annotated[str, typer.Option(help="A network that reads glimpses; weights do not matter here.")] = "tnet-b0",
    against: Annotated[
        str, typer.Option(metavar="NET", help="One that reads the full picture.")
    ] = "timm/efficientnet_b0",
    size: Annotated[int, typer.Option(min=1, help="Side of the pictures, for both.")] = 896,
    glimpses: Annotated[int, typer.Option(min=0, help="Regions read of each picture.")] = 4,
    batches: Annotated[str, typer.Option(help="Separated by commas.")] = "1,16",
    classes: Annotated[int, typer.Option(min=2, help="Outputs of both.")] = 62,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each row; the median counts.")] = 5,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Time and memory of a few glimpses against the full picture, in one run, in turns."""
    from fovea.measures import zoom_speed
    from fovea.networks.cost import placed
    from fovea.networks.loading import load

    sizes = whole_numbers(batches, "--batches", least=1)
    reads, whole = (placed(load(name, pretrained=False, classes=classes), device) for name in (net, against))
    with bar("timing") as advance:
        found = zoom_speed.measure(reads, whole, size, glimpses, sizes, rounds, advance)
    told = f"{glimpses} glimpses of {size} x {size} against all of it ({found.settings['threads']} threads)"
    report(found, told, json)
