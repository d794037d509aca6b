"""The command line. Imports of torch wait until a command needs it, so that --help answers at once."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from fovea.errors import BadChoice, BadPicture, FoveaError

if TYPE_CHECKING:
    from fovea.network import Network
    from fovea.writing import Writer

app = typer.Typer(
    help="Shows where a network looks. Start with: [bold]fovea demo[/bold], or [bold]fovea explain cat.jpg[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
measuring = typer.Typer(help="Figures for a network on data.", no_args_is_help=True)
benching = typer.Typer(help="What it costs, beside others.", no_args_is_help=True)
app.add_typer(measuring, name="measure")
app.add_typer(benching, name="bench")
say, warn = Console(soft_wrap=True, highlight=False), Console(stderr=True, soft_wrap=True, highlight=False)

Net = Annotated[str, typer.Option("--net", help="A name from 'fovea models', or a .safetensors file.")]
Weights = Annotated[Path | None, typer.Option("--weights", help="Your own weights for --net.")]
Untrained = Annotated[bool, typer.Option("--untrained", help="Random weights instead of the hub's.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]


def _version(wanted: bool) -> None:
    if wanted:
        from fovea import __version__

        say.print(f"fovea {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


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
    network = _load(net, weights, untrained)
    network = network.squashed() if squash else network
    aim: Any = None if not target else target[0] if len(target) == 1 else target
    if out.exists() and not out.is_dir():
        raise BadChoice(f"--out {out} is a file; name a folder")
    settings = {"net": net, "layer": layer, "methods": [one.name for one in found], "target": target}
    with Writer(out, settings) as writer, _bar("explaining") as advance:
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
def models(
    pattern: Annotated[str, typer.Argument(help="Part of a name, or a glob such as 'timm/*vit*'.")] = "",
) -> None:
    """List the networks that can be loaded."""
    from fovea.zoo import models as listed

    found = listed(pattern)
    for source, names in found.items():
        if names:
            more = (
                f" … and {len(names) - 12} more (fovea models {source}/<part>)"
                if not pattern and len(names) > 12
                else ""
            )
            say.print(f"{source} ({len(names)})", style="bold")
            say.print("  " + "\n  ".join(names if pattern else names[:12]) + more, markup=False)
    if not any(found.values()):
        raise FoveaError(f"no network matches {pattern!r}; 'fovea models' lists them")
    if not pattern:
        say.print("and any .safetensors file written by Network.save; your own module with fovea.wrap(module, ...)")


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
    from fovea.measure import figures

    network = _load(net, weights, False)
    with say.status("explaining copies with random weights"):
        found = check(network, pictures, method)
    out.parent.mkdir(parents=True, exist_ok=True)
    found.save(out)
    if json:
        figures.write(json, "sanity", {"net": net, "method": method}, found.rows)
    say.print(str(found), markup=False)
    say.print(str(out), markup=False)


@measuring.command("wsol")
def measure_wsol(
    data: Annotated[str, typer.Option(help="A pack (by path, or by name below $FOVEA_DATA) or a folder a class.")],
    net: Net = "efficientnet_lite0",
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = "cam,gradcam,l2caf",
    json: Json = None,
    split: Annotated[str | None, typer.Option(help="One split of the pack only.")] = None,
    limit: Annotated[int | None, typer.Option(help="So many pictures, spread evenly.")] = None,
    crop: Annotated[
        bool, typer.Option("--crop", help="The network's own crop instead of squashing the whole picture in.")
    ] = False,
    weights: Weights = None,
    untrained: Untrained = False,
    batch: Annotated[int, typer.Option(min=1)] = 16,
) -> None:
    """Weakly supervised localisation: are the boxes of the maps right?"""
    from fovea.explaining import find
    from fovea.measure import figures, wsol
    from fovea.regions import THRESHOLD_RULE
    from fovea.train.packs import open_data

    found = [find(name.strip()) for name in methods.split(",") if name.strip()]
    network = _load(net, weights, untrained)
    network = network if crop else network.squashed()
    pack = open_data(data, split, network.labels).first(limit)
    with _bar(f"localising in {pack.name}") as advance:
        rows, skipped = wsol.measure(network, pack, found, batch, advance)
    rows = [{**row, "net": net} for row in rows]
    settings = {
        "data": pack.name,
        "split": split,
        "input": "cropped" if crop else "squashed",
        "threshold": f"one for the whole set, the best of 0.01, 0.02, ... 0.99; {THRESHOLD_RULE}",
        "correct": "IoU of at least 0.5 with any true box",
        "max_box_acc_v2": "mean over IoU 0.3, 0.5, 0.7, each at its best threshold; the best of all segments counts",
        "skipped": len(skipped),
    }
    if json:
        figures.write(json, "wsol", settings, rows)
    figures.show(rows, f"localisation on {pack.name}, {settings['input']}", say)
    say.print(f"threshold: {settings['threshold']}", markup=False)
    for name, reason in skipped:
        warn.print(f"skipped {name}: {reason}", markup=False)


@benching.command("explain")
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
    from fovea.measure import figures, speed

    names, sizes = nets.split(","), [int(one) for one in batches.split(",") if one.strip().isdecimal()]
    if not sizes or 0 in sizes:
        raise BadChoice(f"--batches takes whole numbers separated by commas, such as 1,16; got {batches!r}")
    with _bar("timing") as advance:
        rows = speed.explain(names, sizes, rounds, advance)
    settings = {
        "rounds": rounds,
        "threads": speed.threads(),
        "input": "224 x 224",
        "x_forward": "median of ratios to the bare forwards before and after",
    }
    if json:
        figures.write(json, "bench explain", settings, rows)
    figures.show(rows, f"explaining, in bare forwards ({settings['threads']} threads)", say)


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("out/demo")) -> None:
    """Explain a few photographs with real weights, offline, and write one page to open in a browser."""
    from fovea.demo import make

    with _bar("making the page") as advance:
        page = make(out, advance)
    say.print(f"open in a browser: {page}" if sys.stdout.isatty() else str(page), markup=False)


@contextmanager
def _bar(what: str) -> Iterator[Any]:
    """A progress bar on stderr, so that what is printed stays clean."""
    columns = SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=warn, transient=True, disable=not warn.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _load(net: str, weights: Path | None, untrained: bool) -> "Network":
    from fovea.zoo import load

    return load(net, weights, pretrained=not untrained)


def main() -> None:
    """Exit status: 0 when something was done, 1 when nothing could be, 2 for wrong usage."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a kill, too, leaves what was done in order
    try:
        app()
    except BadPicture as error:
        warn.print(f"error: {error}", markup=False)
        sys.exit(1)
    except FoveaError as error:
        warn.print(f"error: {error}", markup=False)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder that may not be written to
        warn.print(f"error: {error}", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        warn.print("stopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
